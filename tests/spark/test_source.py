"""The Spark source against a real broker: every row once, in range, with the types promised."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from broker.client import Client
from tests.broker_process import BrokerProcess, free_port
from tests.spark.conftest import WithClient, append

Fill = Callable[[str, Sequence[bytes]], None]
WAIT_S_MAX = 300


def values(prefix: str, count: int) -> list[bytes]:
    return [f"{prefix}-{number:05d}".encode() for number in range(count)]


def batch(spark: SparkSession, broker: BrokerProcess, name: str, **options: object) -> DataFrame:
    reader = spark.read.format("tidemark").option("server", broker.address)
    for option, value in options.items():
        reader = reader.option(option, str(value))
    return reader.option("subscribe", name).load()


def stream(spark: SparkSession, broker: BrokerProcess, name: str, **options: object) -> DataFrame:
    reader = spark.readStream.format("tidemark").option("server", broker.address)
    for option, value in options.items():
        reader = reader.option(option, str(value))
    return reader.option("subscribe", name).load()


def run_available(frame: DataFrame, checkpoint: str, sink: Path) -> list[dict[str, Any]]:
    """Run to the end of what is there; the progress of the batches that had rows."""
    query = (
        frame.writeStream.format("parquet")
        .option("path", str(sink))
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    finish(query)
    return [one for one in map(plain, query.recentProgress) if one["numInputRows"]]


def plain(progress: Any) -> dict[str, Any]:
    return json.loads(progress.json) if hasattr(progress, "json") else dict(progress)


def finish(query: StreamingQuery) -> None:
    try:
        assert query.awaitTermination(WAIT_S_MAX), "the query did not finish"
    finally:
        query.stop()


def read_values(spark: SparkSession, sink: Path) -> list[bytes]:
    return sorted(
        bytes(row.value) for row in spark.read.parquet(str(sink)).select("value").collect()
    )


def test_the_format_is_found_by_name_and_has_the_promised_columns(
    spark: SparkSession, broker: BrokerProcess, fill: Fill
) -> None:
    fill("columns", values("c", 10))
    frame = batch(spark, broker, "columns")
    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("collection", "string"),
        ("vchannel", "string"),
        ("message_id", "bigint"),
        ("time_tick", "bigint"),
        ("timestamp", "timestamp"),
        ("properties", "map<string,string>"),
    ]
    rows = frame.orderBy("value").collect()
    assert [bytes(row.value) for row in rows] == values("c", 10)
    assert all(bytes(row.key) == bytes(row.value) for row in rows)
    assert {row.collection for row in rows} == {"columns"}
    assert {row.properties["n"] for row in rows} == {"1"}
    assert all(row.time_tick >> 18 == int(row.timestamp.timestamp() * 1000) for row in rows)
    assert "properties" not in batch(spark, broker, "columns", includeProperties="false").columns


def test_a_stream_limited_to_few_rows_reads_every_row_once_in_several_batches(
    spark: SparkSession, broker: BrokerProcess, fill: Fill, checkpoint: str, tmp_path: Path
) -> None:
    fill("limited", values("l", 1000))
    frame = stream(spark, broker, "limited", startingOffsets="earliest", maxRowsPerTrigger=300)
    batches = run_available(frame, checkpoint, tmp_path / "out")
    assert read_values(spark, tmp_path / "out") == values("l", 1000)
    assert len(batches) >= 3
    assert max(one["numInputRows"] for one in batches) <= 300


def test_a_byte_limit_splits_a_stream_too(
    spark: SparkSession, broker: BrokerProcess, fill: Fill, checkpoint: str, tmp_path: Path
) -> None:
    for part in range(8):
        fill("bytes", [f"{part}-{n:03d}".encode() + b"." * 4000 for n in range(50)])
    frame = stream(spark, broker, "bytes", startingOffsets="earliest", maxBytesPerTrigger=400_000)
    batches = run_available(frame, checkpoint, tmp_path / "out")
    assert len(read_values(spark, tmp_path / "out")) == 400
    assert len(batches) >= 3


def test_a_second_run_goes_on_where_the_first_one_ended(
    spark: SparkSession, broker: BrokerProcess, fill: Fill, checkpoint: str, tmp_path: Path
) -> None:
    fill("resumed", values("r", 100))
    frame = stream(spark, broker, "resumed", startingOffsets="earliest")
    run_available(frame, checkpoint, tmp_path / "out")
    fill("resumed", values("s", 50))
    run_available(frame, checkpoint, tmp_path / "out")
    assert run_available(frame, checkpoint, tmp_path / "out") == []
    assert read_values(spark, tmp_path / "out") == values("r", 100) + values("s", 50)


def test_a_stream_starts_where_a_consumer_group_stands(
    spark: SparkSession,
    broker: BrokerProcess,
    fill: Fill,
    with_client: WithClient,
    checkpoint: str,
    tmp_path: Path,
) -> None:
    fill("shared", values("done", 40))

    async def acknowledge(log: Client) -> None:
        left = 40
        async with log.group("workers").join("shared") as member:
            while left:
                batch = await member.__anext__()
                await batch.ack()
                left -= len(batch)

    with_client(acknowledge)
    fill("shared", values("open", 30))
    frame = stream(spark, broker, "shared", startingGroup="workers")
    run_available(frame, checkpoint, tmp_path / "out")
    assert read_values(spark, tmp_path / "out") == values("open", 30)


def test_a_start_at_latest_is_pinned_before_the_first_rows(
    spark: SparkSession, broker: BrokerProcess, fill: Fill, checkpoint: str, tmp_path: Path
) -> None:
    """Spark asks for the start twice and keeps neither answer; rows between would be lost."""
    fill("latest", values("old", 20))
    frame = stream(spark, broker, "latest", startingOffsets="latest")
    run_available(frame, checkpoint, tmp_path / "out")
    fill("latest", values("new", 20))
    run_available(frame, checkpoint, tmp_path / "out")
    assert read_values(spark, tmp_path / "out") == values("new", 20)


def test_an_idle_query_makes_no_batches_and_does_not_spin(
    spark: SparkSession, broker: BrokerProcess, fill: Fill, checkpoint: str, tmp_path: Path
) -> None:
    """Offsets in an unstable key order would look new for ever."""
    fill("idle", values("i", 30))
    frame = stream(spark, broker, "idle", startingOffsets="earliest")
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime="0 seconds")
        .start()
    )
    try:
        query.processAllAvailable()
        query.processAllAvailable()
        assert query.exception() is None
        batches = {plain(one)["batchId"] for one in query.recentProgress}
        assert len(batches) <= 3
    finally:
        query.stop()


def test_a_query_that_vanishes_leaves_no_scanner_in_the_broker(
    spark: SparkSession,
    broker: BrokerProcess,
    fill: Fill,
    with_client: WithClient,
    checkpoint: str,
    tmp_path: Path,
) -> None:
    """Spark ends the source runner with SIGTERM, and seldom calls stop()."""
    fill("vanish", values("v", 30))
    frame = stream(spark, broker, "vanish", startingOffsets="earliest")
    run_available(frame, checkpoint, tmp_path / "out")

    async def until_no_scanner_is_left(log: Client) -> None:
        with anyio.fail_after(WAIT_S_MAX):
            while any("/scanner-" in actor.path for actor in await log.admin.actors()):
                pass

    with_client(until_no_scanner_is_left)


def test_a_query_outlives_its_broker(spark: SparkSession, tmp_path: Path) -> None:
    """Spark ends a query at the first exception of a planning call; ours wait for the broker."""
    address = f"127.0.0.1:{free_port()}"
    process = BrokerProcess(tmp_path / "data", address)
    try:
        append(address, "outlive", values("a", 50))
        query = (
            stream(spark, process, "outlive", startingOffsets="earliest")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="100 milliseconds")
            .start()
        )
        try:
            query.processAllAvailable()
            process.kill()
            process = BrokerProcess(tmp_path / "data", address)
            append(address, "outlive", values("b", 50))
            query.processAllAvailable()
            assert query.exception() is None
        finally:
            query.stop()
    finally:
        process.kill()
    assert read_values(spark, tmp_path / "out") == values("a", 50) + values("b", 50)


def test_a_range_of_ticks_gives_exactly_that_range_on_every_shard(
    spark: SparkSession, broker: BrokerProcess, fill: Fill
) -> None:
    fill("range", values("x", 200))
    ticks = sorted(row.time_tick for row in batch(spark, broker, "range").collect())
    first, last = ticks[3], ticks[-3]
    cut = batch(spark, broker, "range", startingTick=first, endingTick=last)
    assert sorted(row.time_tick for row in cut.collect()) == ticks[3:-2]
    begin, end = first >> 18, (last >> 18) + 1
    times = batch(spark, broker, "range", startingTimestamp=begin, endingTimestamp=end)
    expected = [tick for tick in ticks if begin <= tick >> 18 < end]
    assert sorted(row.time_tick for row in times.collect()) == expected


def test_where_there_is_nothing_a_batch_has_no_rows(
    spark: SparkSession, broker: BrokerProcess, fill: Fill
) -> None:
    fill("nothing", [])
    assert batch(spark, broker, "nothing").collect() == []
    assert batch(spark, broker, "nothing", endingTimestamp=0).collect() == []


def test_a_vchannel_can_be_read_by_its_own_name(
    spark: SparkSession, broker: BrokerProcess, fill: Fill
) -> None:
    fill("byname", values("b", 40))
    rows = batch(spark, broker, "byname").collect()
    vchannel = rows[0].vchannel
    own = batch(spark, broker, vchannel).collect()
    assert {row.collection for row in own} == {None}
    assert len(own) == sum(1 for row in rows if row.vchannel == vchannel)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"startingOffsets": "soon"}, "TIDEMARK_BAD_OPTION"),
        ({"topic": "x"}, "TIDEMARK_BAD_OPTION"),
        ({"maxRowsPerTrigger": "0"}, "TIDEMARK_BAD_OPTION"),
    ],
)
def test_a_bad_option_is_named_by_a_batch_and_by_a_stream(
    spark: SparkSession, broker: BrokerProcess, options: dict[str, str], told: str
) -> None:
    with pytest.raises(Exception, match=told):
        stream(spark, broker, "columns", **options)
    with pytest.raises(Exception, match=told):
        batch(spark, broker, "columns", **options).collect()


def test_a_collection_that_does_not_exist_is_named(
    spark: SparkSession, broker: BrokerProcess
) -> None:
    with pytest.raises(Exception, match=r"(?s)\[TIDEMARK_NO_SUCH_COLLECTION\].*no_such_collection"):
        batch(spark, broker, "no_such_collection").collect()


def test_the_module_spark_looks_for_imports_nothing_but_pyspark() -> None:
    """One failing `pyspark_*` module would break the lookup of every Python source."""
    code = (
        "import sys, pyspark_tidemark\n"
        "print([n for n in sys.modules if n.split('.')[0] in ('broker', 'schemas', 'grpclib')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=True
    )
    assert done.stdout.strip() == "[]"
