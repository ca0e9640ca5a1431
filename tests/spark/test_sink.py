"""The Spark sink against a real broker: every row once, whatever is tried again."""

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from broker.client import Client, Message, Received
from broker.model.message import MessageType
from schemas.generated.milvus.proto import messages
from schemas.properties.keys import DELIVER_TTL, HEADER
from tests.broker_process import BrokerProcess
from tests.spark.conftest import WithClient, run_with_client
from tests.spark.test_source import Fill, finish, stream, values

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("text", pa.string())])


@pytest.fixture
def read(with_client: WithClient) -> Callable[[str], list[Received]]:
    """All messages of a collection now, by payload."""

    def all_of(name: str) -> list[Received]:
        found: list[Received] = []

        async def use(log: Client) -> None:
            found.extend([it async for it in log.read(name, until="now").messages()])

        with_client(use)
        return sorted(found, key=lambda it: it.payload)

    return all_of


@pytest.fixture
def create(with_client: WithClient) -> Callable[..., None]:
    def make(name: str, **options: Any) -> None:
        async def use(log: Client) -> None:
            await log.collections.create(name, **options)

        with_client(use)

    return make


@pytest.fixture(scope="module")
def strict(broker: BrokerProcess) -> BrokerProcess:
    """With a collection of each kind, for what does not fit them."""

    async def use(log: Client) -> None:
        await log.collections.create("sink_strict")
        await log.collections.create("sink_strict_rows", schema=SCHEMA)

    run_with_client(broker.address, use)
    return broker


def write(frame: DataFrame, broker: BrokerProcess, **options: object) -> None:
    writer = frame.write.format("tidemark").mode("append").option("server", broker.address)
    for option, value in options.items():
        writer = writer.option(option, str(value))
    writer.save()


def start(
    frame: DataFrame,
    broker: BrokerProcess,
    checkpoint: str,
    mode: str = "append",
    **options: object,
) -> StreamingQuery:
    writer = frame.writeStream.format("tidemark").option("server", broker.address)
    for option, value in options.items():
        writer = writer.option(option, str(value))
    writer = writer.option("checkpointLocation", checkpoint).outputMode(mode)
    return writer.trigger(availableNow=True).start()


