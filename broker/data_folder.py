"""The data folder of a broker: its layout, and the locks that keep a second process out.

`tidemark.lock`, `node-<id>.lock` and `coordinator-<n>.lock` are held by flock, so that a killed
process leaves no stale lock. Coordinators share `tidemark.lock`; who serves or restores has it
alone. `format.json` has the version of the layout. `wal/` has the log, `meta.sqlite` the metadata,
unless `metadata.json` says that it is in etcd. `audit/` has who did what.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from broker.folder_lock import make_folder, open_lock, replace_durably, sync_folder, take_lock

LAYOUT_VERSION = 1
LOCK = "tidemark.lock"
LAYOUT = "format.json"
UNFINISHED = "restore.unfinished"
"""Stands in the folder while a restore fills it. No broker starts before it is gone."""


class DataFolderError(Exception):
    """The folder cannot be used; the message is one sentence for the operator."""


@dataclass(frozen=True, slots=True)
class DataFolder:
    """The paths in a data folder, which belongs to one broker (and its nodes) at a time."""

    root: Path

    @property
    def log(self) -> Path:
        return self.root / "wal"

    @property
    def kafka(self) -> Path:
        """What is known of the topics, when the log is in Kafka; see `broker/wal/kafka`."""
        return self.root / "kafka"

    @property
    def log_prefix(self) -> Path:
        """There is one while the log is in Kafka: `broker/app/stores/folder_markers.py`."""
        return self.kafka / "prefix"

    @property
    def reserve(self) -> Path:
        """See `broker/wal/disk_reserve.py`."""
        return self.root / "reserve.space"

    @property
    def audit(self) -> Path:
        """See `broker/app/audit`."""
        return self.root / "audit"

    @property
    def metadata(self) -> Path:
        return self.root / "meta.sqlite"

    @property
    def metadata_note(self) -> Path:
        """Of a folder whose metadata is elsewhere: `broker/app/stores/etcd_metadata.py`."""
        return self.root / "metadata.json"


@contextmanager
def hold(root: Path) -> Iterator[DataFolder]:
    """Make the folder if it is missing, and keep other brokers out until the block ends."""
    with _held(root, LOCK, "stop it, or pass another --data-dir"):
        yield DataFolder(root)


@contextmanager
def share(root: Path) -> Iterator[DataFolder]:
    """The same for one of several coordinators, of which one leads: they keep out all others."""
    with _held(root, LOCK, "stop it, or pass another --data-dir", shared=True):
        yield DataFolder(root)


@contextmanager
def hold_node(root: Path, node_id: int) -> Iterator[DataFolder]:
    """Share the folder with a coordinator and other nodes, as the only node with this ID."""
    with _held(root, f"node-{node_id}.lock", "stop it, or pass another --node-id"):
        yield DataFolder(root)


@contextmanager
def restored_folder(root: Path) -> Iterator[None]:
    """Keep brokers out of an empty folder while the block fills it, also after a kill.

    After an error the folder stays unfinished: the caller removes what it made, then calls
    `clear_unfinished`. Raises DataFolderError when somebody else has the folder.
    """
    lock = open_lock(root / LOCK)
    try:
        _take(lock, f"data folder {root}", "name another folder")
        replace_durably(root / UNFINISHED, "A restore has not finished here.\n")
        yield
        _check_layout(root, restoring=True)
        # Last: everything in the folder is durable by now.
        (root / UNFINISHED).unlink()
        sync_folder(root)
    finally:
        os.close(lock)


def clear_unfinished(root: Path) -> None:
    """Remove the files of `restored_folder`; the marker last, while there is still something."""
    for name in (LAYOUT, LOCK, UNFINISHED):
        with suppress(OSError):
            (root / name).unlink()


@contextmanager
def _held(root: Path, lock_file: str, remedy: str, *, shared: bool = False) -> Iterator[None]:
    try:
        make_folder(root)
        lock = open_lock(root / lock_file)
    except OSError as error:
        raise DataFolderError(f"cannot use data folder {root}: {error.strerror}") from error
    try:
        what = f"data folder {root}" if lock_file == LOCK else f"{root / lock_file}"
        _take(lock, what, remedy, shared=shared)
        _check_layout(root)
        yield
    finally:
        os.close(lock)


def _take(lock: int, what: str, remedy: str, *, shared: bool = False) -> None:
    holder = take_lock(lock, shared=shared)
    if holder is not None:
        told = f"{what} is in use by process {holder or 'unknown'}; {remedy}"
        raise DataFolderError(told)


def _check_layout(root: Path, *, restoring: bool = False) -> None:
    if not restoring and (root / UNFINISHED).exists():
        raise DataFolderError(
            f"a restore into {root} did not finish; delete the folder and restore again"
        )
    path = root / LAYOUT
    try:
        if not path.exists():
            replace_durably(path, json.dumps({"layout": LAYOUT_VERSION}) + "\n")
            return
        found = json.loads(path.read_text())["layout"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataFolderError(f"cannot read {path}: {error}") from error
    if found != LAYOUT_VERSION:
        raise DataFolderError(
            f"data folder {root} has layout version {found}; this release reads version"
            f" {LAYOUT_VERSION}"
        )
