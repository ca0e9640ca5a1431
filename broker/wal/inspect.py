"""Inspects stored logs: every record as a row, every damage with its place.

Read-only and without a claim, so it is safe on the log of a running broker; records appended
meanwhile may be missed. Used by `tidemark wal dump` and `tidemark wal verify`.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from broker.ports.wal import Corrupt, UnknownFormat
from broker.wal.segmented.formats.gap_format import Gap
from broker.wal.segmented.log_opening import LogRecovery, RecoveredLog
from broker.wal.segmented.os_files import OsFile, OsFiles
from broker.wal.segmented.scan import entries_in
from broker.wal.segmented.segment import LogSegment
from broker.wal.segmented.settings import DEFAULTS

LOOKS_MAX = 10
"""At a folder that a running broker changes meanwhile."""


@dataclass(frozen=True, slots=True)
class Row:
    """A stored record, or an unreadable place if `damage` is not empty."""

    file: str
    offset: int
    length: int = 0
    term: int = 0
    base_id: int = 0
    messages: int = 0
    base_tick: int = 0
    last_confirmed_id: int = 0
    group_id: int = 0
    kind: int = 0
    vchannel: str = ""
    body_bytes: int = 0
    damage: str = ""
    given_back: bool = False
    """A gap: ids without records."""
    removed: int = 0
    """Messages that compaction has removed from the record."""


@dataclass(frozen=True, slots=True)
class InspectionReport:
    """What `verify` found. `leftovers`: files that no owner will ever read."""

    logs: int
    segments: int
    records: int
    messages: int
    size_bytes: int
    damages: tuple[Row, ...]
    leftovers: tuple[str, ...]

    @property
    def healthy(self) -> bool:
        return not self.damages


@dataclass(frozen=True, slots=True)
class _Folder:
    """One log folder as recovery sees it."""

    path: Path
    files: "UntouchedFiles"
    found: RecoveredLog
    segments: tuple[LogSegment, ...]
    damages: tuple[Row, ...]


def dump(path: Path) -> Iterator[Row]:
    """The records of a segment file, a log folder, or a folder of logs; oldest first.

    Raises FileNotFoundError when there is no log at `path`.
    """
    for folder in _folders(path):
        yield from _rows(folder)


def verify(path: Path) -> InspectionReport:
    """Read everything at `path` and check it. Raises FileNotFoundError."""
    folders = list(_folders(path))
    records = messages = 0
    damages = list[Row]()
    for folder in folders:
        for row in _rows(folder):
            if row.damage:
                damages.append(row)
            elif not row.given_back:
                records, messages = records + 1, messages + row.messages
    segments = [segment for folder in folders for segment in folder.segments]
    return InspectionReport(
        logs=len(folders),
        segments=len(segments),
        records=records,
        messages=messages,
        size_bytes=sum(segment.size_bytes for segment in segments),
        damages=tuple(damages),
        leftovers=tuple(str(f.path / name) for f in folders for name in f.found.leftovers),
    )


def _folders(path: Path) -> Iterator[_Folder]:
    if path.is_file():
        yield _look(path.resolve().parent, path.name)
        return
    inner = [path] if any(path.glob("*.log")) else sorted({f.parent for f in path.glob("*/*.log")})
    if not inner:
        raise FileNotFoundError(
            f"{path}: no log here; name a .log file, its folder or the wal folder"
        )
    for folder in inner:
        yield _look(folder.resolve())


def _look(path: Path, only: str = "") -> _Folder:
    files, damages, found = UntouchedFiles(path.parent), list[Row](), RecoveredLog()
    for _ in range(LOOKS_MAX):
        names = files.list(path.name)
        damages.clear()
        recovery = LogRecovery(
            files, path.name, DEFAULTS.index_spacing_bytes, lambda d: damages.append(_damaged(d))
        )
        try:
            found = recovery.run()
        except UnknownFormat as damage:
            damages.append(_damaged(damage))
        except FileNotFoundError:
            continue  # it was removed since the folder was listed
        if not damages or files.list(path.name) == names:
            break
    return _Folder(
        path,
        files,
        found,
        tuple(s for s in found.sealed if only in ("", s.name.log_file)),
        tuple(d for d in damages if d.file.endswith(only)),
    )


def _rows(folder: _Folder) -> Iterator[Row]:
    yield from folder.damages
    # Recovery and the walk below meet the same damage; report it once.
    reported = {(row.file, row.offset) for row in folder.damages}
    for segment in folder.segments:
        for row in _segment_rows(folder, segment):
            if not row.damage or (row.file, row.offset) not in reported:
                yield row


def _segment_rows(folder: _Folder, segment: LogSegment) -> Iterator[Row]:
    name = f"{folder.path.name}/{segment.name.log_file}"
    damages = list[Row]()
    try:
        file = folder.files.open(name)
    except FileNotFoundError:
        # The broker truncated the log, or wrote the segment anew, since the folder was read.
        now = _look(folder.path)
        again = [it for it in now.segments if it.base_id == segment.base_id]
        if again and again[0].name != segment.name:
            yield from _segment_rows(now, again[0])
        elif not now.segments or segment.base_id >= now.segments[0].base_id:
            yield Row(name, 0, damage="the segment file is missing")
        return
    try:
        for stored in entries_in(file, name, segment, lambda d: damages.append(_damaged(d))):
            # Damage met on the way to this record lies before it.
            yield from damages
            damages.clear()
            if isinstance(stored, Gap):
                yield _gap_row(name, stored)
                continue
            record = stored.records[0]
            yield Row(
                file=name,
                offset=stored.offset,
                length=stored.end - stored.offset,
                term=record.term,
                base_id=stored.base_id,
                messages=sum([len(it.sizes) for it in stored.records]),
                base_tick=stored.base_tick,
                last_confirmed_id=record.last_confirmed_id,
                group_id=stored.group_id,
                kind=record.kind,
                vchannel=record.vchannel,
                body_bytes=sum([len(it.body) for it in stored.records]),
                removed=stored.next_id
                - stored.base_id
                - sum([len(it.sizes) for it in stored.records]),
            )
    except UnknownFormat as damage:
        damages.append(_damaged(damage))
    finally:
        file.close()
    yield from damages


def _gap_row(file: str, gap: Gap) -> Row:
    return Row(
        file,
        gap.offset,
        gap.end - gap.offset,
        gap.term,
        gap.base_id,
        gap.next_id - gap.base_id,
        gap.base_tick,
        given_back=True,
    )


def _damaged(damage: Corrupt | UnknownFormat) -> Row:
    if isinstance(damage, Corrupt):
        return Row(damage.file, damage.offset, damage=damage.reason)
    reason = f"format version {damage.found}; this program reads version {damage.known}"
    return Row(damage.file, 0, damage=reason)


class UntouchedFiles(OsFiles):
    """Opens files read-only and ignores recovery's syncs: those are for owners."""

    def open(self, path: str, *, create: bool = False) -> OsFile:
        return _UntouchedFile(self.root / path, os.O_RDONLY)


class _UntouchedFile(OsFile):
    def sync(self) -> None:
        """Nothing was written here."""

    def forget(self) -> None:
        """No failed write here left wrong pages in the cache."""
