"""The files of one process's audit: the newest is appended to, older ones have a number.

Why not `logging.handlers.RotatingFileHandler`: after a write that failed half-way it leaves half a
line, and it writes on to a file that was moved away.
"""

import os
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.folder_lock import sync_folder

PRIVATE_FILE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700
NEW_LINE: Final = b"\n"


@dataclass(frozen=True, slots=True)
class AuditLimits:
    """`bytes_max`: of a file. `files_max`: of a process, the newest included; at least 2."""

    bytes_max: int
    files_max: int


class AuditFiles:
    """`path` is the newest file, `path.1` the one before it. Every call may block. OSError."""

    def __init__(self, path: Path, limits: AuditLimits) -> None:
        self.limits = limits
        """May change while it writes."""
        self.path = path
        self._file: int | None = None
        self._size = 0

    def append(self, lines: deque[bytes]) -> None:
        """Write the lines, and take from `lines` those that are written.

        After an OSError no line is written in part, and the file is opened anew the next time.
        """
        while lines:
            file = self._open()
            if self._size and self._size + len(lines[0]) > self.limits.bytes_max:
                self._rotate()
                continue
            count, size = 0, self._size
            for line in lines:
                size += len(line)
                if count and size > self.limits.bytes_max:
                    break
                count += 1
            self._write(file, b"".join([lines[at] for at in range(count)]))
            for _ in range(count):
                lines.popleft()

    def sync(self) -> None:
        """Make what was written durable."""
        if self._file is not None:
            try:
                os.fdatasync(self._file)
            except OSError:
                # What was written may be lost; later lines go through a descriptor of their own.
                self.close()
                raise

    def close(self) -> None:
        """Idempotent."""
        if self._file is not None:
            file, self._file = self._file, None
            os.close(file)

    def _open(self) -> int:
        """The newest file, which is opened unless it is open and still has its name."""
        if self._file is not None:
            with suppress(FileNotFoundError):
                if os.path.samestat(self.path.stat(), os.fstat(self._file)):
                    return self._file
            self.close()
        folder = self.path.parent
        if not folder.is_dir():
            folder.mkdir(PRIVATE_FOLDER, exist_ok=True)
            sync_folder(folder.parent)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = file = os.open(self.path, flags, PRIVATE_FILE)
        self._size = os.fstat(file).st_size
        if self._size and os.pread(file, 1, self._size - 1) != NEW_LINE:
            # A machine that lost power may leave half a line; the next one must not continue it.
            self._write(file, NEW_LINE)
        return file

    def _write(self, file: int, data: bytes) -> None:
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(file, left) :]
        except OSError:
            with suppress(OSError):
                os.ftruncate(file, self._size)
            self.close()
            raise
        self._size += len(data)

    def _rotate(self) -> None:
        """Give the newest file the number 1, each older one the next, and remove the oldest."""
        self.sync()
        self.close()
        for number, file in sorted(self._older(), reverse=True):
            if number >= self.limits.files_max - 1:
                file.unlink()
            else:
                file.rename(self._numbered(number + 1))
        self.path.rename(self._numbered(1))
        sync_folder(self.path.parent)

    def _older(self) -> list[tuple[int, Path]]:
        prefix = f"{self.path.name}."
        beside = [(it.name.removeprefix(prefix), it) for it in self.path.parent.iterdir()]
        return [(int(end), it) for end, it in beside if end.isascii() and end.isdecimal()]

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")
