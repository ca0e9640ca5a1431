"""A small ordered key-value store for what must be agreed on: terms, collections, windows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

WRITE_KEYS_MAX: Final = 100
"""Different keys of one write: put, deleted and expected ones together. etcd takes 128."""

WRITE_BYTES_MAX: Final = 1024 * 1024
"""Of the keys and values of one write. etcd takes 1.5 MiB, with its own framing."""

LIST_MAX: Final = 1000
"""Entries of one list."""


@dataclass(frozen=True, slots=True)
class MetaEntry:
    """A value and the revision that wrote it. Revisions grow over the whole store."""

    value: bytes
    revision: int


class MetaError(Exception):
    """The call failed and, unless it is WriteUnconfirmed, had no effect."""


class LastingFailure(MetaError):
    """Waiting does not help: somebody has to act, or another process leads by now."""


class UnusableStore(LastingFailure):
    """The store answers nothing more to this process, whatever somebody does: it has to end."""


class WriteUnconfirmed(MetaError):
    """No answer: the write was applied, or not. Which one is decided before the next call returns.

    So a read through the same store shows the outcome, and no later write is undone by this one.
    """


class Conflict(MetaError):
    """`key` was not at the expected revision but at `actual` (0: absent)."""

    def __init__(self, key: str, expected: int, actual: int) -> None:
        super().__init__(f"{key}: expected revision {expected}, it is at {actual}")
        self.key, self.expected, self.actual = key, expected, actual


class UnknownSchema(LastingFailure):
    """The store has a layout that this version of the program does not know; it is not touched."""

    def __init__(self, store: str, found: int, known: int) -> None:
        super().__init__(
            f"{store}: metadata schema version {found}; this program knows version {known}"
        )
        self.store, self.found, self.known = store, found, known


class WriteTooLarge(MetaError):
    """The write has more keys, or more bytes, than every store takes."""

    def __init__(self, keys: int, size: int) -> None:
        super().__init__(
            f"the write has {keys} keys and {size} bytes; a write may have {WRITE_KEYS_MAX} keys"
            f" and {WRITE_BYTES_MAX} bytes: split it"
        )
        self.keys, self.size = keys, size


class MetaStore(Protocol):
    """Every write is durable when the call returns. Calls may run concurrently.

    Keys are non-empty text, ordered by code point. A busy or missing store raises MetaError after a
    bounded wait, WriteUnconfirmed where a write may have reached it. A cancelled write is applied
    completely or not at all.

    One write has at most `WRITE_KEYS_MAX` keys and `WRITE_BYTES_MAX` bytes, one list at most
    `LIST_MAX` entries. `broker/ports/meta_writes.py` splits larger work.
    """

    async def get(self, key: str) -> MetaEntry | None:
        """The newest entry of a key; None when it is absent. Raises MetaError."""
        ...

    async def list(
        self, prefix: str, *, limit: int, after: str = ""
    ) -> Sequence[tuple[str, MetaEntry]]:
        """The first `limit` entries whose key starts with `prefix` and is above `after`, by key.

        A consistent snapshot; fewer than `limit` are the last ones. `limit` is 1 to LIST_MAX. The
        cost grows with the entries returned, not with those stored. Raises MetaError.
        """
        ...

    async def write(
        self,
        puts: Mapping[str, bytes],
        *,
        deletes: Sequence[str] = (),
        expect: Mapping[str, int] | None = None,
    ) -> int:
        """Apply all puts and deletes atomically; returns the new revision, that of every put entry.

        `expect` maps keys to the revision they must have, 0 for absent; otherwise Conflict, for the
        first such key in key order. Revisions are never reused, not even by deleted keys. Deleting
        an absent key is no error. Raises WriteTooLarge before anything else, and MetaError.
        """
        ...

    async def close(self) -> None:
        """Release the store; idempotent. Later calls raise MetaError."""
        ...


@runtime_checkable
class ReadsTogether(Protocol):
    """A MetaStore for which several keys cost about as much as one."""

    async def get_many(self, keys: Sequence[str]) -> Sequence[MetaEntry | None]:
        """What `get` returns for each key, in this order; not of one moment. Raises MetaError."""
        ...


@runtime_checkable
class TellsChanges(Protocol):
    """A MetaStore that knows when somebody has written, whichever process that was."""

    async def changed(self, prefix: str, since: int | None, *, wait_s: float) -> int:
        """Wait until a write behind revision `since` may have changed what starts with `prefix`.

        Returns the revision to wait behind the next time: who reads now sees all changes up to it.
        Also without a change: at once for None, and after `wait_s`. Raises MetaError.
        """
        ...


async def get_many(store: MetaStore, keys: Sequence[str]) -> Sequence[MetaEntry | None]:
    """The newest entry of each key, in this order, at once where the store can. MetaError."""
    if isinstance(store, ReadsTogether):
        return await store.get_many(keys)
    return [await store.get(key) for key in keys]
