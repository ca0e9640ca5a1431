"""Arrow rows of JSON objects, one for each row; the reverse of `json_rows`.

Numbers, texts and booleans are JSON's own; bytes are base64; decimals may be text, and so may NaN
and infinity; dates, times, timestamps and durations are integers in the unit of their column, or
text as in ISO 8601; a map is a list of pairs. A field that is missing is null.
"""

import base64
import binascii
import io
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import time
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

from schemas.arrow.columns import Schema, arrow
from schemas.arrow.ipc import BadArrow

_SHOWN: Final = 60
_Convert = Callable[[Any], Any]


def rows_of_lines(lines: Sequence[bytes], schema: Schema) -> Any:
    """A RecordBatch of the columns of `schema`, a row for each line. Raises BadArrow.

    Plain columns are parsed by the Arrow library; what it does not take is looked at one by one.
    """
    pa = arrow()
    # Arrow's parser crashes where `null` comes first, and takes each `null` for a row.
    if _is_plain(schema) and all(_like_object(it) for it in lines):
        arrow_json = import_module("pyarrow.json")
        options = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
        read = arrow_json.ReadOptions(use_threads=False, block_size=1 << 30)
        try:
            table = arrow_json.read_json(
                io.BytesIO(b"\n".join(lines) + b"\n"), read_options=read, parse_options=options
            )
        except pa.ArrowException:
            pass  # to be told which line, or to take what JSON allows: 1.0 is an integer
        else:
            # A line with two objects, or half of one, would shift the rows behind it.
            if table.num_rows == len(lines) and not _has_null(table, schema):
                found = table.select(schema.names).combine_chunks().to_batches()
                return found[0] if found else pa.RecordBatch.from_pylist([], schema)
    return rows_of_objects([_object(line) for line in lines], schema)


def _like_object(line: bytes) -> bool:
    line = line.strip()
    return line[:1] == b"{" and line[-1:] == b"}"


def rows_of_objects(objects: Sequence[Mapping[str, Any]], schema: Schema) -> Any:
    """A RecordBatch of these rows. Raises BadArrow, which names the column and the value."""
    pa = arrow()
    names = frozenset(schema.names)
    for each in objects:
        for name in each:
            if name not in names:
                raise BadArrow(f"field {name!r} is no column; the columns are {schema.names}")
    columns = [_column(field, [it.get(field.name) for it in objects]) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _object(line: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadArrow(f"this is not JSON ({error}): {line[:_SHOWN]!r}") from None
    if not isinstance(found, dict):
        raise BadArrow(f"a row is a JSON object, not {line[:_SHOWN]!r}")
    return found


def _column(field: Any, values: Sequence[Any]) -> Any:
    pa = arrow()
    if not field.nullable and None in values:
        raise BadArrow(f"column {field.name!r} may not be null")
    convert = _convert(field.type)
    try:
        if convert is not None:
            values = [None if it is None else convert(it) for it in values]
        return pa.array(values, field.type)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        shown = next((it for it in values if it is not None), None) if len(values) == 1 else None
        what = f" {json.dumps(shown, default=str)[:_SHOWN]} is not {field.type}:" if shown else ""
        reason = str(error).splitlines()[0]
        raise BadArrow(f"column {field.name!r}:{what} {reason}") from None


@lru_cache(maxsize=64)
def _is_plain(schema: Schema) -> bool:
    types = arrow().types
    return all(
        types.is_integer(it) or types.is_float64(it) or types.is_boolean(it) or types.is_string(it)
        for it in schema.types
    )


def _has_null(table: Any, schema: Schema) -> bool:
    return any(not it.nullable and table.column(it.name).null_count for it in schema)


def _convert(kind: Any) -> _Convert | None:
    """How a JSON value becomes what `pa.array` takes; None: as it is."""
    pa = arrow()
    types = pa.types
    if types.is_integer(kind):
        return _integer
    if types.is_floating(kind):
        return lambda it: float(it) if isinstance(it, str) else it
    if types.is_decimal(kind):
        return _decimal
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return _bytes
    if types.is_temporal(kind):
        return lambda it: _time(it, kind)
    if types.is_map(kind):
        return _map(kind)
    if types.is_struct(kind):
        return _struct(kind)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        inner = _convert(kind.value_type)
        return inner and (lambda it: [None if each is None else inner(each) for each in _list(it)])
    return None


def _integer(value: Any) -> Any:
    # pyarrow would cut the fraction off.
    if isinstance(value, float):
        if not value.is_integer():
            raise ValueError("it has a fraction")
        return int(value)
    return value


def _decimal(value: Any) -> Any:
    try:
        return Decimal(str(value)) if isinstance(value, str | int | float) else value
    except InvalidOperation:
        raise ValueError(f"{value!r} is not a decimal number") from None


def _bytes(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"bytes are base64 text, not {json.dumps(value)[:_SHOWN]}")
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error:
        raise ValueError(f"{value[:_SHOWN]!r} is not base64") from None


def _time(value: Any, kind: Any) -> Any:
    """A scalar: Python's own times have no nanoseconds."""
    pa = arrow()
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError(f"a {kind} is an integer or text, not {json.dumps(value)[:_SHOWN]}")
    if isinstance(value, str) and pa.types.is_time(kind):
        return pa.scalar(time.fromisoformat(value), kind)
    if isinstance(value, str):
        return pa.scalar(value).cast(kind)
    wide = pa.int32() if kind.bit_width == 32 else pa.int64()
    return pa.scalar(value, wide).cast(kind)


def _map(kind: Any) -> _Convert:
    key, item = _convert(kind.key_type), _convert(kind.item_type)

    def convert(value: Any) -> list[tuple[Any, Any]]:
        return [
            (key(k) if key else k, item(v) if item and v is not None else v)
            for k, v in _list(value)
        ]

    return convert


def _struct(kind: Any) -> _Convert:
    fields = {kind.field(at).name: _convert(kind.field(at).type) for at in range(kind.num_fields)}

    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise TypeError(f"a struct is a JSON object, not {json.dumps(value)[:_SHOWN]}")
        if extra := value.keys() - fields.keys():
            raise ValueError(f"{sorted(extra)} are no fields of the struct")
        return {
            name: inner(value[name]) if inner and value.get(name) is not None else value.get(name)
            for name, inner in fields.items()
        }

    return convert


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"a list is a JSON array, not {json.dumps(value)[:_SHOWN]}")
    return value
