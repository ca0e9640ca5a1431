"""Values that are larger than one write: in parts, with a pointer at the key of the value.

The parts are written first, under names made of their content, so a crash in between leaves the
old pointer with its old parts, whole. Parts that no pointer names are deleted with the next save.
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final

from broker.ports.meta_writes import PART_BYTES, in_parts

_POINTER: Final = b"in-parts 1 "
"""Begins no value itself: those are JSON objects."""
_PARTS_MAX: Final = 9999


class LargeValues:
    """The large values below one prefix, whose parts are at `prefix`; for one writer at a time."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._parts_of: dict[str, frozenset[str]] = {}
        """For each large value, the parts that the store may need for it."""
        self._stored: set[str] = set()
        """All parts that may be in the store."""

    def joined(self, stored: Mapping[str, bytes]) -> dict[str, bytes]:
        """The values by key, without parts. One whose parts are missing stays a pointer."""
        parts = {key: value for key, value in stored.items() if key.startswith(self._prefix)}
        self._stored = set(parts)
        values: dict[str, bytes] = {}
        for key, value in stored.items():
            if key in parts:
                continue
            values[key] = value
            if value.startswith(_POINTER):
                names = self._names(value)
                self._parts_of[key] = frozenset(names)
                whole = b"".join([parts.get(name, b"") for name in names])
                if _pointer(key, whole) == value:
                    values[key] = whole
        return values

    def replaced(
        self, values: Mapping[str, bytes], gone: Iterable[str]
    ) -> tuple[dict[str, bytes], list[str]]:
        """What to put, in this order, and then to delete, so that `values` are stored."""
        puts: dict[str, bytes] = {}
        pointers: dict[str, bytes] = {}
        for key, value in values.items():
            pointers[key] = value
            if len(value) > PART_BYTES:
                pointers[key] = _pointer(key, value)
                names = self._names(pointers[key])
                puts.update(zip(names, in_parts(value), strict=True))
                # Both, until `saved`: after a failure the pointer may name either.
                self._parts_of[key] = self._parts_of.get(key, frozenset()) | frozenset(names)
        self._stored |= puts.keys()
        needed = self._needed(values, gone) | puts.keys()
        return {**puts, **pointers}, sorted(self._stored - needed)

    def saved(self, values: Mapping[str, bytes], gone: Iterable[str]) -> None:
        """The puts and the deletes of `replaced` took effect."""
        for key in (*gone, *values):
            self._parts_of.pop(key, None)
        for key, value in values.items():
            if len(value) > PART_BYTES:
                self._parts_of[key] = frozenset(self._names(_pointer(key, value)))
        self._stored = {part for parts in self._parts_of.values() for part in parts}

    def _needed(self, values: Mapping[str, bytes], gone: Iterable[str]) -> set[str]:
        """The parts of all values but those that are replaced or deleted."""
        changed = {*values, *gone}
        kept = [parts for key, parts in self._parts_of.items() if key not in changed]
        return {part for parts in kept for part in parts}

    def _names(self, pointer: bytes) -> list[str]:
        count, _, digest = pointer.removeprefix(_POINTER).partition(b" ")
        if not count.isdigit() or int(count) > _PARTS_MAX:
            return []
        stem = f"{self._prefix}{digest.decode(errors='replace')}"
        return [f"{stem}/{number:04d}" for number in range(int(count))]


def _pointer(key: str, value: bytes) -> bytes:
    # With the key, so that equal values of two keys do not share parts.
    digest = sha256(key.encode() + b"\0" + value).hexdigest()
    return _POINTER + b"%d %s" % (len(in_parts(value)), digest.encode())
