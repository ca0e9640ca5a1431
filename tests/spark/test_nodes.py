"""A node that dies or hands its channels over in the middle of a task: a retry, no failed query."""

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from broker.client import Client, Message
from broker.core.naming import pchannel_of
from broker.model.ids import VChannelName
from tests.broker_process import BrokerProcess
from tests.roles_processes import GUARD_S, is_alive, node_pids, owners, until
from tests.spark.conftest import run_with_client
from tests.spark.test_source import batch, finish, stream

SHARDS, ROWS, ROW_BYTES = 2, 400, 200_000
"""40 MB of a vchannel: when a task passes its first rows on, the node still has most of them."""
COLUMNS = ["vchannel", "message_id"]
Strike = Callable[[DataFrame], DataFrame]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Two, with full logs."""
    folder = tmp_path_factory.mktemp("nodes")
    with BrokerProcess(folder / "data", nodes="2", pchannels=str(SHARDS)) as broker:

        async def fill(log: Client) -> None:
            await log.collections.create("rows", shards=SHARDS)
            keys = [b"%d" % number for number in range(ROWS)]
            rows = [Message(key.ljust(ROW_BYTES), key=key) for key in keys]
            await log.append_messages("rows", rows, atomic=False, deadline_s=GUARD_S)

        run_with_client(broker.address, fill)
        yield broker


def owner_pids(broker: BrokerProcess) -> dict[str, int]:
    """The process of the owner of each pchannel, once both nodes run."""
    found: dict[str, int] = {}

    async def look(log: Client) -> None:
        async def all_run() -> bool:
            served, pids = await owners(log), await node_pids(log)
            found.clear()
            found.update({name: pids[node] for name, node in served.items() if node in pids})
            return len(found) == SHARDS and sum(map(is_alive, pids.values())) == 2

        await until(all_run)

    run_with_client(broker.address, look)
    return found


def striking(owned_by: Mapping[str, int], number: signal.Signals, struck: Path) -> Strike:
    """Passes rows on, and sends the signal once, to the owner of the first ones, behind them.

    Leaves the pid in the file `struck`.
    """

    def passed_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in batches:
            yield rows.select(COLUMNS)
            if rows.num_rows and not struck.exists():
                pid = owned_by[pchannel_of(VChannelName(rows["vchannel"][0].as_py()))]
                try:
                    with struck.open("x") as file:
                        file.write(str(pid))
                except FileExistsError:
                    continue  # by the other task
                os.kill(pid, number)

    return lambda frame: frame.mapInArrow(passed_on, "vchannel string, message_id long")


def assert_ends(pid: int) -> None:
    """It may still be on its way: one that hands over does so while the query goes on."""

    async def gone() -> bool:
        return not is_alive(pid)

    anyio.run(until, gone)


def assert_each_once(found: list[tuple[str, int]]) -> None:
    assert len(found) == len(set(found)) == ROWS
    assert len({vchannel for vchannel, _ in found}) == SHARDS


def test_a_batch_whose_node_is_killed_reads_each_row_once(
    spark: SparkSession, nodes: BrokerProcess, tmp_path: Path
) -> None:
    struck = tmp_path / "struck"
    strike = striking(owner_pids(nodes), signal.SIGKILL, struck)
    rows = strike(batch(spark, nodes, "rows")).collect()
    assert_ends(int(struck.read_text()))
    assert_each_once([(it.vchannel, it.message_id) for it in rows])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["dies", "hands over"])
def test_a_stream_whose_node_leaves_writes_each_row_once_and_does_not_fail(
    spark: SparkSession,
    nodes: BrokerProcess,
    number: signal.Signals,
    checkpoint: str,
    tmp_path: Path,
) -> None:
    """Rows are staged on that node, too."""
    struck, copy = tmp_path / "struck", f"copy-{number}"
    found: list[tuple[str, int]] = []

    async def create(log: Client) -> None:
        await log.collections.create(copy, shards=SHARDS)

    async def read(log: Client) -> None:
        read = [it async for it in log.read(copy, until="now").messages()]
        found.extend((it.payload.decode(), int(it.key or b"")) for it in read)

    strike = striking(owner_pids(nodes), number, struck)
    run_with_client(nodes.address, create)
    rows: Any = stream(spark, nodes, "rows", startingOffsets="earliest", maxRowsPerTrigger=300)
    query = (
        strike(rows)
        .selectExpr("vchannel as value", "cast(message_id as string) as key")
        .writeStream.format("tidemark")
        .option("server", nodes.address)
        .option("topic", copy)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    finish(query)
    assert query.exception() is None
    assert sum(1 for it in query.recentProgress if it.numInputRows) == 2
    assert_ends(int(struck.read_text()))
    run_with_client(nodes.address, read)
    assert_each_once(found)
