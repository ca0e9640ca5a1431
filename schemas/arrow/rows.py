"""Bodies of Arrow rows: encode, decode, validate completely, select columns.

A body is one IPC stream without its end marker: the schema message, then one record batch. So a
stored body can be read without looking up its schema.
"""

import json
from collections.abc import Sequence
from functools import lru_cache
from operator import mul
from struct import unpack_from
from typing import Any, Final, NamedTuple

from schemas.arrow.columns import (
    Misfit,
    Schema,
    arrow,
    decode_schema,
    encode_schema,
    fitting_width,
    flat,
)
from schemas.arrow.ipc import BadArrow, outline

TEXT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Limit of the rows of one batch as JSON text."""
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
    """Validate a body completely, so that later readers can trust it. Raises BadArrow.

    The Arrow library is called only after the declared sizes were checked; then every offset,
    length and text is validated. Rows must match `schema` and `widths`, otherwise Misfit.
    """
    seen = outline(body)
    if not 0 < seen.rows <= bounds.rows_max:
        raise BadArrow(f"the batch has {seen.rows} rows; 1 to {bounds.rows_max} are allowed")
    if seen.unpacked_bytes > bounds.unpacked_bytes_max:
        raise BadArrow(
            f"rows of {seen.unpacked_bytes} bytes unpacked are over the limit of"
            f" {bounds.unpacked_bytes_max}; split the batch"
        )
    fit = _fit(schema, tuple(widths), seen.schema)
    if len(fit.costs) != len(seen.lengths):
        raise BadArrow(f"{len(seen.lengths)} arrays for {len(fit.costs)} fields of the schema")
    # Readers of single messages get JSON: a batch must not be a bomb for them either.
    text_bytes = 2 * seen.unpacked_bytes + sum(map(mul, seen.lengths, fit.costs))
    if text_bytes > TEXT_BYTES_MAX:
        raise BadArrow(
            f"{sum(seen.lengths)} values, about {text_bytes} bytes as JSON, over the limit of"
            f" {TEXT_BYTES_MAX}; split the batch"
        )
    _check_values(body, seen.schema, fit)
    return Checked(fit.version, seen.rows, seen.unpacked_bytes, text_bytes)


class _Fit(NamedTuple):
    """How rows of one schema fit a collection's."""

    version: int
    costs: tuple[int, ...]
    """Of each array: what every value costs as text for its name."""
    full: tuple[int, ...]
    """Where the columns are that may not be null."""


@lru_cache(maxsize=256)
def _fit(schema: bytes, widths: tuple[int, ...], given: bytes) -> _Fit:
    known, found = decode_schema(schema), decode_schema(given)
    version = fitting_width(known, widths, found)
    names = [json.dumps(field.name, ensure_ascii=False).encode() for field in flat(found)]
    costs = [VALUE_TEXT_BYTES + len(name) for name in names]
    full = [at for at in range(len(found)) if not known.field(at).nullable]
    return _Fit(version, tuple(costs), tuple(full))


def _check_values(body: bytes, given: bytes, fit: _Fit) -> None:
    pa = arrow()
    try:
        batch = pa.py_buffer(body).slice(len(given))
        rows = pa.ipc.read_record_batch(batch, decode_schema(given))
        rows.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadArrow(f"the rows are damaged: {error}") from None
    for at in fit.full:
        if nulls := rows.column(at).null_count:
            raise Misfit(
                f"column {rows.schema.field(at).name!r} may not be null, {nulls} of"
                f" {rows.num_rows} values are"
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
        # Without the end marker, so that packed and plain bodies have the same form.
        return bytes(memoryview(sink.getvalue())[:-_END_BYTES])
    except (pa.ArrowException, ValueError) as error:
        raise BadArrow(f"rows that cannot be sent: {error}") from None


@lru_cache(maxsize=256)
def _message(schema: Schema) -> bytes:
    return encode_schema(schema)


def decode_rows(body: bytes, names: Sequence[str] | None = None) -> Rows:
    """The rows of a validated body; with `names` only these columns, in the body's order.

    Other columns are neither read nor decompressed. Raises BadArrow if it was damaged since.
    """
    pa = arrow()
    try:
        batch_from = _schema_bytes(body)
        schema = decode_schema(body[:batch_from])
        buffer = pa.py_buffer(body)
        if names is None:
            return pa.ipc.read_record_batch(buffer.slice(batch_from), schema)
        found = [at for at, name in enumerate(schema.names) if name in names]
        # To Arrow an empty `included_fields` means all of them.
        if not found:
            return pa.ipc.read_record_batch(buffer.slice(batch_from), schema).select([])
        options = pa.ipc.IpcReadOptions(included_fields=found)
        return pa.ipc.open_stream(buffer, options=options).read_next_batch()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadArrow(f"rows that cannot be read: {error}") from None


def select_columns(body: bytes, names: frozenset[str]) -> bytes:
    """A body with those of its columns that are named, packed as before. Raises BadArrow."""
    batch_from = _schema_bytes(body)
    # Nothing to leave out: the body is sent as it is, its rows not decoded.
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
