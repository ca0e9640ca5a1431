"""Copies a live folder up to its tick into a new folder, durably; the manifest comes last."""

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from broker.backup.backup_failed import BackupFailed
from broker.backup.cut_logs import CutLog, checked_index, cut_log
from broker.backup.durable_files import (
    Progress,
    copy_front,
    digest_of,
    make_durably,
    sync,
    write_durably,
)
from broker.backup.live_folder import LiveFolder
from broker.backup.manifest import (
    LOG,
    MANIFEST,
    METADATA,
    BackupFile,
    BackupLog,
    Manifest,
    read_manifest,
    write_manifest,
)
from broker.core.backup.log_cut import CutEnd
from broker.model.ids import FIRST_MESSAGE_ID, TimeTick
from broker.ports.meta import MetaError
from broker.wal.segmented.log_opening import mark_name
from broker.wal.segmented.segment import HEADER_BYTES, LogSegment


@dataclass(frozen=True, slots=True)
class BackupFacts:
    """What the manifest says about the backup besides its files."""

    cluster: str
    taken_ms: int
    program: str


class Backup:
    """One backup. Use once: `plan`, then `take`. Raises BackupFailed."""

    def __init__(self, live: LiveFolder, tick: TimeTick, target: Path) -> None:
        self._live = live
        self._tick = tick
        self._target = target
        self._previous = Previous()
        self._files: list[BackupFile] = []
        self._logs: Sequence[CutLog] = ()
        self.linked_bytes = 0

    def plan(self, previous: Path | None = None) -> int:
        """Find out what is to be copied; returns how many bytes of log.

        `previous`: a backup whose files are linked instead of copied again where they are the same.
        """
        if self._target.exists() and (not self._target.is_dir() or any(self._target.iterdir())):
            raise BackupFailed(f"{self._target} is not an empty folder; name a new one")
        if previous is not None:
            self._previous = Previous.of(previous)
        root = self._live.held.folder
        self._logs = [cut_log(root, name, self._tick) for name in self._live.pchannels]
        return sum(log.bytes for log in self._logs)

    def take(self, facts: BackupFacts, progress: Progress) -> Manifest:
        """Copy. After an error, or Ctrl-C, nothing of the backup is left."""
        made: list[Path] = []
        try:
            made += make_durably(self._target)
            self._copy(progress)
            manifest = self._manifest(facts)
            # Last, and only when everything before is durable: it makes the folder a backup.
            write_manifest(self._target, manifest)
            return manifest
        except BaseException as error:
            self._remove(made)
            if isinstance(error, OSError):
                raise BackupFailed(f"cannot write the backup: {_sentence(error)}") from error
            if isinstance(error, MetaError):
                raise BackupFailed(f"cannot copy the metadata: {error}") from error
            raise

    def _copy(self, progress: Progress) -> None:
        for log in self._logs:
            folder = self._target / LOG / log.pchannel
            make_durably(folder)
            for number, segment in enumerate(log.segments):
                self._copy_segment(log, segment, progress, whole=number < log.whole)
            if log.first_id > FIRST_MESSAGE_ID:
                # Retention removed what lies before: without the mark it would count as missing.
                self._write(f"{LOG}/{log.pchannel}/{mark_name(log.first_id)}", b"")
            sync(folder)
        path = self._target / METADATA
        self._live.metadata.save(path)
        sync(path)
        self._files.append(
            BackupFile(METADATA, path.stat().st_size, digest_of(path, lambda _: None))
        )
        sync(self._target)

    def _copy_segment(
        self, log: CutLog, segment: LogSegment, progress: Progress, *, whole: bool
    ) -> None:
        short, folder = f"{log.pchannel}/{segment.name.log_file}", f"{LOG}/{log.pchannel}"
        name, index = f"{LOG}/{short}", f"{folder}/{segment.name.index_file}"
        source, target = self._live.held.folder / short, self._target / name
        if whole and self._previous.has(name, source, segment):
            linked = self._previous.link((name, index), self._target)
            if linked:
                self.linked_bytes += segment.end
                progress(segment.end)
                self._files += linked
                return
        digest = copy_front(source, target, segment.end, progress)
        self._files.append(BackupFile(name, segment.end, digest))
        # The copy is read, not the source: what is checked is what a restore will get.
        self._write(index, checked_index(target, segment, short))

    def _write(self, name: str, data: bytes) -> None:
        target = self._target / name
        write_durably(target, data)
        self._files.append(BackupFile(name, len(data), sha256(data).hexdigest()))

    def _manifest(self, facts: BackupFacts) -> Manifest:
        logs = {log.pchannel: _described(log.first_id, log.end) for log in self._logs}
        return Manifest(
            cluster=facts.cluster,
            cluster_id=self._live.cluster.identity,
            tick=self._tick,
            taken_ms=facts.taken_ms,
            program=facts.program,
            logs=logs,
            files=tuple(self._files),
        )

    def _remove(self, made: Sequence[Path]) -> None:
        shutil.rmtree(self._target / LOG, ignore_errors=True)
        for name in (METADATA, f"{METADATA}-journal", MANIFEST, f"{MANIFEST}.new"):
            with suppress(OSError):
                (self._target / name).unlink()
        for folder in reversed(made):
            with suppress(OSError):
                folder.rmdir()


@dataclass(frozen=True, slots=True)
class Previous:
    """An earlier backup, whose files may be linked."""

    folder: Path = Path()
    files: dict[str, BackupFile] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path) -> "Previous":
        """Raises BackupFailed when `folder` is no backup."""
        return cls(folder, {it.path: it for it in read_manifest(folder).files})

    def has(self, name: str, source: Path, segment: LogSegment) -> bool:
        """Whether it has this sealed segment whole."""
        known = self.files.get(name)
        if known is None or known.bytes != segment.end:
            return False
        # The header has a random salt, so equal headers are of one file, and it ends where sealed.
        return _head(self.folder / name) == _head(source) != b""

    def link(self, names: Sequence[str], target: Path) -> list[BackupFile]:
        """Link the files; none when that is not possible, as on another file system."""
        if any(name not in self.files for name in names):
            return []
        done: list[Path] = []
        try:
            for name in names:
                os.link(self.folder / name, target / name)
                done.append(target / name)
        except OSError:
            for path in done:
                path.unlink()
            return []
        return [self.files[name] for name in names]


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(HEADER_BYTES)
    except OSError:
        return b""


def _described(first_id: int, end: CutEnd) -> BackupLog:
    return BackupLog(first_id, end.next_id, end.last_tick, end.last_term)


def _sentence(error: OSError) -> str:
    return f"{error.filename or ''}: {error.strerror}".lstrip(": ")
