"""Real Spark over rows of an announced collection, whose definitions change in the middle."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from broker.client import Client
from tests.broker_process import BrokerProcess
from tests.spark.conftest import WithClient
from tests.spark.test_source import finish, plain, run_available, stream

SCHEMA = pa.schema([("n", pa.int64())])
LIMIT = 12


async def fill(log: Client, name: str, numbers: Sequence[int]) -> None:
    """Appends of four rows, with a partition that comes and goes after each."""
    for at in range(0, len(numbers), 4):
        await log.append_arrow(name, pa.table({"n": numbers[at : at + 4]}, schema=SCHEMA))
        await log.master.create_partition(name, f"p{numbers[at]}")
        if at % 8:
            await log.master.drop_partition(name, f"p{numbers[at]}")


def behind(progress: dict[str, Any]) -> int:
    latest = progress["sources"][0]["latestOffset"]
    found = latest if isinstance(latest, dict) else json.loads(latest)
    rows: int = found["behind"]["rows"]
    return rows


def test_limits_and_lags_count_rows_whatever_is_announced_between_them(
    spark: SparkSession,
    broker: BrokerProcess,
    with_client: WithClient,
    checkpoint: str,
    tmp_path: Path,
) -> None:
    async def make(log: Client) -> None:
        await log.collections.create("announced", shards=3, schema=SCHEMA)
        await fill(log, "announced", range(120))

    with_client(make)
    frame = stream(
        spark,
        broker,
        "announced",
        startingOffsets="earliest",
        maxRowsPerTrigger=LIMIT,
        cursor="announced",
    ).select("n")
    batches = run_available(frame, checkpoint, tmp_path / "out")
    assert [it["numInputRows"] for it in batches] == [LIMIT] * 10
    assert [behind(it) for it in batches] == list(range(108, -1, -LIMIT))

    async def look(log: Client) -> None:
        await fill(log, "announced", range(120, 130))
        view = await log.cursor("announced").get()
        assert sum(it.rows for it in view.lags.values()) == 10

    with_client(look)
    batches = run_available(frame, checkpoint, tmp_path / "out")
    assert [it["numInputRows"] for it in batches] == [10]

    async def change(log: Client) -> None:
        await log.master.create_partition("announced", "last")

    with_client(change)
    assert run_available(frame, checkpoint, tmp_path / "out") == []
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(row.n for row in found) == list(range(130))


def test_what_a_dropped_collection_leaves_unread_is_counted_in_rows(
    spark: SparkSession,
    broker: BrokerProcess,
    with_client: WithClient,
    checkpoint: str,
    tmp_path: Path,
) -> None:
    names = ("losing_1", "losing_2")

    async def make(log: Client) -> None:
        for name in names:
            await log.collections.create(name, shards=2, schema=SCHEMA)
            await fill(log, name, range(8))

    with_client(make)
    reader = spark.readStream.format("tidemark").option("server", broker.address)
    given = {"subscribePattern": "losing_.", "startingOffsets": "earliest"}
    frame = reader.options(**given).load().select("n")
    (first,) = run_available(frame, checkpoint, tmp_path / "out")
    assert first["numInputRows"] == 16

    async def lose(log: Client) -> None:
        await fill(log, names[1], range(8, 15))
        await log.collections.drop(names[1])

    with_client(lose)
    query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
    with pytest.raises(PySparkException) as lost:
        finish(query.trigger(availableNow=True).start())
    counts = re.findall(r"of a dropped collection has (\d+) unread rows", str(lost.value))
    assert sum(map(int, counts)) == 7


def test_a_query_that_writes_to_an_announced_collection_goes_on_when_partitions_change(
    spark: SparkSession,
    broker: BrokerProcess,
    with_client: WithClient,
    checkpoint: str,
) -> None:
    async def make(log: Client) -> None:
        for name in ("copied", "copies"):
            await log.collections.create(name, shards=2, schema=SCHEMA)
        await fill(log, "copied", range(40))

    with_client(make)
    source = stream(spark, broker, "copied", startingOffsets="earliest", maxRowsPerTrigger=4)
    sink = (
        source.select("n")
        .writeStream.format("tidemark")
        .option("server", broker.address)
        .option("topic", "copies")
        .option("checkpointLocation", checkpoint)
    )
    query = sink.trigger(availableNow=True).start()

    async def change(log: Client) -> None:
        at = 0
        while query.isActive:
            await log.master.create_partition("copies", f"p{at}")
            await log.master.drop_partition("copies", f"p{at}")
            at += 1

    with_client(change)
    finish(query)
    assert sum(plain(it)["numInputRows"] for it in query.recentProgress) == 40

    async def check(log: Client) -> None:
        found = [batch async for batch in log.read_arrow("copies", until="now")]
        assert sorted(n for it in found for n in it.column("n").to_pylist()) == list(range(40))
        copies = await log.collections.get("copies")
        assert copies.id in (await log.master.show_collections()).values()

    with_client(check)
