"""Collections with columns in Spark: as they are, chosen, in micro-batches that end at one tick."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from broker.client import Client
from tests.broker_process import BrokerProcess
from tests.spark.conftest import run_with_client
from tests.spark.test_source import batch, finish, stream

EVERY_TYPE: dict[str, tuple[pa.DataType, Any]] = {
    "flag": (pa.bool_(), True),
    "tiny": (pa.int8(), -1),
    "small": (pa.uint8(), 200),
    "whole": (pa.uint32(), 4_000_000_000),
    "huge": (pa.uint64(), 2**64 - 1),
    "single": (pa.float32(), 0.5),
    "real": (pa.float64(), 0.1),
    "price": (pa.decimal128(9, 2), Decimal("12.50")),
    "day": (pa.date64(), date(2026, 11, 22)),
    "local_time": (pa.timestamp("ms"), datetime(2026, 1, 2, 3, 4, 5)),  # noqa: DTZ001
    "moment": (pa.timestamp("ns", "UTC"), datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
    "took": (pa.duration("s"), timedelta(minutes=3)),
    "text": (pa.large_string(), "täglich"),
    "raw": (pa.binary(3), b"abc"),
    "numbers": (pa.list_(pa.int32()), [1, None, 3]),
    "pair": (pa.list_(pa.int16(), 2), [1, 2]),
    "place": (
        pa.struct([("x", pa.uint16()), ("tags", pa.large_list(pa.string()))]),
        {"x": 1, "tags": ["a"]},
    ),
    "weights": (pa.map_(pa.string(), pa.float64()), [("a", 1.5)]),
    "nothing": (pa.null(), None),
}


def make(address: str, name: str, tables: list[pa.Table], shards: int = 2) -> None:
    async def use(log: Client) -> None:
        await log.collections.create(name, shards=shards, schema=tables[0].schema)
        for table in tables:
            await log.append_arrow(name, table)

    run_with_client(address, use)


def test_every_type_comes_through_to_spark_and_null_does_too(
    spark: SparkSession, broker: BrokerProcess
) -> None:
    schema = pa.schema([pa.field(name, kind) for name, (kind, _) in EVERY_TYPE.items()])
    full = {name: value for name, (_, value) in EVERY_TYPE.items()}
    make(broker.address, "types", [pa.Table.from_pylist([full, {}], schema=schema)])
    frame = batch(spark, broker, "types")
    added = ["_vchannel", "_message_id", "_time_tick", "_timestamp"]
    assert frame.columns == [*EVERY_TYPE, *added]
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    empty, row = sorted(frame.collect(), key=lambda it: it["flag"] is not None)
    seen = row.asDict(recursive=True)
    utc = seen["moment"].astimezone() - datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert utc == timedelta(0)
    expected = full | {"weights": {"a": 1.5}, "huge": Decimal(2**64 - 1), "raw": bytearray(b"abc")}
    assert {name: seen[name] for name in full if name != "moment"} == {
        name: value for name, value in expected.items() if name != "moment"
    }
    assert {empty[name] for name in EVERY_TYPE} == {None}
    assert row["_time_tick"] >> 18 == round(row["_timestamp"].timestamp() * 1000)
    chosen = batch(spark, broker, "types", columns="price,flag")
    assert chosen.columns == ["price", "flag", *added]
    assert chosen.where("flag").select("price").collect()[0][0] == Decimal("12.50")


def test_no_micro_batch_parts_what_was_appended_before_from_what_came_after(
    spark: SparkSession, broker: BrokerProcess, checkpoint: str
) -> None:
    """One append after the other, so a tick that is one for all shards never leaves a hole."""
    tables = [pa.table({"n": [n]}) for n in range(60)]
    make(broker.address, "ordered", tables, shards=4)
    held: dict[int, list[int]] = {}

    def keep(frame: DataFrame, number: int) -> None:
        held[number] = sorted(row.n for row in frame.select("n").collect())

    frame = stream(spark, broker, "ordered", startingOffsets="earliest", maxRowsPerTrigger=13)
    query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", checkpoint)
    finish(query.trigger(availableNow=True).start())
    rows = [n for number in sorted(held) for n in held[number]]
    assert rows == list(range(60))
    assert len(held) >= 5
    assert max(map(len, held.values())) <= 13


def test_how_far_a_query_is_stands_at_the_broker_when_it_ends(
    spark: SparkSession, broker: BrokerProcess, checkpoint: str
) -> None:
    make(broker.address, "told", [pa.table({"n": [1, 2, 3]})])
    frame = stream(spark, broker, "told", startingOffsets="earliest", cursor="nightly")
    query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
    started = query.trigger(availableNow=True).start()
    finish(started)
    last = max(row._time_tick for row in batch(spark, broker, "told").collect())

    async def look(log: Client) -> None:
        assert (await log.cursor("nightly").get()).tick >= last
        (barrier,) = [it for it in await log.barriers.list() if it.name == "nightly"]
        assert barrier.tick >= last

    run_with_client(broker.address, look)
