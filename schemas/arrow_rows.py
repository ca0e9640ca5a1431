"""Arrow rows in and out of a body: checked whole, cut to some columns, row by row as JSON.

A body is one IPC stream without its end: the schema's message, then one record batch. So what is
in a log can be read without asking anybody what it is. Never keeps a body.
Next: schemas/arrow_json.py
"""

import json
from collections.abc import Sequence
from functools import lru_cache
from struct import unpack_from
from typing import Any, Final, NamedTuple

from schemas.arrow_columns import (
    Misfit,
    Schema,
    arrow,
    decode_schema,
    encode_schema,
    fitting_width,
    flat,
)
from schemas.arrow_ipc import BadArrow, outline

TEXT_BYTES_MAX: Final = 64 * 1024 * 1024
"""What the rows of one batch may come to when somebody reads them as JSON."""
VALUE_TEXT_BYTES: Final = 16
"""Counted for each value beside its name and its bytes."""
_END_BYTES: Final = 8

Rows = Any
"""A `pyarrow.RecordBatch`."""


class Checked(NamedTuple):
    """Rows that may be stored."""

    version: int
    """Of the collection's schema, from 1 on."""
    rows: int
    unpacked_bytes: int
    text_bytes: int
    """About what the rows take as JSON, all together."""


class Bounds(NamedTuple):
    """What one batch may hold."""

    rows_max: int
    unpacked_bytes_max: int


def check_rows(body: bytes, schema: bytes, widths: Sequence[int], bounds: Bounds) -> Checked:
    """Look at everything in a body once, so that nobody has to again. Raises BadArrow.

    The library is asked for nothing before the numbers are within bounds, and then every offset,
    length and text is checked. `schema` and `widths`: what the rows have to fit, else Misfit.
    """
    seen = outline(body)
    if not 0 < seen.rows <= bounds.rows_max:
        raise BadArrow(f"a batch of {seen.rows} rows; 1 to {bounds.rows_max} may be in one")
    if seen.unpacked_bytes > bounds.unpacked_bytes_max:
        raise BadArrow(
            f"rows of {seen.unpacked_bytes} bytes unpacked are over the limit of"
            f" {bounds.unpacked_bytes_max}; split the batch"
        )
    version, names = _fit(schema, tuple(widths), seen.schema)
    if len(names) != len(seen.lengths):
        raise BadArrow(f"{len(seen.lengths)} arrays for {len(names)} fields of the schema")
    text_bytes = 2 * seen.unpacked_bytes + sum(
        [length * name for length, name in zip(seen.lengths, names, strict=True)]
    )
    if text_bytes > TEXT_BYTES_MAX:
        raise BadArrow(
            f"{sum(seen.lengths)} values, about {text_bytes} bytes as JSON, over the limit of"
            f" {TEXT_BYTES_MAX}; split the batch"
        )
    _check_values(body, len(seen.schema), seen.schema, decode_schema(schema))
    return Checked(version, seen.rows, seen.unpacked_bytes, text_bytes)


@lru_cache(maxsize=256)
def _fit(schema: bytes, widths: tuple[int, ...], given: bytes) -> tuple[int, tuple[int, ...]]:
    """The version, and what each value costs as text for its name."""
    found = decode_schema(given)
    version = fitting_width(decode_schema(schema), widths, found)
    names = [json.dumps(field.name, ensure_ascii=False).encode() for field in flat(found)]
    costs = [VALUE_TEXT_BYTES + len(name) for name in names]
    return version, tuple(costs)


def _check_values(body: bytes, batch_from: int, given: bytes, schema: Schema) -> None:
    pa = arrow()
    try:
        rows = pa.ipc.read_record_batch(pa.py_buffer(body).slice(batch_from), decode_schema(given))
        rows.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadArrow(f"the rows are damaged: {error}") from None
    for at, column in enumerate(rows.columns):
        if column.null_count and not schema.field(at).nullable:
            raise Misfit(
                f"column {schema.field(at).name!r} may not be null, {column.null_count} of"
                f" {len(column)} values are"
            )


def encode_rows(rows: Rows, compression: str | None = None) -> bytes:
    """The body for these rows, its buffers packed with "lz4" or "zstd". Raises BadArrow."""
    pa = arrow()
    try:
        if compression is None:
            return b"".join((_message(rows.schema), rows.serialize()))
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression=compression)
        with pa.ipc.new_stream(sink, rows.schema.remove_metadata(), options=options) as stream:
            stream.write_batch(rows.replace_schema_metadata(None))
        return bytes(memoryview(sink.getvalue())[:-_END_BYTES])
    except (pa.ArrowException, ValueError) as error:
        raise BadArrow(f"rows that cannot be sent: {error}") from None


@lru_cache(maxsize=256)
def _message(schema: Schema) -> bytes:
    return encode_schema(schema)


def decode_rows(body: bytes, names: Sequence[str] | None = None) -> Rows:
    """The rows of a body that was checked; with `names` those of its columns, in its order.

    Other columns are not looked at, nor unpacked. Raises BadArrow on what is damaged since.
    """
    pa = arrow()
    try:
        batch_from = _schema_bytes(body)
        schema = decode_schema(body[:batch_from])
        buffer = pa.py_buffer(body)
        if names is None:
            return pa.ipc.read_record_batch(buffer.slice(batch_from), schema)
        found = [at for at, name in enumerate(schema.names) if name in names]
        if not found:
            return pa.ipc.read_record_batch(buffer.slice(batch_from), schema).select([])
        options = pa.ipc.IpcReadOptions(included_fields=found)
        return pa.ipc.open_stream(buffer, options=options).read_next_batch()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadArrow(f"rows that cannot be read: {error}") from None


def select_columns(body: bytes, names: frozenset[str]) -> bytes:
    """A body with those of its columns that are named, packed as before. Raises BadArrow."""
    batch_from = _schema_bytes(body)
    if names.issuperset(decode_schema(body[:batch_from]).names):
        return body
    return encode_rows(decode_rows(body, tuple(names)), packing(body))


def packing(body: bytes) -> str | None:
    """How the buffers of a body that was checked are packed."""
    return outline(body).packing


def _schema_bytes(body: bytes) -> int:
    """Where the record batch begins."""
    if len(body) < _END_BYTES:
        raise BadArrow(f"{len(body)} bytes are no Arrow rows")
    length = unpack_from("<i", body, 4)[0]
    if not 0 < length <= len(body):
        raise BadArrow(f"a schema of {length} bytes in {len(body)}")
    return _END_BYTES + int(length)
