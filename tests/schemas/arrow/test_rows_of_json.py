"""Rows of JSON objects: what `json_rows` writes is read back as it was; the rest is refused."""

import json
from typing import Any

import pyarrow as pa
import pytest

from schemas.arrow.ipc import BadArrow
from schemas.arrow.json_rows import rows_as_json
from schemas.arrow.rows import encode_rows
from schemas.arrow.rows_of_json import rows_of_lines
from tests.schemas.some_rows import SCHEMA, rows


@pytest.mark.parametrize("name", SCHEMA.names)
def test_what_is_written_as_json_is_read_back_as_it_was(name: str) -> None:
    batch = rows(2).select([name])
    lines = rows_as_json(encode_rows(batch), 0, batch.num_rows)
    assert rows_of_lines(lines, batch.schema).equals(batch)


def row(value: Any, kind: pa.DataType, nullable: bool = True) -> Any:
    schema = pa.schema([pa.field("c", kind, nullable)])
    return rows_of_lines([json.dumps({"c": value}).encode()], schema).column("c")[0]


@pytest.mark.parametrize(
    ("value", "kind", "same"),
    [
        ("2026-01-02T03:04:05", pa.timestamp("ms"), 1767323045000),
        ("2026-01-02", pa.date32(), 20455),
        ("12:00:01", pa.time32("s"), 43201),
        (1, pa.float64(), 1.0),
        (1.0, pa.int64(), 1),
        (2, pa.decimal128(5, 2), "2.00"),
    ],
)
def test_other_ways_to_write_a_value_are_taken(value: Any, kind: pa.DataType, same: Any) -> None:
    assert row(value, kind) == row(same, kind)


@pytest.mark.parametrize(
    ("line", "kind", "cause"),
    [
        (b'{"c": "1"}', pa.int64(), "column 'c': \"1\" is not int64"),
        (b'{"c": true}', pa.int64(), "column 'c': true is not int64"),
        (b'{"c": 1.5}', pa.int64(), "column 'c': 1.5 is not int64"),
        (b'{"c": 1}', pa.string(), "column 'c': 1 is not string"),
        (b'{"c": null}', pa.int64(), "column 'c' may not be null"),
        (b"{}", pa.int64(), "column 'c' may not be null"),
        (b'{"c": 1, "d": 2}', pa.int64(), "field 'd' is no column; the columns are"),
        (b'{"c": 1', pa.int64(), "this is not JSON"),
        (b"[1]", pa.int64(), "a row is a JSON object"),
        (b'{"c": 1} {"c": 2}', pa.int64(), "this is not JSON"),
        (b'{"c": "%%"}', pa.binary(), "'%%' is not base64"),
        (b'{"c": 5}', pa.binary(), "bytes are base64 text, not 5"),
        (b'{"c": "x"}', pa.decimal128(5, 2), "'x' is not a decimal number"),
        (b'{"c": true}', pa.timestamp("ms"), "is an integer or text, not true"),
        (b'{"c": "noon"}', pa.timestamp("ms"), "column 'c'"),
        (b'{"c": 1}', pa.struct([("a", pa.int64())]), "a struct is a JSON object"),
        (b'{"c": {"b": 1}}', pa.struct([("a", pa.int64())]), "'b'.* are no fields"),
        (b'{"c": {}}', pa.list_(pa.date32()), "a list is a JSON array"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_name(
    line: bytes, kind: pa.DataType, cause: str
) -> None:
    schema = pa.schema([pa.field("c", kind, nullable=False)])
    with pytest.raises(BadArrow, match=cause):
        rows_of_lines([line], schema)


def test_a_line_with_two_objects_shifts_no_other_row() -> None:
    schema = pa.schema([("c", pa.int64())])
    with pytest.raises(BadArrow, match="this is not JSON"):
        rows_of_lines([b'{"c": 1} {"c": 2}', b'{"c": 3}'], schema)
    assert rows_of_lines([b'{"c": 1}', b'{"c": 3}'], schema).num_rows == 2


@pytest.mark.parametrize("line", [b"null", b" null}", b"", b'{"c": 1} null', b"[1]"])
def test_a_line_that_is_no_object_is_refused_wherever_it_stands(line: bytes) -> None:
    """Arrow's own parser ends the process where `null` comes first, and reads it as a row later."""
    schema = pa.schema([("c", pa.int64())])
    for lines in ([line], [b'{"c": 1}', line], [line, b'{"c": 1}']):
        with pytest.raises(BadArrow, match=r"not JSON|a JSON object"):
            rows_of_lines(lines, schema)
