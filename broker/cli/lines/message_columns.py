"""The fields of messages that `--format` and `--filter` name, as columns of a whole batch."""

from base64 import b64encode
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from json import dumps
from typing import Final

from broker.client import MessageBatch

TICK_LOGICAL_BITS: Final = 18
PROPERTY: Final = "property"

Column = Callable[[MessageBatch], Sequence[bytes | None]]
"""A field of each message of a batch; None where a message has none."""


class UnknownField(Exception):
    """A field or form that does not exist; the text says which there are."""


def column(name: str) -> Column:
    """The column of `FIELD`, `FIELD:FORM` or `property:NAME`. Raises UnknownField."""
    field, colon, rest = name.partition(":")
    if field == PROPERTY:
        if not rest:
            raise UnknownField(f"{name!r} names no property; write property:NAME")
        return _property(rest)
    if field not in FIELDS:
        raise UnknownField(f"{name!r} is not a field of a message{_meant(field)}")
    if not colon:
        return FIELDS[field]
    if rest not in FORMS:
        raise UnknownField(f"{rest!r} in {name!r} is not a form; use {', '.join(FORMS)}")
    return _formed(FIELDS[field], FORMS[rest])


def _meant(field: str) -> str:
    known = [*FIELDS, f"{PROPERTY}:NAME"]
    near = get_close_matches(field, FIELDS, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; use one of {', '.join(known)}"


def _property(name: str) -> Column:
    def values(batch: MessageBatch) -> list[bytes | None]:
        found = [it.get(name) for it in batch.properties]
        return [None if it is None else it.encode() for it in found]

    return values


def _formed(plain: Column, form: Callable[[bytes], bytes]) -> Column:
    def values(batch: MessageBatch) -> list[bytes | None]:
        return [None if it is None else form(it) for it in plain(batch)]

    return values


def _text(values: Callable[[MessageBatch], Sequence[object]]) -> Column:
    return lambda batch: [str(it).encode() for it in values(batch)]


def _collection(batch: MessageBatch) -> Sequence[bytes | None]:
    name = None if batch.collection is None else batch.collection.encode()
    return (name,) * len(batch)


def _time(batch: MessageBatch) -> list[bytes]:
    return [iso_time(tick >> TICK_LOGICAL_BITS).encode() for tick in batch.ticks]


def iso_time(unix_ms: int) -> str:
    """UTC to the millisecond, as ISO 8601 and RFC 3339 write it."""
    seconds, ms = divmod(unix_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, tz=UTC):%Y-%m-%dT%H:%M:%S}.{ms:03}Z"


def _partition(batch: MessageBatch) -> list[bytes | None]:
    return [None if it is None else str(it).encode() for it in batch.partition_ids]


FIELDS: Final[dict[str, Column]] = {
    "payload": lambda batch: batch.payloads,
    "key": lambda batch: batch.keys,
    "id": _text(lambda batch: batch.ids),
    "tick": _text(lambda batch: batch.ticks),
    "time": _time,
    "timestamp_ms": _text(lambda batch: [it >> TICK_LOGICAL_BITS for it in batch.ticks]),
    "vchannel": _text(lambda batch: batch.vchannels),
    "collection": _collection,
    "partition_id": _partition,
    "type": _text(lambda batch: batch.types),
    "size": _text(lambda batch: [len(it) for it in batch.payloads]),
    "properties": _text(lambda batch: [dumps(it, ensure_ascii=False) for it in batch.properties]),
}

FORMS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "hex": lambda value: value.hex().encode(),
    "base64": b64encode,
    # Bytes that are no text become the replacement character: the result is always one line.
    "json": lambda value: dumps(value.decode(errors="replace"), ensure_ascii=False).encode(),
}
