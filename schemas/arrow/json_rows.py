"""Arrow rows for readers of single messages: each row is a JSON object, keyed by column name.

The text is UTF-8. Numbers, texts and booleans are JSON's own; bytes are base64; decimals and non-
finite numbers are text; dates, times, timestamps and durations are integers in the unit of their
column; a map is a list of pairs; null is null. Made for each such reader, never stored.
"""

import base64
import json
import math
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

from schemas.arrow.columns import arrow
from schemas.arrow.ipc import BadArrow
from schemas.arrow.rows import decode_rows


def rows_as_json(body: bytes, first: int, end: int) -> list[bytes]:
    """The rows [first, end) of a body that was checked. Raises BadArrow."""
    pa = arrow()
    rows = decode_rows(body).slice(first, end - first)
    try:
        # Times as integers: Python's datetime has no nanoseconds and ends at the year 9999.
        columns = [column.view(_countable(column.type)).to_pylist() for column in rows.columns]
    except (pa.ArrowException, ValueError) as error:
        raise BadArrow(f"rows that have no JSON form: {error}") from None
    names = rows.schema.names
    return [_object(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]


def _object(row: Mapping[str, Any]) -> bytes:
    try:
        text = json.dumps(row, default=_text, ensure_ascii=False, allow_nan=False)
    # NaN and infinity are no JSON. They are rare, so only rows that have them are walked.
    except ValueError:
        text = json.dumps(_finite(row), default=_text, ensure_ascii=False)
    return text.encode()


def _text(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else str(value)
        case dict():
            return {name: _finite(each) for name, each in value.items()}
        case list() | tuple():
            return [_finite(each) for each in value]
        case Decimal():
            return str(value)
        case _:
            return value


@lru_cache(maxsize=1024)
def _countable(kind: Any) -> Any:
    """The same layout with whole numbers for times."""
    pa = arrow()
    types = pa.types
    if types.is_date(kind) or types.is_time(kind) or types.is_timestamp(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    if types.is_duration(kind):
        return pa.int64()
    if types.is_map(kind):
        return pa.map_(_countable(kind.key_type), _countable(kind.item_type))
    if types.is_struct(kind):
        return pa.struct([_field(kind.field(at)) for at in range(kind.num_fields)])
    if types.is_fixed_size_list(kind):
        return pa.list_(_field(kind.value_field), kind.list_size)
    if types.is_large_list(kind):
        return pa.large_list(_field(kind.value_field))
    if types.is_list(kind):
        return pa.list_(_field(kind.value_field))
    return kind


def _field(field: Any) -> Any:
    return field.with_type(_countable(field.type))
