"""What the columns of a DataFrame become: messages, or rows of a collection with a schema.

It knows which columns and types fit, and the texts of all refusals. Arrow converts whole columns;
single rows are looked at only where necessary. It never talks to a broker.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

import pyarrow as pa

from broker.spark.refusals import BadColumns, BadRow

OF_MESSAGES: Final = ("value", "key", "properties", "collection", "vchannel")
TARGETS: Final = ("vchannel", "collection")
POSITION_OF_MESSAGES: Final = ("message_id", "time_tick", "timestamp")
POSITION_OF_ROWS: Final = ("_vchannel", "_message_id", "_time_tick", "_timestamp")
"""Columns that the source adds. Rows of INSERT INTO have them too, and null in them."""


# ---- messages -------------------------------------------------------------------------------


class Messages(NamedTuple):
    """Consecutive messages for one target that share their properties."""

    target: str
    payloads: list[bytes]
    keys: list[bytes | str | int | None] | None
    properties: dict[str, str]


class MessageColumns:
    """A DataFrame whose rows become messages, each with its `value`."""

    def __init__(self, given: pa.Schema, topic: str, key: str | None = None) -> None:
        """Check the columns. Raises BadColumns.

        `topic`: the target of all rows; "" when a column names it. `key`: the value of option
        `key`, which can only name the column `key` here.
        """
        self._topic = topic
        self._positions = [it for it in POSITION_OF_MESSAGES if it in given.names]
        self._targets = [it for it in TARGETS if not topic and it in given.names]
        problems = [*_double(given), *self._strange(given)]
        if "value" not in given.names:
            problems.append("column 'value' is missing; it is the payload, a string or binary")
        if not topic and not self._targets:
            problems.append("no target is given: set option topic, or add column 'collection'")
        if key not in (None, "key"):
            problems.append(f"option key is {key!r}; the key of a message is its column 'key'")
        if problems:
            raise BadColumns([f"cannot make messages from columns {given.names}", *problems])

    def messages(self, batch: pa.RecordBatch) -> Iterator[Messages]:
        """Yield the rows in their order. Raises BadRow."""
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        _refuse_positions(columns, self._positions)
        payloads = _payloads(columns["value"])
        keys = columns["key"].to_pylist() if "key" in columns else None
        # Nothing differs between the rows, so no row is looked at.
        if not self._targets and "properties" not in columns:
            yield Messages(self._topic, payloads, keys, {})
            return
        shared = list(zip(self._where(columns), _properties(columns, len(payloads)), strict=True))
        for (target, properties), run in groupby(range(len(payloads)), shared.__getitem__):
            rows = list(run)
            first, end = rows[0], rows[-1] + 1
            mine = None if keys is None else keys[first:end]
            yield Messages(target, payloads[first:end], mine, dict(properties))

    def _strange(self, given: pa.Schema) -> Iterator[str]:
        for field in given:
            if field.name in self._positions:
                continue
            if field.name not in _TAKES:
                yield f"column {field.name!r} is none of {', '.join(OF_MESSAGES)}; drop it"
            elif not _TAKES[field.name](field.type):
                yield f"column {field.name!r} is {field.type}, not {_SAID[field.name]}"

    def _where(self, columns: dict[str, Any]) -> list[str]:
        rows = len(columns["value"])
        if not self._targets:
            return [self._topic] * rows
        chosen = pa.compute.coalesce(*[columns[name].cast(pa.string()) for name in self._targets])
        where = chosen.to_pylist()
        for row, target in enumerate(where):
            if not target:
                raise BadRow(
                    self._targets[-1], f"row {row} has no target; set it, or give option topic"
                )
        return list(where)


def _payloads(values: Any) -> list[bytes]:
    if values.null_count:
        raise BadRow("value", "the value is null; use an empty value instead")
    return values.cast(pa.binary()).to_pylist()  # type: ignore[no-any-return]


def _properties(columns: dict[str, Any], rows: int) -> list[tuple[tuple[str, str], ...]]:
    if "properties" not in columns:
        return [()] * rows
    found = [tuple(it or ()) for it in columns["properties"].to_pylist()]
    for pairs in found:
        for name, value in pairs:
            if value is None:
                raise BadRow("properties", f"property {name!r} is null; omit it")
            if name.startswith("_"):
                raise BadRow("properties", f"property {name!r} is reserved: it begins with '_'")
    return found


# ---- rows of a collection -------------------------------------------------------------------


class RowColumns:
    """A DataFrame whose rows become rows of a collection with a schema."""

    def __init__(self, given: pa.Schema, wanted: pa.Schema, topic: str, key: str | None) -> None:
        """Match columns by name, in any order; nullable ones may be missing. Raises BadColumns."""
        self.schema = wanted
        self._positions = [
            it for it in POSITION_OF_ROWS if it in given.names and it not in wanted.names
        ]
        problems = [*_double(given), *_differences(given, wanted, self._positions)]
        if key is not None and key not in wanted.names:
            problems.append(f"option key names {key!r}, which is no column of it")
        if problems:
            raise BadColumns([f"the rows do not fit {topic!r}", *problems])

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with the types of the collection. Raises BadRow."""
        given = dict(zip(batch.schema.names, batch.columns, strict=True))
        _refuse_positions(given, self._positions)
        columns = [_fitted(given.get(field.name), field, len(batch)) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _differences(given: pa.Schema, wanted: pa.Schema, positions: Sequence[str]) -> Iterator[str]:
    for field in given:
        if field.name in positions:
            continue
        at = wanted.get_field_index(field.name)
        if at < 0:
            yield f"column {field.name!r} is not in the collection; drop it, or add it there"
        elif not _castable(field.type, wanted.field(at).type):
            yield f"column {field.name!r} is {field.type}, not {wanted.field(at).type}"
    for field in wanted:
        if field.name not in given.names and not field.nullable:
            yield f"column {field.name!r} is missing, and may not be null"


def _fitted(values: Any, field: pa.Field, rows: int) -> Any:
    if values is None:
        return pa.nulls(rows, field.type)
    if values.null_count and not field.nullable:
        raise BadRow(field.name, "it has a null, but the column of the collection is not nullable")
    if values.type.equals(field.type):
        return values
    try:
        return values.cast(field.type)
    except pa.ArrowException as error:
        raise BadRow(field.name, f"not every value is {field.type}: {error}") from None


def _castable(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether the types convert; single values that are too large raise BadRow later."""
    if given.equals(wanted) or pa.types.is_null(given):
        return True
    if any(same(given) and same(wanted) for same in _OF_ANY_WIDTH):
        return True
    if pa.types.is_decimal(given) and pa.types.is_integer(wanted):
        return True  # Spark has no unsigned numbers of 64 bits
    if pa.types.is_floating(given) and pa.types.is_floating(wanted):
        return bool(given.bit_width <= wanted.bit_width)
    if pa.types.is_timestamp(given) and pa.types.is_timestamp(wanted):
        return (given.tz is None) == (wanted.tz is None)
    if _is_list(given) and _is_list(wanted):
        return _castable(given.value_type, wanted.value_type)
    if pa.types.is_struct(given) and pa.types.is_struct(wanted):
        pairs = zip(given, wanted, strict=False)
        alike = all(
            one.name == other.name and _castable(one.type, other.type) for one, other in pairs
        )
        return alike and given.num_fields == wanted.num_fields
    if pa.types.is_map(given) and pa.types.is_map(wanted):
        keys = _castable(given.key_type, wanted.key_type)
        return keys and _castable(given.item_type, wanted.item_type)
    return False


def _refuse_positions(columns: Mapping[str, Any], positions: Sequence[str]) -> None:
    for name in positions:
        if columns[name].null_count < len(columns[name]):
            raise BadRow(name, "the broker sets it; leave it out of the rows that are written")


# ---- kinds of types -------------------------------------------------------------------------


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    return bool(binary or pa.types.is_fixed_size_binary(kind))


_OF_ANY_WIDTH: Final = (
    pa.types.is_integer, pa.types.is_decimal, pa.types.is_date, pa.types.is_duration, _is_text,
    _is_bytes,
)  # fmt: skip


def _is_list(kind: pa.DataType) -> bool:
    """Return whether it is a list. Spark's arrays have no fixed size, so the size is checked per
    row.
    """
    of_any_size = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return bool(of_any_size or pa.types.is_fixed_size_list(kind))


def _is_payload(kind: pa.DataType) -> bool:
    return _is_text(kind) or _is_bytes(kind)


def _is_key(kind: pa.DataType) -> bool:
    return _is_payload(kind) or bool(pa.types.is_signed_integer(kind))


def _is_properties(kind: pa.DataType) -> bool:
    return bool(pa.types.is_map(kind)) and _is_text(kind.key_type) and _is_text(kind.item_type)


_TAKES: Final[dict[str, Callable[[pa.DataType], bool]]] = {
    "value": _is_payload,
    "key": _is_key,
    "properties": _is_properties,
    "collection": _is_text,
    "vchannel": _is_text,
}
_SAID: Final = {
    "value": "string or binary",
    "key": "string, binary or a whole number",
    "properties": "map<string, string>",
    "collection": "string",
    "vchannel": "string",
}


def _double(given: pa.Schema) -> Iterator[str]:
    for name in dict.fromkeys(given.names):
        if given.names.count(name) > 1:
            yield f"column {name!r} is there more than once"
