"""Whether the disk has room for appends, and room that is kept for what frees it.

Implemented by `broker/wal/disk_reserve.py`.
"""

from dataclasses import dataclass
from typing import Protocol

from broker.model.failure import Refusal


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """Of a file system, in bytes."""

    total: int
    free: int


class DiskRoom(Protocol):
    """Of the data folder that a process writes to."""

    @property
    def refusal(self) -> Refusal | None:
        """Why messages are refused; None: there is room. What frees space is not refused."""
        ...

    @property
    def space(self) -> DiskSpace | None:
        """What the last look found; None: unknown."""
        ...

    async def look(self) -> None:
        """Look at the disk, and release or restore what is kept. Every second or so."""
        ...


class EnoughRoom:
    """A disk that is never full."""

    refusal: Refusal | None = None
    space: DiskSpace | None = None

    async def look(self) -> None:
        """See DiskRoom."""
