"""The file operations of the segmented log: synchronous, few, and easy to replace by faulty ones.

Errors are `OSError`s with their `errno`. Every call may block, so call them on threads.
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
        """Write the parts consecutively; returns when they would survive a power cut.

        After an OSError any part of them may be written, and no later call makes them durable: the
        kernel may have dropped the dirty pages.
        """
        ...

    def write(self, offset: int, parts: Sequence[bytes]) -> None:
        """Write the parts consecutively; durable after the next `sync`.

        After an OSError any part of them may be written.
        """
        ...

    def sync(self) -> None:
        """Make earlier writes durable: data, and the file size if it changed."""
        ...

    def forget(self) -> None:
        """Drop cached pages: later reads see the disk, not pages of failed writes."""
        ...

    def allocate(self, size: int) -> None:
        """Grow the file durably to `size` bytes of zeros, with disk space reserved."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes; not durable before the next `sync`."""
        ...

    def linked(self) -> bool:
        """Whether the file still has a name; False once it was removed or replaced."""
        ...


class Files(Protocol):
    """A folder tree. Paths are relative, '/'-joined."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open an existing file; with `create`, a new one: FileExistsError if it exists."""
        ...

    def list(self, folder: str) -> Sequence[str]:
        """Names in a folder, sorted; empty when it does not exist."""
        ...

    def make_folder(self, folder: str) -> None:
        """Create a folder and its parents durably; no-op if it exists."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file: FileNotFoundError if there is none. Durable after `sync_folder`."""
        ...

    def remove_folder(self, folder: str) -> None:
        """Remove an empty folder, durably; no-op if there is none. OSError if it has files."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename atomically within one folder; durable after `sync_folder`."""
        ...

    def replace(self, path: str, data: bytes) -> None:
        """Replace the file's contents atomically and durably: a crash leaves the old or the new."""
        ...

    def free_bytes(self) -> int:
        """What programs may still write to the file system of the tree."""
        ...

    def sync_folder(self, folder: str) -> None:
        """Make names created, renamed or removed in the folder durable."""
        ...
