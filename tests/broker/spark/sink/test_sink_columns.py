"""Columns of a DataFrame on their way into the log: what is taken, and how the rest is refused."""

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from broker.spark.refusals import BadColumns, BadRow
from broker.spark.sink.sink_columns import MessageColumns, Messages, RowColumns

PROPERTIES = pa.map_(pa.string(), pa.string())
MESSAGES = pa.schema([("value", pa.binary()), ("key", pa.string())])
WANTED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("small", pa.int8()),
        ("text", pa.large_string()),
        ("at", pa.timestamp("ms")),
        ("many", pa.list_(pa.struct([("a", pa.float64())]))),
        ("named", pa.map_(pa.string(), pa.int32())),
    ]
)


def messages(batch: Any, topic: str = "t") -> list[Messages]:
    return list(MessageColumns(batch.schema, topic).messages(batch))


def test_rows_that_share_everything_are_one_run() -> None:
    batch = pa.record_batch({"value": [b"a", b""], "key": ["k", None]}, schema=MESSAGES)
    assert messages(batch) == [Messages("t", [b"a", b""], ["k", None], {})]
    (run,) = messages(pa.record_batch({"value": ["ä", "b"]}))
    assert run == Messages("t", ["ä".encode(), b"b"], None, {})


def test_rows_go_where_their_columns_say_in_their_order() -> None:
    batch = pa.record_batch(
        {
            "collection": ["x", "x", "y", None, "x"],
            "vchannel": [None, None, None, "v", None],
            "value": [b"1", b"2", b"3", b"4", b"5"],
            "key": [1, 2, 3, None, 5],
        }
    )
    found = messages(batch, topic="")
    assert [(it.target, it.payloads, it.keys) for it in found] == [
        ("x", [b"1", b"2"], [1, 2]), ("y", [b"3"], [3]), ("v", [b"4"], [None]), ("x", [b"5"], [5]),
    ]  # fmt: skip
    (all_of_them,) = messages(batch, topic="t")
    assert all_of_them.target == "t"


def test_properties_divide_runs() -> None:
    properties = pa.array([[("a", "b")], [("a", "b")], None, []], PROPERTIES)
    batch = pa.record_batch({"value": [b""] * 4, "properties": properties})
    assert [(len(it.payloads), it.properties) for it in messages(batch)] == [
        (2, {"a": "b"}), (2, {}),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "topic", "words"),
    [
        ([("key", pa.string())], "t", "column 'value' is missing"),
        ([("value", pa.int32())], "t", "column 'value' is int32, not string or binary"),
        ([("value", pa.binary()), ("key", pa.float64())], "t", "'key' is double, not string, bin"),
        ([("value", pa.binary()), ("properties", pa.string())], "t", "not map<string, string>"),
        ([("value", pa.binary()), ("tick", pa.int64())], "t", "'tick' is none of value, key"),
        ([("value", pa.binary()), ("value", pa.binary())], "t", "'value' is there more than once"),
        ([("value", pa.binary())], "", "set option topic, or add column 'collection'"),
    ],
)
def test_columns_that_no_message_has_are_each_named(
    columns: list[Any], topic: str, words: str
) -> None:
    with pytest.raises(BadColumns) as caught:
        MessageColumns(pa.schema(columns), topic)
    assert str(caught.value).startswith("[TIDEMARK_BAD_COLUMNS] ")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (
            {"value": pa.array([b"x", None]), "collection": ["c", "c"]},
            "column 'value': the value is null",
        ),
        ({"value": [b""], "collection": pa.array([None], pa.string())}, "row 0 has no target"),
        ({"value": [b""], "collection": [""]}, "row 0 has no target"),
        (
            {
                "value": [b""],
                "collection": ["c"],
                "properties": pa.array([[("a", None)]], PROPERTIES),
            },
            "'a' is null",
        ),
        (
            {
                "value": [b""],
                "collection": ["c"],
                "properties": pa.array([[("_t", "")]], PROPERTIES),
            },
            "reserved",
        ),
    ],
)
def test_a_row_that_is_no_message_is_refused(columns: dict[str, Any], words: str) -> None:
    with pytest.raises(BadRow) as caught:
        messages(pa.record_batch(columns), topic="")
    assert words in str(caught.value)


