"""The files port on a POSIX file system. Every call may block; none is made on the event loop.

Why `RWF_DSYNC` on Linux: write and sync are one system call, so the thread must reacquire the
interpreter lock once, not twice.
"""

import errno
import fcntl
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

_Write = Callable[[int, Sequence[bytes | memoryview], int], int]
"""Descriptor, parts, offset; the bytes that were written."""
_PARTS_MAX = 1000  # the kernel takes 1024 buffers in one call
_JOIN_BYTES_MAX = 4096  # below this, copying parts together costs less than passing each on


class OsFile:
    """One file descriptor, closed at the latest when the object is collected."""

    def __init__(self, path: Path, flags: int) -> None:
        # First: `__del__` runs even when the open fails.
        self._descriptor = -1
        self._descriptor = os.open(path, flags | os.O_CLOEXEC, 0o644)

    def write_durable(self, offset: int, parts: Sequence[bytes]) -> None:
        self._write_all(offset, parts, _write_synced)

    def write(self, offset: int, parts: Sequence[bytes]) -> None:
        self._write_all(offset, parts, os.pwritev)

    def _write_all(self, offset: int, parts: Sequence[bytes], write: _Write) -> None:
        size = sum(map(len, parts))
        if size < _JOIN_BYTES_MAX * len(parts):
            parts = (b"".join(parts),)
        for first in range(0, len(parts), _PARTS_MAX):
            offset = self._write_some(offset, parts[first : first + _PARTS_MAX], write)

    def _write_some(self, offset: int, parts: Sequence[bytes], write: _Write) -> int:
        end = offset + sum(map(len, parts))
        written = write(self._descriptor, parts, offset)
        if offset + written == end:
            return end
        # A short write, such as on a disk that is nearly full: rare, so a copy is cheap enough.
        rest = memoryview(b"".join(parts))
        while offset + written < end:
            more = write(self._descriptor, (rest[written:],), offset + written)
            if more == 0:
                raise OSError(errno.EIO, "the disk takes no more bytes")
            written += more
        return end

    def read(self, offset: int, size: int) -> bytes:
        data = os.pread(self._descriptor, size, offset)
        if not data or len(data) == size:
            return data
        parts = [data]
        while data and sum(map(len, parts)) < size:
            have = sum(map(len, parts))
            data = os.pread(self._descriptor, size - have, offset + have)
            parts.append(data)
        return b"".join(parts)

    def sync(self) -> None:
        _sync(self._descriptor)

    def forget(self) -> None:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def allocate(self, size: int) -> None:
        if sys.platform == "linux":
            # Reserves blocks, so a full disk shows here and not in the middle of an append.
            os.posix_fallocate(self._descriptor, 0, size)
        else:
            os.ftruncate(self._descriptor, size)
        os.fsync(self._descriptor)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def linked(self) -> bool:
        return os.fstat(self._descriptor).st_nlink > 0

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()


class OsFiles:
    """A folder tree below `root`, which is created when missing."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def open(self, path: str, *, create: bool = False) -> OsFile:
        flags = os.O_CREAT | os.O_EXCL if create else 0
        return OsFile(self.root / path, os.O_RDWR | flags)

    def list(self, folder: str) -> Sequence[str]:
        try:
            return sorted(path.name for path in (self.root / folder).iterdir())
        except FileNotFoundError:
            return ()

    def make_folder(self, folder: str) -> None:
        self._make(self.root / folder)

    def _make(self, path: Path) -> None:
        if path.is_dir():
            return
        self._make(path.parent)
        path.mkdir(exist_ok=True)
        _sync_folder(path.parent)  # a new folder survives a power cut only after this

    def remove(self, path: str) -> None:
        (self.root / path).unlink()

    def remove_folder(self, folder: str) -> None:
        path = self.root / folder
        with suppress(FileNotFoundError):
            path.rmdir()
        _sync_folder(path.parent)

    def rename(self, old: str, new: str) -> None:
        (self.root / old).rename(self.root / new)

    def replace(self, path: str, data: bytes) -> None:
        target = self.root / path
        temporary = target.with_name(target.name + ".new")
        # A crash may have left one, and the name must be free for O_EXCL.
        temporary.unlink(missing_ok=True)
        file = OsFile(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            file.write_durable(0, (data,))
        finally:
            file.close()
        # Synced before the rename: the name never stands on a partial file, even after a crash.
        temporary.rename(target)
        _sync_folder(target.parent)

    def free_bytes(self) -> int:
        found = os.statvfs(self.root)
        return found.f_bavail * found.f_frsize

    def sync_folder(self, folder: str) -> None:
        _sync_folder(self.root / folder)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


if sys.platform == "linux":

    def _write_synced(descriptor: int, parts: Sequence[bytes | memoryview], offset: int) -> int:
        return os.pwritev(descriptor, parts, offset, os.RWF_DSYNC)

    def _sync(descriptor: int) -> None:
        os.fdatasync(descriptor)

else:

    def _write_synced(descriptor: int, parts: Sequence[bytes | memoryview], offset: int) -> int:
        written = os.pwritev(descriptor, parts, offset)
        _sync(descriptor)
        return written

    def _sync(descriptor: int) -> None:
        if sys.platform == "darwin":
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # fsync alone stops at the drive's cache
        else:
            os.fsync(descriptor)
