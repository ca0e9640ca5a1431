"""The data folder of a broker: its layout, and the locks that keep a second one out.

Owns `tidemark.lock` and `node-<id>.lock` (held by flock for the life of the process, so a killed
one leaves no stale lock) and `format.json` (which layout version wrote the folder). It never looks
into the log or the metadata.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

LAYOUT_VERSION = 1
PID_BYTES = 32
"""Always as many, so that a pid is replaced in one write and needs no new space."""


class DataFolderError(Exception):
    """The folder cannot be used; the message is one sentence for the person who started us."""


@dataclass(frozen=True, slots=True)
class DataFolder:
    """Where things are. What is below `root` belongs to one broker at a time, with its nodes."""

    root: Path

    @property
    def log(self) -> Path:
        return self.root / "wal"

    @property
    def metadata(self) -> Path:
        return self.root / "meta.sqlite"


@contextmanager
def hold(root: Path) -> Iterator[DataFolder]:
    """Make the folder if it is missing, and keep others out until the block ends."""
    with _held(root, "tidemark.lock", "stop it, or pass another --data-dir"):
        yield DataFolder(root)


@contextmanager
def hold_node(root: Path, node_id: int) -> Iterator[DataFolder]:
    """Share the folder with a coordinator and other nodes, as the only node of this id."""
    with _held(root, f"node-{node_id}.lock", "stop it, or pass another --node-id"):
        yield DataFolder(root)


@contextmanager
def _held(root: Path, lock_file: str, mend: str) -> Iterator[None]:
    try:
        _make(root)
        lock = os.open(root / lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise DataFolderError(f"cannot use data folder {root}: {error.strerror}") from error
    try:
        what = f"data folder {root}" if lock_file == "tidemark.lock" else f"{root / lock_file}"
        _take(lock, what, mend)
        _check_layout(root)
        yield
    finally:
        os.close(lock)


def _make(folder: Path) -> None:
    """The folder and those above it, each name made to survive a power cut."""
    if not folder.is_dir():
        _make(folder.absolute().parent)
        folder.mkdir(exist_ok=True)
        _sync(folder.absolute().parent)


def _take(lock: int, what: str, mend: str) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(lock, PID_BYTES, 0).decode(errors="replace").strip() or "unknown"
        raise DataFolderError(f"{what} is in use by process {holder}; {mend}") from None
    with suppress(OSError):  # the lock is held; on a full disk its holder stays unnamed
        os.pwrite(lock, f"{os.getpid()}\n".ljust(PID_BYTES).encode(), 0)


def _check_layout(root: Path) -> None:
    path = root / "format.json"
    try:
        if not path.exists():
            _write_durably(path, json.dumps({"layout": LAYOUT_VERSION}) + "\n")
            return
        found = json.loads(path.read_text())["layout"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataFolderError(f"cannot read {path}: {error}") from error
    if found != LAYOUT_VERSION:
        raise DataFolderError(
            f"data folder {root} has layout version {found}; this program reads {LAYOUT_VERSION}"
        )


def _write_durably(path: Path, text: str) -> None:
    # A coordinator and its nodes may find the folder new at the same moment.
    draft = path.with_suffix(f".{os.getpid()}.new")
    with draft.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    _sync(path.parent)


def _sync(folder: Path) -> None:
    """Make names in the folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
