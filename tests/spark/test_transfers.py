"""The sum over all channels is the same after every micro-batch, while the broker is killed."""

import threading
from pathlib import Path

import anyio
import anyio.from_thread
from pyspark.sql import DataFrame, SparkSession

from broker.client import connect
from tests.broker_process import BrokerProcess, free_port
from tests.transfer_load import NAMES, Transfers, delta

WORKERS = 4
BATCHES = 12
WAIT_S = 90.0


async def transfer(listen: str, enough: threading.Event) -> None:
    async with connect(listen) as log, anyio.create_task_group() as tasks:
        transfers = Transfers(log, "test")
        for worker in range(WORKERS):
            tasks.start_soon(transfers.work, worker)
        while not enough.is_set():  # noqa: ASYNC110 - a thread tells
            await anyio.sleep(0.05)
        tasks.cancel_scope.cancel()


def test_every_micro_batch_has_whole_transfers_over_a_kill_of_the_broker(
    spark: SparkSession, tmp_path: Path
) -> None:
    listen = f"127.0.0.1:{free_port()}"
    sums: dict[int, tuple[int, int]] = {}
    seen, enough = threading.Condition(), threading.Event()

    def judge(rows: DataFrame, number: int) -> None:
        found = rows.select("vchannel", "value").collect()
        changes = [delta(bytes(row["value"]), row["vchannel"]) for row in found]
        with seen:
            sums[number] = (len(changes), sum(changes))
            seen.notify()

    def wait_for(batches: int) -> None:
        with seen:
            assert seen.wait_for(lambda: len(sums) >= batches, WAIT_S), sums

    with (
        BrokerProcess(tmp_path / "data", listen, pchannels="8") as process,
        anyio.from_thread.start_blocking_portal() as portal,
    ):
        working = portal.start_task_soon(transfer, listen, enough)
        query = (
            spark.readStream.format("tidemark")
            .option("server", listen)
            .option("subscribe", ",".join(NAMES))
            .option("startingOffsets", "earliest")
            .option("maxRowsPerTrigger", 40)
            .load()
            .writeStream.foreachBatch(judge)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        try:
            wait_for(BATCHES // 2)
            process.kill()
            with BrokerProcess(tmp_path / "data", listen, pchannels="8"):
                wait_for(BATCHES)
                enough.set()
                working.result(WAIT_S)
                query.stop()
        finally:
            enough.set()
            query.stop()
    assert {total for _, total in sums.values()} == {0}, sums
    assert sum(rows for rows, _ in sums.values()) > BATCHES
