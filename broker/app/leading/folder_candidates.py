"""Coordinators that share a data folder: each holds a lock file there until its process ends.

So the end of a process is known at once, by the kernel, however it ended.
"""

import fcntl
import json
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from broker.data_folder import DataFolder, DataFolderError
from broker.folder_lock import open_lock
from broker.ports.leader_check import Candidate
from broker.unreadable import UNREADABLE

COORDINATORS_MAX: Final = 8
ENTRY_BYTES: Final = 512
"""Fixed, so that replacing an entry is one write."""


class FolderCandidates:
    """`Candidates` of a data folder; made by `candidate_of`."""

    def __init__(self, root: Path, own: Candidate, number: int) -> None:
        self._root = root
        self._own = own
        self.process = f"coordinator-{number}" if number else "coordinator"
        """The name of this process in the folder while it runs; a later one may have it, too."""

    @property
    def own(self) -> Candidate:
        """See Candidates."""
        return self._own

    async def has_ended(self, name: str) -> bool:
        """See Candidates."""
        # A leader without a name had the folder alone, and this process shares it: it has ended.
        return name != self._own.name and all(it.name != name for it in self._held())

    async def running(self) -> Sequence[Candidate]:
        """See Candidates."""
        return self._held()

    def _held(self) -> list[Candidate]:
        found = []
        for path in _paths(self._root):
            candidate = _holder(path)
            if candidate is not None:
                found.append(candidate)
        return found


@contextmanager
def candidate_of(folder: DataFolder, address: str) -> Iterator[FolderCandidates]:
    """Be one of the folder's coordinators while the block runs. Raises DataFolderError."""
    lock, number = _taken(folder.root)
    try:
        own = Candidate(f"{number}-{secrets.token_hex(8)}", address)
        entry = json.dumps({"name": own.name, "address": own.address})
        try:
            os.pwrite(lock, entry.ljust(ENTRY_BYTES).encode(), 0)
        except OSError as error:
            cause = f"cannot write a lock of data folder {folder.root}: {error.strerror}"
            raise DataFolderError(cause) from error
        yield FolderCandidates(folder.root, own, number)
    finally:
        os.close(lock)


def _taken(root: Path) -> tuple[int, int]:
    """The lock of the first free number, and the number."""
    for number, path in enumerate(_paths(root)):
        try:
            lock = open_lock(path)
        except OSError as error:
            cause = f"cannot use data folder {root}: {error.strerror}"
            raise DataFolderError(cause) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        return lock, number
    raise DataFolderError(
        f"data folder {root} has {COORDINATORS_MAX} coordinators, which is the most; stop one"
    )


def _holder(path: Path) -> Candidate | None:
    """Who holds the lock file; None when nobody does."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        # Shared: others that look at the same moment are not in each other's way.
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _entry(os.pread(lock, ENTRY_BYTES, 0))
    finally:
        os.close(lock)
    return None


def _entry(data: bytes) -> Candidate:
    try:
        fields = json.loads(data)
        return Candidate(str(fields["name"]), str(fields["address"]))
    except UNREADABLE:
        return Candidate("", "")  # it has just begun, or its disk is full


def _paths(root: Path) -> list[Path]:
    return [root / f"coordinator-{number}.lock" for number in range(COORDINATORS_MAX)]
