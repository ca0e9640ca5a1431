"""The folder of an embedded queue: one process at a time, one format version.

`rocksmq.lock` is held by flock, so that a killed process leaves no stale lock. `format.json` has
the version. `store/` belongs to RocksDB.
"""

import errno
import json
import os
import re
from pathlib import Path

from broker.folder_lock import make_folder, open_lock, replace_durably, take_lock
from broker.rocksmq.queue_errors import (
    FolderInUse,
    FolderRefused,
    FolderVersionRefused,
    RocksMQError,
    RocksMQFull,
)
from broker.unreadable import UNREADABLE

FORMAT_VERSION = 1
LOCK = "rocksmq.lock"
FORMAT = "format.json"
STORE = "store"
OURS = {LOCK, FORMAT, STORE}
DRAFT = re.compile(r"format\.\d+\.new")
"""What a kill leaves of a version that was being written."""


class QueueFolder:
    """A folder that this process holds, until `release`. Calls block."""

    def __init__(self, root: Path, lock: int) -> None:
        self.root, self._lock = root, lock

    @property
    def store(self) -> Path:
        return self.root / STORE

    @classmethod
    def hold(cls, root: Path) -> "QueueFolder":
        """Make the folder if it is missing, and keep other processes out.

        Raises FolderInUse, FolderVersionRefused, and FolderRefused for what is no queue's folder.
        """
        try:
            make_folder(root)
            others = {it.name for it in root.iterdir() if not DRAFT.fullmatch(it.name)} - OURS
            if others and not (root / FORMAT).exists():
                raise FolderRefused(
                    f"{root} is no folder of a RocksMQ: it has {min(others)!r}; name an empty one"
                )
            lock = open_lock(root / LOCK)
        except OSError as error:
            raise _unusable(root, error) from error
        try:
            holder = take_lock(lock)
            if holder is not None:
                raise FolderInUse(root, int(holder) if holder.isdigit() else None)
            _check_format(root)
        except BaseException:
            os.close(lock)
            raise
        return cls(root, lock)

    def release(self) -> None:
        """Let other processes in."""
        os.close(self._lock)


def _check_format(root: Path) -> None:
    path = root / FORMAT
    try:
        if not path.exists():
            if (root / STORE).exists():
                raise FolderRefused(f"{path} is missing beside {STORE}/; restore the folder")
            replace_durably(path, json.dumps({"rocksmq": FORMAT_VERSION}) + "\n")
            return
        text = path.read_text()
    except OSError as error:
        raise _unusable(root, error) from error
    try:
        found = json.loads(text)["rocksmq"]
    except UNREADABLE as error:
        raise FolderRefused(f"cannot read {path}: {error!r}") from error
    if found != FORMAT_VERSION:
        raise FolderVersionRefused(root, found, FORMAT_VERSION)


def _unusable(root: Path, error: OSError) -> RocksMQError:
    if error.errno == errno.ENOSPC:
        told = f"the disk is full: cannot make {root} a folder of a RocksMQ; free some space"
        return RocksMQFull(told)
    return FolderRefused(f"cannot use RocksMQ folder {root}: {error.strerror}")
