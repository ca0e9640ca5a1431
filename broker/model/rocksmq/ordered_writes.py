"""The parts of one atomic write to an ordered key-value store."""

from dataclasses import dataclass

from broker.value import value


@value
class Put:
    """Set a key."""

    key: bytes
    data: bytes


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove a key, if it is there."""

    key: bytes


@dataclass(frozen=True, slots=True)
class RemoveRange:
    """Remove all keys from `begin` on, below `end`."""

    begin: bytes
    end: bytes


OrderedWrite = Put | Remove | RemoveRange
