"""Each type of Arrow that a collection may have, as Spark sees it; what it cannot see is named."""

import pickle
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T  # noqa: N812 - its name in every program
from pyspark.sql.pandas.types import to_arrow_schema

from broker.spark.refusals import BadColumns, BadOption
from broker.spark.source.columns import RowShape, cast, declared, spark_type

TYPES: list[tuple[pa.DataType, str, Any, Any]] = [
    (pa.bool_(), "boolean", True, True),
    (pa.int8(), "tinyint", -1, -1),
    (pa.int16(), "smallint", -1, -1),
    (pa.int32(), "int", -1, -1),
    (pa.int64(), "bigint", -1, -1),
    (pa.uint8(), "smallint", 255, 255),
    (pa.uint16(), "int", 65_535, 65_535),
    (pa.uint32(), "bigint", 4_294_967_295, 4_294_967_295),
    (pa.uint64(), "decimal(20,0)", 2**64 - 1, Decimal(2**64 - 1)),
    (pa.float32(), "float", 0.5, 0.5),
    (pa.float64(), "double", 0.1, 0.1),
    (pa.decimal128(10, 2), "decimal(10,2)", Decimal("1.50"), Decimal("1.50")),
    (pa.decimal256(38, 0), "decimal(38,0)", Decimal(7), Decimal(7)),
    (pa.date32(), "date", date(2026, 11, 22), date(2026, 11, 22)),
    (pa.date64(), "date", date(2026, 11, 22), date(2026, 11, 22)),
    (pa.timestamp("s"), "timestamp_ntz", datetime(2026, 1, 2), datetime(2026, 1, 2)),  # noqa: DTZ001
    (pa.timestamp("ms", "UTC"), "timestamp", datetime(2026, 1, 2, tzinfo=UTC), None),
    (pa.timestamp("ns", "Europe/Berlin"), "timestamp", datetime(2026, 1, 2, tzinfo=UTC), None),
    (pa.duration("ms"), "interval day to second", timedelta(days=1), timedelta(days=1)),
    (pa.string(), "string", "tide", "tide"),
    (pa.large_string(), "string", "tide", "tide"),
    (pa.binary(), "binary", b"tide", b"tide"),
    (pa.large_binary(), "binary", b"tide", b"tide"),
    (pa.binary(4), "binary", b"tide", b"tide"),
    (pa.list_(pa.uint8()), "array<smallint>", [1, None], [1, None]),
    (pa.large_list(pa.large_string()), "array<string>", ["a"], ["a"]),
    (pa.list_(pa.int32(), 2), "array<int>", [1, 2], [1, 2]),
    (
        pa.struct([pa.field("a", pa.uint16(), nullable=False), ("b", pa.list_(pa.date64()))]),
        "struct<a:int,b:array<date>>",
        {"a": 1, "b": [date(2026, 1, 2)]},
        {"a": 1, "b": [date(2026, 1, 2)]},
    ),
    (pa.map_(pa.large_string(), pa.int8()), "map<string,tinyint>", [("k", 1)], [("k", 1)]),
    (pa.null(), "void", None, None),
]


@pytest.mark.parametrize(
    ("arrow", "spark", "value", "seen"), TYPES, ids=[str(it[0]) for it in TYPES]
)
def test_a_value_goes_into_sparks_type_unchanged(
    arrow: pa.DataType, spark: str, value: Any, seen: Any
) -> None:
    field = pa.field("x", arrow)
    kind = spark_type(field)
    assert kind.simpleString() == spark
    (wanted,) = to_arrow_schema(T.StructType([T.StructField("x", kind)]), timezone="UTC")
    array = cast(pa.array([value, None], arrow), wanted)
    assert array.type.equals(wanted.type, check_metadata=True)
    assert array.to_pylist() == [value if seen is None else seen, None]


def test_of_nanoseconds_the_whole_microseconds_are_kept() -> None:
    array = cast(pa.array([1_999], pa.timestamp("ns")), pa.field("x", pa.timestamp("us")))
    assert array.cast(pa.int64()).to_pylist() == [1]


@pytest.mark.parametrize(
    "arrow",
    [
        pa.decimal256(50, 2), pa.decimal128(5, -2), pa.decimal128(3, 5), pa.time32("s"),
        pa.time64("ns"), pa.list_(pa.time64("us")), pa.struct([("a", pa.decimal256(40, 0))]),
    ],
    ids=str,
)  # fmt: skip
def test_a_type_that_spark_has_not_is_named_with_its_column(arrow: pa.DataType) -> None:
    with pytest.raises(BadColumns, match=r"\[TIDEMARK_BAD_COLUMNS\].*no type.*`columns`"):
        declared(pa.schema([("a", pa.int8()), ("odd", arrow)]), None)
    assert declared(pa.schema([("a", pa.int8()), ("odd", arrow)]), ["a"]).names[0] == "a"


def test_a_value_that_sparks_type_cannot_hold_is_refused_with_its_column() -> None:
    too_late = pa.array([2**62], pa.timestamp("s"))
    with pytest.raises(BadColumns, match="'x'"):
        cast(too_late, pa.field("x", pa.timestamp("us")))


COLUMNS = pa.schema([("k", pa.int64()), ("t", pa.string()), ("x", pa.uint8())])


def test_columns_are_chosen_in_any_order_and_the_added_ones_stay() -> None:
    assert declared(COLUMNS, ["x", "k"]).simpleString() == (
        "struct<x:smallint,k:bigint,_vchannel:string,_message_id:bigint,_time_tick:bigint,"
        "_timestamp:timestamp>"
    )
    with pytest.raises(BadOption, match=r"\['y'\]; use some of \['k', 't', 'x'\]"):
        declared(COLUMNS, ["x", "y"])


def test_rows_get_the_declared_columns_in_their_order_and_a_time() -> None:
    wanted = T.StructType(
        [
            T.StructField("_timestamp", T.TimestampType()),
            T.StructField("x", T.ShortType()),
            T.StructField("_vchannel", T.StringType()),
        ]
    )
    shape = pickle.loads(pickle.dumps(RowShape(COLUMNS, wanted)))
    rows = pa.record_batch(
        {
            "x": pa.array([1, 2], pa.uint8()),
            "_vchannel": ["v", "v"],
            "_message_id": pa.array([5, 6]),
            "_time_tick": pa.array([1_000 << 18, (1_000 << 18) + 1]),
        }
    )
    shaped = shape.shaped(rows)
    assert shaped.schema.equals(to_arrow_schema(wanted, timezone="UTC"), check_metadata=True)
    second = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert shaped.to_pylist() == [
        {"_timestamp": second, "x": 1, "_vchannel": "v"},
        {"_timestamp": second, "x": 2, "_vchannel": "v"},
    ]
    ticks, ids = shape.places(rows)
    assert (len(ticks), ticks[0], ids[-1]) == (2, 1_000 << 18, 6)


@pytest.mark.parametrize(
    ("field", "told"),
    [
        (T.StructField("k", T.IntegerType()), "'k' is bigint, the query has int"),
        (T.StructField("k", T.LongType(), nullable=False), "the query has bigint not null"),
        (T.StructField("y", T.IntegerType()), "no column 'y'"),
        (T.StructField("_time_tick", T.IntegerType()), "'_time_tick' is bigint"),
    ],
)
def test_a_query_that_declares_other_columns_is_refused(field: T.StructField, told: str) -> None:
    with pytest.raises(BadColumns, match=told):
        RowShape(COLUMNS, T.StructType([field]))
