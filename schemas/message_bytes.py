"""Messages of the generated classes to bytes and back, several times as fast as their own methods.

`encoded(message)` equals `bytes(message)`. `parsed(kind, data)` equals `kind.parse(data)` for what
encoders write, and reads all other data as the protobuf libraries do: a field of an unexpected wire
type is an unknown one, two of one message are merged, of a oneof the last one holds. What the
fields of a class need is found out once.

Why: betterproto2 enters `warnings.catch_warnings` for each field of each message it writes, and
reads byte by byte. That was a tenth of what a change of definitions costs the broker. Data of
strangers would make it put lists into numbers, read the content of groups as fields of the message
around, and raise any error.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import betterproto2
from betterproto2 import FieldMetadata, Message

from schemas.encoding.fields import (
    FIXED32,
    FIXED64,
    GROUP,
    LENGTH,
    VARINT,
    copied,
    fields,
    group_fields_max,
)
from schemas.encoding.varint import UINT64_MAX, Malformed, read_varint, signed, varint
from schemas.field_budget import LARGEST, MESSAGE_FIELDS, STEP, FieldBudget

M = TypeVar("M", bound=Message)
Write = Callable[[list[bytes], Any], None]
"""Adds a value that is set, with its tag, to the parts of a message."""
Read = Callable[[bytes, int, int, FieldBudget], Any]
"""The value of a field whose content is `data[first:stop]`; for a varint, `first` is its value."""

UNBOUNDED: Final = FieldBudget(None)
"""Of what this process, or another one of the cluster, has made."""
_INT64_MIN: Final = -(1 << 63)
_UINT32_MAX: Final = (1 << 32) - 1
_VARINTS: Final = frozenset(
    (
        betterproto2.TYPE_ENUM,
        betterproto2.TYPE_BOOL,
        betterproto2.TYPE_INT32,
        betterproto2.TYPE_INT64,
        betterproto2.TYPE_UINT32,
        betterproto2.TYPE_UINT64,
    )
)
_FIXED: Final = {
    betterproto2.TYPE_DOUBLE: (FIXED64, struct.Struct("<d")),
    betterproto2.TYPE_FLOAT: (FIXED32, struct.Struct("<f")),
    betterproto2.TYPE_FIXED32: (FIXED32, struct.Struct("<I")),
    betterproto2.TYPE_FIXED64: (FIXED64, struct.Struct("<Q")),
    betterproto2.TYPE_SFIXED32: (FIXED32, struct.Struct("<i")),
    betterproto2.TYPE_SFIXED64: (FIXED64, struct.Struct("<q")),
}
_LENGTHS: Final = frozenset(
    (betterproto2.TYPE_STRING, betterproto2.TYPE_BYTES, betterproto2.TYPE_MESSAGE)
)


_PLAIN_READS: Final[dict[str, Read]] = {
    betterproto2.TYPE_INT64: lambda _, value, __, ___: signed(value),
    betterproto2.TYPE_INT32: lambda _, value, __, ___: (value & _UINT32_MAX ^ 1 << 31) - (1 << 31),
    betterproto2.TYPE_UINT64: lambda _, value, __, ___: value,
    betterproto2.TYPE_UINT32: lambda _, value, __, ___: value & _UINT32_MAX,
    betterproto2.TYPE_BOOL: lambda _, value, __, ___: value > 0,
    betterproto2.TYPE_STRING: lambda data, first, stop, _: data[first:stop].decode(),
    betterproto2.TYPE_BYTES: lambda data, first, stop, _: data[first:stop],
}


class _Writer(NamedTuple):
    """`always`: whether zero and empty are written too, when they are set."""

    name: str
    always: bool
    write: Write


class _Reader(NamedTuple):
    """`into`: how the value joins the others: "" replaces, "one" appends, "many", "pair", "merged".

    `others`: the fields of the same oneof.
    """

    name: str
    into: str
    read: Read
    others: tuple[str, ...] = ()


_WRITERS: Final[dict[type[Message], tuple[_Writer, ...]]] = {}
_READERS: Final[dict[type[Message], dict[int, _Reader]]] = {}
"""By class. A reader stands at its field's tag."""


def encoded(message: Message) -> bytes:
    """The bytes of a message. Raises what `bytes(message)` raises for values of a wrong type."""
    kind = type(message)
    try:
        writers = _WRITERS[kind]
    except KeyError:
        writers = _WRITERS[kind] = _writers_of(kind)
    parts: list[bytes] = []
    for name, always, write in writers:
        value = getattr(message, name)
        if value is not None if always else value:
            write(parts, value)
    parts.append(message._unknown_fields)  # noqa: SLF001 - there is no public name
    return b"".join(parts)


