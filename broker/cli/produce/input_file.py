"""One file of the input, or stdin: blocking reads that end soon after Ctrl-C."""

import io
import os
import select
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

STDIN: Final = 0
LOOK_EVERY_S: Final = 0.1
STDIN_NAME: Final = "stdin"


class BadInput(Exception):
    """The input cannot be read, or is not what it should be; the text names the file and place."""


@dataclass(frozen=True, slots=True)
class Place:
    """How much of a file was taken: `done` lines or rows, and bytes where these are known."""

    file: str
    unit: str
    done: int
    byte: int | None = None

    def __str__(self) -> str:
        byte = "" if self.byte is None else f", byte {self.byte:,}"
        return f"{self.unit} {self.done:,} of {self.file}{byte}"


class InputFile(io.RawIOBase):
    """An open file. Reads wait in steps: Python joins every thread at exit, so a plain `read` of a
    pipe would keep the program until more input comes.
    """

    def __init__(self, name: str, descriptor: int) -> None:
        self.name = name
        self.left = False
        """Set it to have the reads return the end of the file."""
        self.waits_for_all = False
        """Set it to have `readinto` fill its buffer, for a reader that takes less for damage."""
        self._ahead = b""
        self._descriptor = descriptor
        about = os.fstat(descriptor)
        self.size: int | None = about.st_size if stat.S_ISREG(about.st_mode) else None
        self.taken = 0
        """Bytes read so far."""

    @property
    def is_terminal(self) -> bool:
        """Whether somebody types the input."""
        return os.isatty(self._descriptor)

    def read_some(self, bytes_max: int) -> bytes:
        """The next bytes as soon as there are some; empty at the end. Raises BadInput."""
        if self._ahead:
            found, self._ahead = self._ahead[:bytes_max], self._ahead[bytes_max:]
            return found
        return self._read(bytes_max)

    def _read(self, bytes_max: int) -> bytes:
        while not self.left:
            readable, _, _ = select.select([self._descriptor], [], [], LOOK_EVERY_S)
            if readable:
                try:
                    found = os.read(self._descriptor, bytes_max)
                except OSError as error:
                    raise BadInput(f"cannot read {self.name}: {error.strerror}") from error
                self.taken += len(found)
                return found
        return b""

    def begins_with(self, magic: bytes) -> bool:
        """Whether the file begins so; then what is read next lies behind that."""
        while len(self._ahead) < len(magic) and (found := self._read(len(magic))):
            self._ahead += found
        begins = self._ahead.startswith(magic)
        if begins:
            self._ahead = self._ahead[len(magic) :]
        return begins

    # ---- what pyarrow calls ------------------------------------------------------------------

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self.size is not None

    def readinto(self, buffer: object) -> int:
        """Fill the buffer with what is there."""
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        filled = 0
        while filled < len(view) and (found := self.read_some(len(view) - filled)):
            view[filled : filled + len(found)] = found
            filled += len(found)
            if not self.waits_for_all:
                break
        return filled

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return os.lseek(self._descriptor, offset, whence)

    def tell(self) -> int:
        return os.lseek(self._descriptor, 0, os.SEEK_CUR) if self.size is not None else self.taken


@contextmanager
def opened(files: Sequence[Path]) -> Iterator[list[InputFile]]:
    """All files, opened before the first is read; `-`, or none, is stdin. Raises BadInput."""
    sources: list[InputFile] = []
    with _Descriptors() as descriptors:
        for file in files or [Path("-")]:
            if str(file) == "-":
                sources.append(InputFile(STDIN_NAME, STDIN))
                continue
            try:
                descriptors.append(os.open(file, os.O_RDONLY))
            except OSError as error:
                raise BadInput(f"cannot read {file}: {error.strerror}") from error
            if file.is_dir():
                raise BadInput(f"cannot read {file}: it is a folder; name its files")
            sources.append(InputFile(str(file), descriptors[-1]))
        yield sources


class _Descriptors(list[int]):
    def __enter__(self) -> "_Descriptors":
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self:
            os.close(descriptor)


def shows_progress(sources: Sequence[InputFile]) -> bool:
    """Whether a progress bar can be shown: stderr is a terminal on which nobody types."""
    return sys.stderr.isatty() and not any(it.is_terminal for it in sources)
