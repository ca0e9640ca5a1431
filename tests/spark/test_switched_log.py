"""A Spark stream and a named cursor while the log moves to Kafka and back.

The broker is killed in each stage of both moves; `-o log_cli=true -o log_cli_level=INFO` prints
which ones were hit.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
from benchmark.baselines.kafka_server import KafkaNode
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from broker.client import (
    Batch,
    Client,
    DeadlineExceeded,
    OutcomeUnknown,
    TidemarkError,
    connect,
)
from tests.broker.app.switching.switch_programs import (
    FIRST,
    SECOND,
    THIRD,
    stage_on_disk,
    until,
)
from tests.broker_process import BrokerProcess, free_port
from tests.kafka_node import kafka_node, new_place

__all__ = ["kafka_node"]
NAME, CURSOR = "trains", "billing"
END_S = 900.0
"""Against hanging only."""
POLL_S = 0.05
SETTINGS = {"pchannels": "2", "log_level": "warning"}


counts = logging.getLogger("tests.spark")


class Appending:
    """Appends numbers until it is told to stop; `landed` are those that were acknowledged."""

    def __init__(self, log: Client) -> None:
        self._log = log
        self.landed: dict[bytes, int] = {}
        self.stopping = False

    async def run(self) -> None:
        number = 0
        while not self.stopping:
            value = b"%d" % number
            number += 1
            # Its answer died with the broker: it may be there, once.
            with suppress(OutcomeUnknown, DeadlineExceeded):
                self.landed[value] = int((await self._log.append(NAME, value, key=value)).id)


class Billing:
    """Reads from a cursor and commits each batch; begins anew from the cursor when told to."""

    def __init__(self, log: Client) -> None:
        self._log = log
        self.read: list[tuple[bytes, int]] = []
        self.begun = 0
        self.begin_anew = False

    async def run(self) -> None:
        while True:
            self.begun += 1
            self.begin_anew = False
            async for batch in self._log.read(NAME, start=CURSOR):
                self.read += [(it.payload, int(it.id)) for it in batch.messages]
                await self._commit(batch)
                if self.begin_anew:
                    break

    async def _commit(self, batch: Batch) -> None:
        while True:
            with suppress(TidemarkError):  # the broker is away; a commit may be made again
                return await self._log.cursor(CURSOR).commit(batch)
            await anyio.sleep(POLL_S)

    async def until_begun_anew(self) -> None:
        begun, self.begin_anew = self.begun, True
        while self.begun == begun:  # noqa: ASYNC110 - of a program that reads
            await anyio.sleep(POLL_S)


@asynccontextmanager
async def programs(address: str) -> AsyncIterator[tuple[Client, Appending, Billing]]:
    async with connect(address) as log, anyio.create_task_group() as tasks:
        await log.collections.create(NAME, shards=2)
        appending, billing = Appending(log), Billing(log)
        tasks.start_soon(appending.run)
        tasks.start_soon(billing.run)
        yield log, appending, billing
        tasks.cancel_scope.cancel()


def started(spark: SparkSession, address: str, folder: Path) -> StreamingQuery:
    reader = spark.readStream.format("tidemark").option("server", address)
    frame = reader.option("subscribe", NAME).option("startingOffsets", "earliest").load()
    writer = frame.select("value", "message_id").writeStream.format("parquet")
    return (
        writer.option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )


async def until_it_has_rows(query: StreamingQuery) -> None:
    while not any(it["numInputRows"] for it in query.recentProgress):
        assert query.isActive, query.exception()
        await anyio.sleep(POLL_S)


async def test_a_stream_and_a_cursor_go_on_from_where_they_were_in_the_log_that_was_switched(
    spark: SparkSession, kafka_node: KafkaNode, tmp_path: Path
) -> None:
    wal = f"{new_place(kafka_node).shown}?replication=1&sync=replicas"
    data, listen = tmp_path / "data", f"127.0.0.1:{free_port()}"
    broker, hit = BrokerProcess(data, listen, **SETTINGS), list[str]()
    try:
        with anyio.fail_after(END_S):
            async with programs(broker.address) as (log, appending, billing):
                query = started(spark, broker.address, tmp_path)
                for target in (wal, ""):
                    await until_it_has_rows(query)
                    await log.admin.alter_wal(target)
                    for stages in (FIRST, SECOND, THIRD):
                        await until(log, stages)
                        await anyio.to_thread.run_sync(broker.kill)
                        hit.append(await stage_on_disk(data))
                        broker = await anyio.to_thread.run_sync(
                            lambda: BrokerProcess(data, listen, **SETTINGS)
                        )
                    await until(log, ("done",))
                    assert query.isActive, query.exception()
                    # The next ones begin with positions that the log of before gave.
                    await anyio.to_thread.run_sync(query.stop)
                    query = started(spark, broker.address, tmp_path)
                    await billing.until_begun_anew()
                appending.stopping = True
                await anyio.to_thread.run_sync(query.processAllAvailable)
                await anyio.to_thread.run_sync(query.stop)
                found: list[tuple[bytes, int]] = []
                async for batch in log.read(NAME, start="all", until="now"):
                    found += [(it.payload, int(it.id)) for it in batch.messages]
                while len(billing.read) < len(found):  # noqa: ASYNC110 - of a program that reads
                    await anyio.sleep(POLL_S)
    finally:
        broker.kill()
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted((bytes(row.value), int(row.message_id)) for row in rows) == sorted(found)
    assert sorted(billing.read) == sorted(found)
    assert appending.landed.items() <= dict(found).items()
    assert len(dict(found)) == len(found), "each number once"
    assert billing.begun == 3
    told = "killed in %s; %d acknowledged, %d in the log, %d rows in Spark"
    counts.info(told, hit, len(appending.landed), len(found), len(rows))