def parsed(kind: type[M], data: bytes, budget: FieldBudget = UNBOUNDED) -> M:
    """The message in these bytes. Raises Malformed or UnicodeDecodeError: both are ValueErrors.

    Give a budget for what a stranger has sent, or call `parsed_bounded`.
    """
    try:
        return _parsed(kind, data, 0, len(data), budget)
    except RecursionError:
        raise Malformed("messages that are nested too deep", 0) from None


def parsed_bounded(kind: type[M], data: bytes) -> M:
    """The same for what a stranger has sent; more than LARGEST fields are Malformed."""
    return parsed(kind, data, FieldBudget(LARGEST))


def _parsed(kind: type[M], data: bytes, first: int, stop: int, budget: FieldBudget) -> M:
    try:
        readers = _READERS[kind]
    except KeyError:
        readers = _READERS[kind] = _readers_of(kind)
    values: dict[str, Any] = {}
    merged: dict[str, list[tuple[Read, int, int]]] = {}
    # Not a list: of tiny fields it would take 20 times their size.
    unknown = bytearray()
    budget.take(MESSAGE_FIELDS)
    for tag, start, end in _counted(fields(data, first, stop), budget):
        reader = readers.get(tag)
        if reader is None:
            if tag & 7 == GROUP:
                budget.take(group_fields_max(start, end))
            unknown += copied(data, tag, start, end)
            continue
        name, into, read, others = reader
        for other in others:
            values.pop(other, None)
            merged.pop(other, None)
        if into == "merged":
            # Read below, once: else nested ones would be read twice at each level.
            merged.setdefault(name, []).append((read, start, end))
            continue
        value = read(data, start, end, budget)
        if into:
            _join(values, name, into, value)
        else:
            values[name] = value
    for name, parts in merged.items():
        values[name] = _read_merged(data, parts, budget)
    found = kind(**values)
    if unknown:
        found._unknown_fields = bytes(unknown)  # noqa: SLF001 - there is no public name
    return found


def _counted(found: Iterator[Any], budget: FieldBudget) -> Iterator[Any]:
    """The same, within the budget, which is looked at before each STEP of them."""
    if budget is UNBOUNDED:
        return found
    return _in_steps(found, budget)


def _in_steps(found: Iterator[Any], budget: FieldBudget) -> Iterator[Any]:
    count = 0
    for count, it in enumerate(found, 1):
        yield it
        if not count % STEP:
            budget.take(STEP)
    budget.take(count % STEP)


def _join(values: dict[str, Any], name: str, into: str, value: Any) -> None:
    if into == "one":
        values.setdefault(name, []).append(value)
    elif into == "many":
        values.setdefault(name, []).extend(value)
    else:
        values.setdefault(name, {})[value[0]] = value[1]


def _read_merged(data: bytes, parts: Sequence[tuple[Read, int, int]], budget: FieldBudget) -> Any:
    """The message in these parts of the data, most often one."""
    read, start, end = parts[0]
    if len(parts) == 1:
        return read(data, start, end, budget)
    # The protobuf libraries merge them, which is to read one behind the other.
    joined = b"".join([data[at:until] for _, at, until in parts])
    return read(joined, 0, len(joined), budget)


def _shape(kind: Any) -> Any:
    """What betterproto2 knows of the fields of a class."""
    return kind._betterproto  # noqa: SLF001 - there is no public name


# ---- encoding ----------------------------------------------------------------------------------


def _writers_of(kind: type[Message]) -> tuple[_Writer, ...]:
    found = []
    for name, meta in _shape(kind).meta_by_field_name.items():
        # Else None is the default, and a message without fields is false.
        plain = meta.repeated or meta.map_meta is not None
        is_message = meta.proto_type == betterproto2.TYPE_MESSAGE
        always = not plain and bool(is_message or meta.optional or meta.group)
        found.append(_Writer(name, always, _write_of(meta)))
    return tuple(found)


def _write_of(meta: FieldMetadata) -> Write:
    if meta.map_meta is not None:
        return _map_write(meta)
    content = _content_of(meta.proto_type)
    if meta.repeated and meta.proto_type not in _LENGTHS:
        return _with_length(meta.number, lambda values: b"".join([content(it) for it in values]))
    if meta.proto_type in _LENGTHS:
        one = _with_length(meta.number, content)
    else:
        one = _bare(varint(meta.number << 3 | _wire_type(meta.proto_type)), content)
    if not meta.repeated:
        return one

    def each(parts: list[bytes], values: Any) -> None:
        for it in values:
            one(parts, it)

    return each


def _map_write(meta: FieldMetadata) -> Write:
    assert meta.map_meta is not None
    key, value = [_write_of(it) for it in meta.map_meta]
    tag = varint(meta.number << 3 | LENGTH)

    def write(parts: list[bytes], values: Any) -> None:
        for of_key, of_value in values.items():
            entry: list[bytes] = []
            key(entry, of_key)
            value(entry, of_value)
            parts += (tag, varint(sum(map(len, entry))), *entry)

    return write


