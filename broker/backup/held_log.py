"""Keeps the log files of a live broker while they are copied: each gets a second name.

Retention and new owners remove names, not files, so a hard link keeps the bytes without the broker
having to know, and costs no space until then. The links lie in a folder below the log's own, so
they are on its file system. One that a killed backup left is removed by the next backup and by the
next start of the broker; until then it keeps disk space from being freed.
"""

import fcntl
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Set
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from broker.backup.backup_failed import BackupFailed

PREFIX: Final = ".backup-"
MARK: Final = ".first"
SEGMENT: Final = ".log"
SUFFIXES: Final = (SEGMENT, ".index")
LISTINGS_MAX: Final = 100
"""A file may vanish between the listing and its link; each new listing follows a truncation."""


def names_in(folder: Path) -> list[str]:
    """The files of a log."""
    return [it.name for it in folder.iterdir()]


class HeldLog:
    """A folder of links below `log`, until the block ends. Raises BackupFailed."""

    def __init__(self, log: Path, listed: Callable[[Path], list[str]] = names_in) -> None:
        self._log = log
        self._listed = listed
        self.folder = log / f"{PREFIX}{secrets.token_hex(4)}"
        self._lock = -1

    def __enter__(self) -> Self:
        remove_left_behind(self._log)
        try:
            self.folder.mkdir()
            self._lock = os.open(self.folder, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        except OSError as error:
            raise _cannot_hold(self._log, error) from error
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        # Removed before the lock is released: a second backup would remove it, too.
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)

    def link_from_start(self, pchannels: Iterable[str]) -> None:
        """Link every file, and the marks of what retention has removed.

        Called before the metadata is read. So whatever a snapshot in it needs is held, because
        retention keeps what the newest snapshot needs, and the one that is read is as new or newer.
        """
        for name in pchannels:
            for _ in range(LISTINGS_MAX):
                if not self._vanished(name, (*SUFFIXES, MARK)):
                    break
                # Not whole: a file went away. With it a new mark came, so the links start anew.
                shutil.rmtree(self.folder / name, ignore_errors=True)
            else:
                raise BackupFailed(f"{self._log / name} changes all the time; try again")

    def link_new(self, pchannels: Iterable[str]) -> None:
        """Link the files that came since; not the marks: the first links still hold everything.

        Nor new editions of segments that are held: what they lack was dropped or purged behind the
        metadata and the cut. Of a new segment that was written anew already it is not known what
        was removed behind the cut, so such a backup fails.
        """
        for name in pchannels:
            held = _held(self.folder / name)
            vanished = self._vanished(name, SUFFIXES, among=held)
            gone = [it for it in vanished if it.endswith(SEGMENT)]
            if gone:
                # What came behind it may be there: without this file the copy would have a hole.
                cause = f"retention removed {gone[0]}, which was new, while it was copied"
                raise BackupFailed(f"{self._log / name}: {cause}; keep more, and try again")
            anew = sorted(it for it in _held(self.folder / name, _is_anew) if it not in held)
            if anew:
                cause = f"segment {anew[0]}, which was new, was written anew while it was copied"
                raise BackupFailed(f"{self._log / name}: {cause}; try again")

    def _vanished(
        self, pchannel: str, suffixes: tuple[str, ...], among: Set[str] = frozenset()
    ) -> list[str]:
        """Link what has no link yet, except other editions of the segments `among`.

        Returns the files that went away before that.
        """
        source, target = self._log / pchannel, self.folder / pchannel
        try:
            names = [it for it in self._listed(source) if it.endswith(suffixes)]
        except FileNotFoundError:
            return []  # no owner has opened this log yet
        gone: list[str] = []
        try:
            target.mkdir(exist_ok=True)
            linked = {it.name for it in target.iterdir()}
            # One that has its link may go: the link stays.
            new = [it for it in names if it not in linked and not _is_edition(it, among)]
            gone += [it for it in new if not _is_linked(source / it, target / it)]
        except OSError as error:
            raise _cannot_hold(source, error) from error
        return gone


def _held(folder: Path, which: Callable[[str], bool] = bool) -> Set[str]:
    """The segments of which such a file is linked."""
    if not folder.is_dir():
        return frozenset()
    names = (it.name for it in folder.iterdir() if it.suffix == SEGMENT)
    return {_segment_of(it) for it in names if which(it)}


def _is_edition(file_name: str, among: Set[str]) -> bool:
    """Whether it is of one of these segments, and not of the file that it was first written to."""
    return _segment_of(file_name) in among and _is_anew(file_name)


def _is_anew(file_name: str) -> bool:
    return file_name.partition(".")[0] != _segment_of(file_name)


def _segment_of(file_name: str) -> str:
    """First id and term, which all editions of a segment have in common."""
    return "-".join(file_name.partition(".")[0].split("-")[:2])


def _is_linked(source: Path, target: Path) -> bool:
    """False when there is no such file any more."""
    try:
        os.link(source, target)
    except FileNotFoundError:
        return False
    return True


def remove_left_behind(log: Path) -> None:
    """Remove the links of backups that were killed. Never fails: it is tried again next time."""
    for folder in log.glob(f"{PREFIX}*"):
        with suppress(OSError):
            lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _cannot_hold(folder: Path, error: OSError) -> BackupFailed:
    return BackupFailed(
        f"cannot keep the files of {folder} with hard links: {error.strerror};"
        " run the backup as the user of the broker, on a file system with hard links"
    )
