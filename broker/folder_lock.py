"""Locks of folders that die with their process, and names in folders that survive a power cut."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

PID_BYTES = 32
"""Fixed, so that replacing the pid is one write and needs no new disk space."""


def open_lock(path: Path) -> int:
    """A descriptor of the lock file, which is made if it is missing. OSError."""
    # O_CLOEXEC: a child process that inherited the lock would keep it when this one has died.
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


def take_lock(lock: int, *, shared: bool = False) -> str | None:
    """Take the lock for this process, and write its pid; else the pid of a holder, or "".

    The kernel frees it with the descriptor, so a killed process leaves none. The file stays: were
    it removed, two processes could lock two files of its name. `shared`: other shared ones may be
    held beside it.
    """
    try:
        fcntl.flock(lock, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(lock, PID_BYTES, 0).decode(errors="replace").strip()
    with suppress(OSError):  # the lock is held anyway; on a full disk the pid stays unknown
        os.pwrite(lock, f"{os.getpid()}\n".ljust(PID_BYTES).encode(), 0)
    return None


def make_folder(folder: Path) -> None:
    """Make the folder and its parents, durably. OSError."""
    if not folder.is_dir():
        make_folder(folder.absolute().parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.absolute().parent)


def replace_durably(path: Path, text: str) -> None:
    """Give a file this text, durably: a crash leaves the old file or the new one. OSError."""
    # With the pid, because several processes may find a new folder at once.
    draft = path.with_suffix(f".{os.getpid()}.new")
    with draft.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())  # before it gets its name, which must not lead to an empty file
    draft.replace(path)
    sync_folder(path.parent)


def create_durably(path: Path, text: str) -> None:
    """Make a file with this text, durably, unless there is one: the first maker wins. OSError."""
    draft = path.with_suffix(f".{os.getpid()}.new")
    replace_durably(draft, text)
    try:
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Sync the folder, so that the names in it survive a power cut. OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
