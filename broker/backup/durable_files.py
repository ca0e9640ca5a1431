"""Copies files with a checksum, and makes files and folders survive a power cut."""

import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from broker.backup.backup_failed import BackupFailed

CHUNK_BYTES = 1 << 20
Progress = Callable[[int], None]
"""Called with the number of bytes that were copied or checked since the last call."""


def copy_front(source: Path, target: Path, size: int, progress: Progress) -> str:
    """Copy the first `size` bytes to a new file, durably; returns their SHA-256 in hex.

    OSError; BackupFailed when the source is shorter.
    """
    digest = sha256()
    with source.open("rb") as reader, target.open("xb") as writer:
        left = size
        while left:
            chunk = reader.read(min(left, CHUNK_BYTES))
            if not chunk:
                raise BackupFailed(f"{source} ends {left} bytes too early")
            digest.update(chunk)
            writer.write(chunk)
            left -= len(chunk)
            progress(len(chunk))
        writer.flush()
        os.fsync(writer.fileno())
    return digest.hexdigest()


def digest_of(path: Path, progress: Progress) -> str:
    """The SHA-256 of a file in hex. OSError."""
    digest = sha256()
    with path.open("rb") as reader:
        while chunk := reader.read(CHUNK_BYTES):
            digest.update(chunk)
            progress(len(chunk))
    return digest.hexdigest()


def write_durably(path: Path, data: bytes) -> None:
    """Write a file that is whole whenever it has its name, also after a power cut. OSError."""
    draft = path.with_name(path.name + ".new")
    with draft.open("wb") as writer:
        writer.write(data)
        writer.flush()
        os.fsync(writer.fileno())
    draft.replace(path)
    sync(path.parent)


def make_durably(folder: Path) -> list[Path]:
    """Make a folder and its parents; returns those that were made, outermost first. OSError."""
    if folder.is_dir():
        return []
    made = make_durably(folder.absolute().parent)
    folder.mkdir()
    sync(folder.absolute().parent)
    return [*made, folder]


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, survive a power cut. OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
