"""A small ordered key-value store for what must be agreed on: terms, collections, windows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Entry:
    """A value and the revision that wrote it. Revisions grow over the whole store."""

    value: bytes
    revision: int


class MetaError(Exception):
    """The store could not do what it was asked; nothing of the call took effect."""


class Conflict(MetaError):
    """A key was not at the expected revision; `key` says which one, `actual` where it is (0: absent)."""

    def __init__(self, key: str, expected: int, actual: int) -> None:
        super().__init__(f"{key}: expected revision {expected}, it is at {actual}")
        self.key, self.expected, self.actual = key, expected, actual


class MetaStore(Protocol):
    """Every write is durable when the call returns. All calls may run at once."""

    async def get(self, key: str) -> Entry | None: ...

    async def list(self, prefix: str) -> Sequence[tuple[str, Entry]]:
        """Entries whose key starts with `prefix`, in key order, from one moment."""
        ...

    async def write(
        self,
        puts: Mapping[str, bytes],
        *,
        deletes: Sequence[str] = (),
        expect: Mapping[str, int] | None = None,
    ) -> int:
        """Apply all or nothing and give the new revision.

        `expect` maps keys to the revision they must be at now, 0 for absent; else Conflict.
        """
        ...

    async def close(self) -> None: ...
