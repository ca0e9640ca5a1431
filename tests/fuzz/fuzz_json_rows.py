"""Rows that a program gives as lines of JSON."""

import json

import pyarrow as pa

from schemas.arrow.ipc import BadArrow
from schemas.arrow.rows import decode_rows, encode_rows
from schemas.arrow.rows_of_json import rows_of_lines
from tests.fuzz.choice import numbered, read_by_first_byte
from tests.schemas.some_rows import SCHEMA

_PLAIN = pa.schema([("n", pa.int64()), ("text", pa.string()), ("real", pa.float64())])


def check(data: bytes) -> None:
    """BadArrow, or as many rows as there are lines."""
    read_by_first_byte(data, READERS, (BadArrow,))


def _lines(data: bytes, schema: pa.Schema) -> None:
    lines = data.split(b"\n")
    found = rows_of_lines(lines, schema)
    assert found.num_rows == len(lines)
    assert decode_rows(encode_rows(found)).num_rows == len(lines)


def _plain(data: bytes) -> None:
    _lines(data, _PLAIN)


def _all_types(data: bytes) -> None:
    _lines(data, SCHEMA)


READERS = (_plain, _all_types)

_ROW = {
    "truth": True, "small": -5, "large": 2**64 - 1, "real": 0.5, "exact": "12.34", "day": 19000,
    "at": 1700000000123456789, "took": 7, "text": "é", "bytes": "AP8=", "fixed": "YWI=",
    "list": ["2026-01-01T00:00:00", None], "vector": [1.0, 2.0, 3.0], "struct": {"a": 1, "b": None},
    "map": [["k", 1]], "nothing": None,
}  # fmt: skip
SEEDS = (
    *numbered(
        (
            b'{"n": 1, "text": "a", "real": 1.5}\n{"n": 2}',
            b'{"n": 1.0, "real": "nan"}',
            b'{"n": 1}{"n": 2}',
        ),
        len(READERS),
    ),
    *(b"\x01" + json.dumps({name: value}).encode() for name, value in _ROW.items()),
    b"\x01" + json.dumps(_ROW).encode(),
)