def _with_length(number: int, content: Callable[[Any], bytes]) -> Write:
    tag = varint(number << 3 | LENGTH)

    def write(parts: list[bytes], value: Any) -> None:
        inner = content(value)
        parts += (tag, varint(len(inner)), inner)

    return write


def _bare(tag: bytes, content: Callable[[Any], bytes]) -> Write:
    def write(parts: list[bytes], value: Any) -> None:
        parts += (tag, content(value))

    return write


def _content_of(proto_type: str) -> Callable[[Any], bytes]:
    if proto_type in _VARINTS:
        return _number
    if proto_type in _FIXED:
        return _FIXED[proto_type][1].pack
    match proto_type:
        case betterproto2.TYPE_STRING:
            return str.encode
        case betterproto2.TYPE_BYTES:
            return _as_it_is
        case betterproto2.TYPE_MESSAGE:
            return encoded
        case _:
            raise TypeError(f"fields of type {proto_type} have no code here: add it")


def _as_it_is(value: bytes) -> bytes:
    return value


def _number(value: int) -> bytes:
    if not _INT64_MIN <= value <= UINT64_MAX:
        raise ValueError(f"{value} does not fit into 64 bits")
    return varint(value)


def _wire_type(proto_type: str) -> int:
    if proto_type in _FIXED:
        return _FIXED[proto_type][0]
    return LENGTH if proto_type in _LENGTHS else VARINT


# ---- decoding ----------------------------------------------------------------------------------


def _readers_of(kind: type[Message]) -> dict[int, _Reader]:
    found: dict[int, _Reader] = {}
    for name, meta in _shape(kind).meta_by_field_name.items():
        own = _shape(kind).cls_by_field[name]
        if meta.map_meta is not None:
            # A class of betterproto2's own, with a key and a value.
            of_value = _shape(kind).cls_by_field[f"{name}.value"]
            read = _map_read(_read_of(betterproto2.TYPE_MESSAGE, own), of_value)
            found[meta.number << 3 | LENGTH] = _Reader(name, "pair", read)
            continue
        one = _read_of(meta.proto_type, own)
        wire_type = _wire_type(meta.proto_type)
        plain = "merged" if meta.proto_type == betterproto2.TYPE_MESSAGE else ""
        into = "one" if meta.repeated else plain
        found[meta.number << 3 | wire_type] = _Reader(name, into, one, _others(kind, name, meta))
        if meta.repeated and wire_type != LENGTH:
            packed = _packed(meta.proto_type, one)
            found[meta.number << 3 | LENGTH] = _Reader(name, "many", packed)
    return found


def _others(kind: Any, name: str, meta: FieldMetadata) -> tuple[str, ...]:
    """The other fields of a field's oneof."""
    if not meta.group:
        return ()
    names = [it.name for it in _shape(kind).oneof_field_by_group[meta.group]]
    return tuple([it for it in names if it != name])


def _read_of(proto_type: str, own: Any) -> Read:
    if proto_type in _FIXED:
        unpack = _FIXED[proto_type][1].unpack_from
        return lambda data, first, _, __: unpack(data, first)[0]
    if proto_type == betterproto2.TYPE_ENUM:
        # 32 bits, whatever is sent.
        return lambda _, value, __, ___: own((value & _UINT32_MAX ^ 1 << 31) - (1 << 31))
    if proto_type == betterproto2.TYPE_MESSAGE:
        return lambda data, first, stop, budget: _parsed(own, data, first, stop, budget)
    read = _PLAIN_READS.get(proto_type)
    if read is None:
        raise TypeError(f"fields of type {proto_type} have no code here: add it")
    return read


def _map_read(entry: Read, of_value: Any) -> Read:
    def read(data: bytes, first: int, stop: int, budget: FieldBudget) -> Any:
        pair = entry(data, first, stop, budget)
        # Of an entry without a value: betterproto2 has None for a message.
        return pair.key, of_value() if pair.value is None else pair.value

    return read


def _packed(proto_type: str, one: Read) -> Read:
    width = _FIXED[proto_type][1].size if proto_type in _FIXED else 0

    def numbers(data: bytes, first: int, stop: int) -> Iterator[tuple[int, int]]:
        at = first
        while at < stop:
            value, at = read_varint(data, at, stop)
            yield value, at

    def read(data: bytes, first: int, stop: int, budget: FieldBudget) -> list[Any]:
        if width:
            if (stop - first) % width:
                raise Malformed(f"packed numbers of {width} bytes in {stop - first} bytes", first)
            budget.take((stop - first) // width)
            return [one(data, at, at + width, budget) for at in range(first, stop, width)]
        found = _counted(numbers(data, first, stop), budget)
        return [one(data, value, at, budget) for value, at in found]

    return read
