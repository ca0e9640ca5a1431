"""Bodies of Arrow rows: checked whole before they are stored, then read in every way."""

import pyarrow as pa

from schemas.arrow.columns import check_columns, decode_schema, encode_schema
from schemas.arrow.ipc import BadArrow
from schemas.arrow.json_rows import rows_as_json
from schemas.arrow.rows import Bounds, check_rows, decode_rows, encode_rows, select_columns
from tests.fuzz.choice import numbered, read_by_first_byte
from tests.schemas.some_rows import SCHEMA, rows

_BOUNDS = Bounds(rows_max=16_384, unpacked_bytes_max=1 << 20)
_STORED = encode_schema(SCHEMA)
_SMALL = pa.schema([("n", pa.int64()), ("text", pa.string())])
_SMALL_STORED = encode_schema(_SMALL)


def check(data: bytes) -> None:
    """BadArrow, or rows that can be read as JSON, and column by column."""
    read_by_first_byte(data, READERS, (BadArrow,))


def _body(body: bytes) -> None:
    _read(body, _STORED, len(SCHEMA))


def _small_body(body: bytes) -> None:
    _read(body, _SMALL_STORED, len(_SMALL))


def _read(body: bytes, stored: bytes, width: int) -> None:
    checked = check_rows(body, stored, (width,), _BOUNDS)
    found = rows_as_json(body, 0, checked.rows)
    assert len(found) == checked.rows
    # Counted before they were made: a reader of messages must not get more than was counted.
    assert sum(map(len, found)) <= checked.text_bytes + 64 * checked.rows
    decode_rows(select_columns(body, frozenset({"text", "n", "map"})))


def _schema(data: bytes) -> None:
    found = decode_schema(data)
    check_columns(found)
    # Not the schemas: one may say of itself that its numbers are of the other byte order.
    once = encode_schema(found)
    assert encode_schema(decode_schema(once)) == once


READERS = (_body, _small_body, _schema)

_ROWS = pa.RecordBatch.from_pylist([{"n": 1, "text": "one"}, {"n": None, "text": ""}], _SMALL)
_BODIES = tuple(encode_rows(_ROWS, packing) for packing in (None, "lz4", "zstd"))
SEEDS = (
    *numbered((*_BODIES, _SMALL_STORED, _STORED), len(READERS)),
    *(bytes(1) + encode_rows(rows(3), packing) for packing in (None, "lz4", "zstd")),
)
