"""Durable counters in the metadata store: each number is given out once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from broker.coordinator.records import decode_number, encode_number
from broker.ports.compare_and_set import retry_conflicts
from broker.ports.meta import MetaStore


@dataclass(frozen=True, slots=True)
class Counted:
    """The number taken, and the revision of the write that took it."""

    number: int
    revision: int


def _nothing(_: int) -> Mapping[str, bytes]:
    return {}


async def count_up(
    store: MetaStore, key: str, beside: Callable[[int], Mapping[str, bytes]] = _nothing
) -> Counted:
    """Take the next number of the counter at `key`; the first is 1. Durable on return.

    The records `beside` makes for the number are part of the same atomic write. Raises MetaError.
    """

    async def attempt() -> Counted:
        entry = await store.get(key)
        number = 1 + (decode_number(key, entry.value) if entry else 0)
        revision = await store.write(
            {key: encode_number(number), **beside(number)},
            expect={key: entry.revision if entry else 0},
        )
        return Counted(number, revision)

    return await retry_conflicts(key, attempt)
