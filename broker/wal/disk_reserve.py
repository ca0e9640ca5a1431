"""Keeps room on the disk, in a preallocated file, for what frees space when the disk is full.

The file is made when the disk has little room left. When it has almost none, messages are refused,
and at the next look the file is cut to nothing: its room is there for the records of drops and
purges, for metadata, for logs that open again, and for segments that are written anew. When they
have freed enough, the file is allocated again, and messages are taken.

All processes of a data folder share the file, and each sees its state by its size: a file of no
bytes is one that was released. So a process that was killed finds out where the folder was.

Why messages are refused before the disk is full: what is left must be enough for the rest. Why a
file, and not only a bound: others write to the disk, too.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import structlog
from anyio import to_thread

from broker.model.failure import Refusal, StreamingCode
from broker.ports.space.disk_room import DiskSpace

SCARCE = 16
"""The file is made when so many times its size are free, and removed at twice as much."""
LOW = 4
"""Messages are refused when less than such a part of its size is free."""
OF_DISK = 8
"""It has at most such a part of the disk."""

log = structlog.get_logger("tidemark")


def disk_space(folder: Path) -> DiskSpace:
    """What programs without special rights find."""
    found = os.statvfs(folder)
    return DiskSpace(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


class DiskReserve:
    """See the module, and `broker.ports.space.disk_room.DiskRoom`. `bytes_wanted` 0: no reserve."""

    def __init__(
        self, path: Path, bytes_wanted: int, space: Callable[[Path], DiskSpace] = disk_space
    ) -> None:
        self._path, self._wanted, self._space = path, bytes_wanted, space
        self._refusal: Refusal | None = None
        self._found: DiskSpace | None = None
        self._told = ""
        self._starts = True

    @property
    def refusal(self) -> Refusal | None:
        """See DiskRoom."""
        return self._refusal

    @property
    def space(self) -> DiskSpace | None:
        """See DiskRoom. None also while the disk cannot be asked."""
        return self._found

    async def look(self) -> None:
        """See DiskRoom."""
        await to_thread.run_sync(self.look_now)

    def look_now(self) -> None:
        """`look`, synchronous. What the disk refuses is logged, and tried again the next time."""
        self._found = None
        try:
            self._found = space = self._space(self._path.parent)
            full = self._is_full(space)
        except OSError as error:
            self._tell("the reserve of disk space cannot be kept", str(error))
            return
        self._starts = False
        if full and self._refusal is None:
            self._tell("the disk is full: messages are refused", f"{space.free} bytes are free")
        elif self._refusal is not None and not full:
            self._tell("the disk has room again: messages are taken", "")
        self._refusal = _refusal(space.free) if full else None

    def _is_full(self, space: DiskSpace) -> bool:
        """Whether messages are refused, once the file is as it should be. Raises OSError."""
        size, has = min(self._wanted, space.total // OF_DISK), self._size()
        if not size:
            self._path.unlink(missing_ok=True)
            return False
        low = size // LOW
        if has and space.free < low:
            # Not at once: rows of other processes, which look within a second, would take the room.
            if self._starts or self._refusal is not None:
                os.truncate(self._path, 0)
            return True
        if has:
            if space.free >= 2 * SCARCE * size:
                self._path.unlink(missing_ok=True)
            elif has < size and space.free >= size + 2 * low:
                self._allocate(size)  # a crash has cut its allocation short, or it is to be larger
            return False
        if space.free >= SCARCE * size:
            self._path.unlink(missing_ok=True)
            return False
        if space.free >= size + 2 * low:
            self._allocate(size)
            return False
        return has == 0

    def _size(self) -> int | None:
        """None: there is no file, for the disk has plenty of room, or never had enough."""
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return None

    def _allocate(self, size: int) -> None:
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.posix_fallocate(file, 0, size)
        except OSError:
            with suppress(OSError):
                os.ftruncate(file, 0)
            raise
        finally:
            os.close(file)

    def _tell(self, event: str, why: str) -> None:
        if event != self._told:
            log.warning(event, why=why, reserve=str(self._path))
        self._told = event


def _refusal(free: int) -> Refusal:
    return Refusal(
        StreamingCode.ON_SHUTDOWN,
        f"storage refused: No space left on device: {free} bytes are free, which are kept for drops"
        " and purges; drop or purge collections, or make room; appends go on by themselves then",
    )