def dies_once(
    flag: Path, how: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Passes rows on; the first task that comes to its third batch ends in this way."""

    def passed_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if number == 2:
                try:
                    os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    pass
                else:
                    if how == "killed":
                        os._exit(1)
                    raise RuntimeError("scripted")
            yield batch

    return passed_on


def test_rows_of_a_stream_come_out_as_they_went_in(
    spark: SparkSession, broker: BrokerProcess, fill: Fill, create: Any, read: Any, checkpoint: str
) -> None:
    fill("sink_in", values("s", 300))
    create("sink_out", shards=3)
    frame = stream(spark, broker, "sink_in", startingOffsets="earliest", maxRowsPerTrigger=100)
    query = start(frame.select("key", "value", "properties"), broker, checkpoint, topic="sink_out")
    finish(query)
    found = read("sink_out")
    assert [it.payload for it in found] == values("s", 300)
    assert [it.key for it in found] == values("s", 300)
    assert {tuple(it.properties.items()) for it in found} == {(("n", "1"),)}
    assert len({it.vchannel for it in found}) == 3


def test_rows_go_to_the_partition_that_the_option_names(
    spark: SparkSession, broker: BrokerProcess, create: Any, with_client: WithClient
) -> None:
    create("sink_parted", shards=2, schema=SCHEMA)
    made: list[int] = []
    ids: list[int | None] = []

    async def partition(log: Client) -> None:
        made.append((await log.master.create_partition("sink_parted", "late")).id)

    async def use(log: Client) -> None:
        async for batch in log.read_batches("sink_parted", until="now"):
            ids.extend(batch.partition_ids)

    with_client(partition)
    frame = spark.range(0, 200, 1, 2).selectExpr("concat('t', id) as text", "id")
    write(frame, broker, topic="sink_parted", key="id", partition="late")
    with_client(use)
    assert ids == made * 200
    with pytest.raises(PySparkException, match="has no partition 'never'"):
        write(frame, broker, topic="sink_parted", partition="never")


def test_rows_and_messages_get_the_time_to_live_that_the_option_says(
    spark: SparkSession, broker: BrokerProcess, create: Any, with_client: WithClient
) -> None:
    create("sink_ttl_rows", schema=SCHEMA)
    create("sink_ttl_messages")
    rows = spark.range(0, 10, 1, 1).selectExpr("id", "concat('t', id) as text")
    write(rows, broker, topic="sink_ttl_rows", ttl="2h")
    messages = rows.selectExpr("cast(text as binary) as value")
    write(messages, broker, topic="sink_ttl_messages", ttl="2h")
    named = messages.selectExpr("value", "map('n', cast(value as string)) as properties")
    write(named, broker, topic="sink_ttl_messages", ttl="2h")
    found: list[str] = []

    async def use(log: Client) -> None:
        for name in ("sink_ttl_rows", "sink_ttl_messages"):
            async for batch in log.read_batches(name, until="now"):
                found.extend([tags[DELIVER_TTL.key] for tags in batch.tags])

    with_client(use)
    assert list(map(DELIVER_TTL.decode, found)) == [7_200_000] * 30


def test_rows_of_a_collection_come_out_as_rows(
    spark: SparkSession, broker: BrokerProcess, create: Any, with_client: WithClient
) -> None:
    create("sink_rows", shards=2, schema=SCHEMA)
    frame = spark.range(0, 30_000, 1, 3).selectExpr("concat('t', id) as text", "id")
    write(frame, broker, topic="sink_rows", key="id")
    found: list[Any] = []

    async def use(log: Client) -> None:
        async with asyncio.timeout(60):
            found.extend([it async for it in log.read_arrow("sink_rows", until="now")])

    with_client(use)
    rows = pa.Table.from_batches(found).sort_by("id")
    assert rows["id"].to_pylist() == list(range(30_000))
    assert rows["text"].to_pylist() == [f"t{number}" for number in range(30_000)]
    assert len(set(rows["_vchannel"].to_pylist())) == 2


def test_a_collection_that_milvus_announced_takes_rows_and_messages(
    spark: SparkSession,
    broker: BrokerProcess,
    create: Callable[..., None],
    with_client: WithClient,
) -> None:
    create("sink_announced", shards=2)
    create("sink_announced_rows", shards=2, schema=SCHEMA)

    async def announce(log: Client) -> None:
        header = messages.CreateCollectionMessageHeader(collection_id=8000, partition_ids=[8001])
        created = Message(b"", type=MessageType.CREATE_COLLECTION, header=bytes(header))
        for vchannel in (await log.collections.get("sink_announced")).vchannels:
            await log.raw_append(vchannel, created)
        # A collection with a schema is announced when it is created.
        by_master = await log.master.describe_collection("sink_announced_rows")
        partitions["rows"] = by_master.default_partition_id

    partitions: dict[str, int] = {"plain": 8001}
    with_client(announce)
    frame = spark.range(200)
    write(frame.selectExpr("cast(id as string) value"), broker, topic="sink_announced")
    write(frame.selectExpr("id", "'t' text"), broker, topic="sink_announced_rows")
    found: list[Received] = []

    async def read_back(log: Client) -> None:
        for name in ("sink_announced", "sink_announced_rows"):
            inserts = log.read(name, until="now", types=[MessageType.INSERT])
            found.extend([it async for it in inserts.messages()])

    with_client(read_back)
    plain = sorted(int(it.payload) for it in found if not it.payload.startswith(b"{"))
    rows = sorted(json.loads(it.payload)["id"] for it in found if it.payload.startswith(b"{"))
    assert plain == rows == list(range(200))
    for it in found:
        header = messages.InsertMessageHeader.parse(HEADER.need(it.tags))
        expected = partitions["rows" if it.payload.startswith(b"{") else "plain"]
        assert [(part.partition_id, part.rows) for part in header.partitions] == [(expected, 1)]


@pytest.mark.parametrize("how", ["killed", "raises"])
def test_a_task_that_dies_half_way_leaves_nothing_behind(
    spark: SparkSession, broker: BrokerProcess, create: Any, read: Any, tmp_path: Path, how: str
) -> None:
    name = f"sink_{how}"
    create(name, shards=2)
    rows = spark.range(0, 60_000, 1, 2).selectExpr("cast(id as string) value")
    write(rows.mapInArrow(dies_once(tmp_path / "flag", how), "value string"), broker, topic=name)
    assert (tmp_path / "flag").exists()
    assert [int(it.payload) for it in read(name)] == sorted(range(60_000), key=str)


def test_time_spans_and_lists_of_fixed_size_are_taken(
    spark: SparkSession, broker: BrokerProcess, create: Any, with_client: WithClient
) -> None:
    pair = pa.list_(pa.float32(), 2)
    inside = pa.struct([("pair", pair)])
    schema = pa.schema([("took", pa.duration("ms")), ("pair", pair), ("inside", inside)])
    create("sink_fixed", schema=schema)
    frame = spark.sql(
        "select interval '1.5' second took, array(1f, 2f) pair, struct(array(3f, 4f) pair) inside"
        " union all select null, null, null"
    )
    write(frame.coalesce(1), broker, topic="sink_fixed")
    found: list[Any] = []

    async def use(log: Client) -> None:
        async with asyncio.timeout(60):
            found.extend([it async for it in log.read_arrow("sink_fixed", until="now")])

    with_client(use)
    rows = pa.Table.from_batches(found).select(["took", "pair", "inside"])
    assert rows.to_pylist() == [
        {"took": timedelta(seconds=1.5), "pair": [1, 2], "inside": {"pair": [3, 4]}},
        {"took": None, "pair": None, "inside": None},
    ]


def test_a_batch_that_is_written_again_under_its_name_changes_nothing(
    spark: SparkSession, broker: BrokerProcess, create: Any, read: Any
) -> None:
    create("sink_named")
    frame = spark.createDataFrame([(b"a",), (b"b",)], "value binary")
    for number, expected in ((5, 2), (5, 2), (4, 2), (6, 4)):
        write(frame, broker, topic="sink_named", appId="tests", batchId=number)
        assert len(read("sink_named")) == expected
    write(frame, broker, topic="sink_named")
    write(frame, broker, topic="sink_named")
    assert len(read("sink_named")) == 8


def test_a_micro_batch_whose_commit_spark_does_not_remember_is_not_written_twice(
    spark: SparkSession, broker: BrokerProcess, fill: Fill, create: Any, read: Any, checkpoint: str
) -> None:
    """As when the driver dies after the commit and before it has noted that."""
    fill("sink_again_in", values("r", 90))
    create("sink_again", shards=2)

    def run() -> None:
        frame = stream(
            spark, broker, "sink_again_in", startingOffsets="earliest", maxRowsPerTrigger=30
        )
        finish(start(frame.select("key", "value"), broker, checkpoint, topic="sink_again"))

    run()
    commits = sorted((Path(checkpoint) / "commits").glob("[0-9]*"), key=lambda it: int(it.name))
    for path in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
        path.unlink(missing_ok=True)
    run()
    fill("sink_again_in", values("s", 10))
    run()
    assert [it.payload for it in read("sink_again")] == values("r", 90) + values("s", 10)


def test_rows_say_themselves_where_they_go_when_nothing_else_does(
    spark: SparkSession, broker: BrokerProcess, create: Any, read: Any
) -> None:
    for name in ("sink_left", "sink_right"):
        create(name)
    rows = [(f"sink_{'left' if at % 2 else 'right'}", str(at)) for at in range(10)]
    write(spark.createDataFrame(rows, "collection string, value string"), broker)
    assert [it.payload for it in read("sink_left")] == [b"1", b"3", b"5", b"7", b"9"]
    assert [it.payload for it in read("sink_right")] == [b"0", b"2", b"4", b"6", b"8"]


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ("value int", {"topic": "sink_strict"}, "TIDEMARK_BAD_COLUMNS"),
        ("value string, more int", {"topic": "sink_strict"}, "'more' is none of"),
        ("id string", {"topic": "sink_strict_rows"}, "column 'id' is string, not int64"),
        ("value string", {"topic": "sink_nowhere"}, "[TIDEMARK_NO_SUCH_COLLECTION]"),
        ("value string", {"topic": "x", "key": ""}, "TIDEMARK_BAD_OPTION"),
        ("value string", {"tpic": "x"}, "TIDEMARK_BAD_OPTION"),
    ],
)
def test_what_cannot_be_written_is_refused(
    spark: SparkSession, strict: BrokerProcess, columns: str, options: dict[str, str], words: str
) -> None:
    frame = spark.sql("select 1 as one").selectExpr(
        *[f"cast(one as {kind}) {name}" for name, kind in map(str.split, columns.split(","))]
    )
    with pytest.raises(PySparkException) as caught:
        write(frame, strict, **options)
    assert words in str(caught.value)


def test_modes_that_a_log_has_not_are_refused(
    spark: SparkSession, broker: BrokerProcess, fill: Fill, checkpoint: str
) -> None:
    fill("sink_modes", values("m", 3))
    frame = spark.createDataFrame([(b"a",)], "value binary")
    with pytest.raises(PySparkException, match="TIDEMARK_NOT_SUPPORTED"):
        frame.write.format("tidemark").mode("overwrite").option("topic", "sink_modes").save()
    counts = stream(spark, broker, "sink_modes", startingOffsets="earliest").groupBy("key").count()
    values_of = counts.selectExpr("cast(count as string) value")
    query = start(values_of, broker, checkpoint, mode="complete", topic="sink_modes")
    with pytest.raises(PySparkException, match="outputMode complete"):
        finish(query)