def test_rows_become_those_of_the_collection_whatever_order_and_width_they_have() -> None:
    given = pa.record_batch(
        {
            "named": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
            "many": pa.array([[{"a": 0.5}]], pa.large_list(pa.struct([("a", pa.float32())]))),
            "at": pa.array([1_000_000], pa.timestamp("us")),
            "small": pa.array([7], pa.int64()),
            "id": pa.array([1], pa.int32()),
        }
    )
    rows = RowColumns(given.schema, WANTED, "c", "id").rows(given)
    assert rows.schema.equals(WANTED)
    assert rows.to_pylist() == [
        {
            "id": 1,
            "small": 7,
            "text": None,
            "at": pa.scalar(1000, pa.timestamp("ms")).as_py(),
            "many": [{"a": 0.5}],
            "named": [("a", 1)],
        }
    ]


def test_every_difference_from_the_collection_is_named() -> None:
    given = pa.schema(
        [
            ("small", pa.string()),
            ("text", pa.binary()),
            ("at", pa.timestamp("us", "UTC")),
            ("many", pa.list_(pa.struct([("b", pa.float64())]))),
            ("named", pa.map_(pa.int32(), pa.int32())),
            ("other", pa.int64()),
        ]
    )
    with pytest.raises(BadColumns, match="do not fit 'c'") as caught:
        RowColumns(given, WANTED, "c", "no")
    for words in (
        "column 'id' is missing, and may not be null",
        "column 'small' is string, not int8",
        "column 'text' is binary, not large_string",
        "column 'at' is timestamp[us, tz=UTC], not timestamp[ms]",
        "column 'many' is ",
        "column 'named' is ",
        "column 'other' is not in the collection",
        "option key names 'no'",
    ):
        assert words in str(caught.value)
    with pytest.raises(BadColumns, match="more than once"):
        RowColumns(pa.schema([("id", pa.int64())] * 2), WANTED, "c", None)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"id": pa.array([1, None])}, "column 'id': it has a null"),
        ({"id": [1], "small": [300]}, "column 'small': not every value is int8"),
        ({"id": [1], "at": pa.array([1], pa.timestamp("us"))}, "column 'at': not every value is"),
    ],
)
def test_a_value_that_the_collection_cannot_hold_is_refused(
    values: dict[str, Any], words: str
) -> None:
    batch = pa.record_batch(values)
    with pytest.raises(BadRow) as caught:
        RowColumns(batch.schema, WANTED, "c", None).rows(batch)
    assert words in str(caught.value)


def test_a_time_span_and_a_list_of_fixed_size_take_what_spark_has_for_them() -> None:
    pair = pa.list_(pa.float32(), 2)
    wanted = pa.schema([("took", pa.duration("ms")), ("pair", pair), ("pairs", pa.list_(pair))])
    lists = pa.list_(pa.float32())
    given = {
        "took": pa.array([2000, None], pa.duration("us")),
        "pair": pa.array([[1.0, None], None], lists),
        "pairs": pa.array([[[1.0, 2.0], None], []], pa.list_(lists)),
    }
    batch = pa.record_batch(given)
    rows = RowColumns(batch.schema, wanted, "c", None).rows(batch)
    assert rows.schema.equals(wanted)
    assert rows.to_pydict() == {
        "took": [timedelta(milliseconds=2), None],
        "pair": [[1.0, None], None],
        "pairs": [[[1.0, 2.0], None], []],
    }
    for name, value in (
        ("took", pa.array([1], pa.duration("us"))),
        ("pair", pa.array([[1.0, 2.0, 3.0]], lists)),
    ):
        batch = pa.record_batch({name: value})
        with pytest.raises(BadRow, match=f"column '{name}': not every value is"):
            RowColumns(batch.schema, wanted, "c", None).rows(batch)


def test_a_wider_float_does_not_fit_and_whole_days_do() -> None:
    wanted = pa.schema([("f", pa.float32()), ("d", pa.date64()), ("x", pa.binary(3))])
    with pytest.raises(BadColumns, match="'f' is double, not float"):
        RowColumns(pa.schema([("f", pa.float64())]), wanted, "c", None)
    batch = pa.record_batch({"d": pa.array([1], pa.date32()), "x": [b"abc"], "f": pa.nulls(1)})
    assert RowColumns(batch.schema, wanted, "c", None).rows(batch).column("d").null_count == 0
