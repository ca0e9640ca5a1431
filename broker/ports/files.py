"""What the segmented log sees of a disk: synchronous, small, and easy to make tear, drop and lie."""

from collections.abc import Sequence
from typing import Protocol


class File(Protocol):
    """An open file. Offsets are absolute; there is no shared position."""

    def write(self, offset: int, data: bytes) -> None:
        """All of `data`, or OSError; a failed write may have left any part of it."""
        ...

    def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes; shorter only at the end of the file."""
        ...

    def sync(self) -> None:
        """Make earlier writes survive a power cut (data, and the size when it changed), or OSError."""
        ...

    def allocate(self, size: int) -> None:
        """Reserve space up to `size` bytes, zero-filled; OSError when there is none."""
        ...

    def truncate(self, size: int) -> None: ...

    def size(self) -> int: ...

    def close(self) -> None: ...


class Files(Protocol):
    """A folder tree. Paths are relative, '/'-joined."""

    def open(self, path: str, *, create: bool = False) -> File: ...

    def list(self, folder: str) -> Sequence[str]:
        """Names in a folder, sorted; empty when it does not exist."""
        ...

    def make_folder(self, folder: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def replace(self, path: str, data: bytes) -> None:
        """Atomic and durable: after a crash the file holds the old bytes or the new ones, whole."""
        ...

    def sync_folder(self, folder: str) -> None:
        """Make names created or removed in the folder survive a power cut."""
        ...
