"""What the segmented log sees of a disk: synchronous, small, and easy to make tear, drop and lie.

Errors are `OSError`s with their `errno`. Everything here may block, so it is called on threads.
"""

from collections.abc import Sequence
from typing import Protocol


class ReadableFile(Protocol):
    """An open file, for reading. Offsets are absolute; there is no shared position."""

    def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes; shorter only at the end of the file. Any number at once."""
        ...

    def size(self) -> int: ...

    def close(self) -> None:
        """Idempotent."""
        ...


class File(ReadableFile, Protocol):
    """An open file, for writing, too."""

    def write_durable(self, offset: int, parts: Sequence[bytes]) -> None:
        """Write the parts one behind the other; returns when they would survive a power cut.

        After an OSError any part of them may be there, and no later call may be taken to
        have made them durable.
        """
        ...

    def write(self, offset: int, parts: Sequence[bytes]) -> None:
        """Write the parts one behind the other; durable after the next `sync`.

        After an OSError any part of them may be there.
        """
        ...

    def sync(self) -> None:
        """Make earlier writes survive a power cut (data, and the size when it changed)."""
        ...

    def forget(self) -> None:
        """Let later reads see what the disk holds, not what memory remembers of failed writes."""
        ...

    def allocate(self, size: int) -> None:
        """Grow the file durably to `size` bytes: zeros, with their space reserved."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes; not durable before the next `sync`."""
        ...

    def linked(self) -> bool:
        """Whether the file has still a name: False for ever once it was removed or replaced."""
        ...


class Files(Protocol):
    """A folder tree. Paths are relative, '/'-joined."""

    def open(self, path: str, *, create: bool = False) -> File:
        """An existing file; with `create`, a new one: FileExistsError when the name is taken."""
        ...

    def list(self, folder: str) -> Sequence[str]:
        """Names in a folder, sorted; empty when it does not exist."""
        ...

    def make_folder(self, folder: str) -> None:
        """Durable, with its parents; nothing happens when it exists."""
        ...

    def remove(self, path: str) -> None:
        """FileNotFoundError when there is no such name. Durable after `sync_folder`."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Atomic, within one folder; durable after `sync_folder`."""
        ...

    def replace(self, path: str, data: bytes) -> None:
        """Atomic and durable: after a crash the file holds the old bytes or the new ones, whole."""
        ...

    def sync_folder(self, folder: str) -> None:
        """Make names created, renamed or removed in the folder survive a power cut."""
        ...
