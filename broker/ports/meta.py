"""A small ordered key-value store for what must be agreed on: terms, collections, windows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class MetaEntry:
    """A value and the revision that wrote it. Revisions grow over the whole store."""

    value: bytes
    revision: int


class MetaError(Exception):
    """The store could not do what it was asked; nothing of the call took effect."""


class Conflict(MetaError):
    """`key` was not at the expected revision but at `actual` (0: absent)."""

    def __init__(self, key: str, expected: int, actual: int) -> None:
        super().__init__(f"{key}: expected revision {expected}, it is at {actual}")
        self.key, self.expected, self.actual = key, expected, actual


class UnknownSchema(MetaError):
    """The store has another layout than this version of the program knows; it stays untouched."""

    def __init__(self, store: str, found: int, known: int) -> None:
        super().__init__(
            f"{store}: metadata schema version {found}; this program knows version {known}"
        )
        self.store, self.found, self.known = store, found, known


class MetaStore(Protocol):
    """Every write is durable when the call returns. All calls may run at once.

    Keys are non-empty text, ordered by code point. Every call ends by itself: a store that is busy
    or gone raises MetaError after a bounded wait. A cancelled write is applied whole or not at all.
    """

    async def get(self, key: str) -> MetaEntry | None:
        """The newest entry of a key; None when it is absent. Raises MetaError."""
        ...

    async def list(self, prefix: str) -> Sequence[tuple[str, MetaEntry]]:
        """Entries whose key starts with `prefix`, in key order, from one moment.

        Raises MetaError.
        """
        ...

    async def write(
        self,
        puts: Mapping[str, bytes],
        *,
        deletes: Sequence[str] = (),
        expect: Mapping[str, int] | None = None,
    ) -> int:
        """Apply all or nothing and give the new revision, which every put entry then has.

        `expect` maps keys to the revision they must be at now, 0 for absent; else Conflict, which
        names the first such key in key order. A key that was deleted and written again never has
        an old revision. Deleting an absent key is no error. Raises MetaError.
        """
        ...

    async def close(self) -> None:
        """Release the store; idempotent. Later calls raise MetaError."""
        ...
