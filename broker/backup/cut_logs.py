"""Finds what each held log has up to the tick: segments that are kept whole, and a last one."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from broker.backup.backup_failed import BackupFailed
from broker.core.backup.log_cut import (
    CutEnd,
    RecordPlace,
    SplitRecord,
    end_up_to,
    whole_segments,
)
from broker.model.ids import MessageId, TimeTick
from broker.ports.files import ReadableFile
from broker.ports.wal import Corrupt, UnknownFormat
from broker.wal.inspect import UntouchedFiles
from broker.wal.segmented.formats.gap_format import Gap
from broker.wal.segmented.index import SparseIndex
from broker.wal.segmented.log_opening import LogRecovery, RecoveredLog
from broker.wal.segmented.os_files import OsFile, OsFiles
from broker.wal.segmented.scan import entries_in, records_in, refuse
from broker.wal.segmented.segment import HEADER_BYTES, LogSegment
from broker.wal.segmented.settings import DEFAULTS

READS_MAX = 3
"""The newest file grows while it is read: what looks like damage there is gone at the next read."""


@dataclass(frozen=True, slots=True)
class CutLog:
    """One pchannel up to a tick. `whole`: how many of the segments are sealed as they are."""

    pchannel: str
    segments: tuple[LogSegment, ...]
    whole: int
    end: CutEnd

    @property
    def first_id(self) -> MessageId:
        return self.segments[0].base_id if self.segments else self.end.next_id

    @property
    def bytes(self) -> int:
        return sum(segment.end for segment in self.segments)


def cut_log(root: Path, pchannel: str, tick: TimeTick) -> CutLog:
    """The log in `root/pchannel` up to the tick. Raises BackupFailed for a damaged one."""
    files = UntouchedFiles(root)
    try:
        found = _recovered(files, pchannel)
        return _cut(files, pchannel, found, tick)
    except Corrupt as damage:
        raise BackupFailed(
            f"the log is damaged: {damage}; `tidemark wal verify` lists all such places."
            " Restore an earlier backup, or stop the broker and copy its folder as it is"
        ) from damage
    except (UnknownFormat, SplitRecord) as error:
        raise BackupFailed(f"cannot back up {pchannel}: {error}") from error
    except OSError as error:
        raise BackupFailed(f"cannot read the log of {pchannel}: {error}") from error


def checked_index(path: Path, segment: LogSegment, name: str) -> bytes:
    """Read every record of a copied segment; returns its index as a broker stores it.

    Raises BackupFailed for a damaged one, with `name` as the file.
    """
    index = SparseIndex(_SPACING)
    file = OsFile(path, os.O_RDONLY)
    try:
        for stored in records_in(file, name, segment, refuse):
            index.add(stored.base_id, stored.base_tick, stored.offset)
    except (Corrupt, UnknownFormat) as damage:
        raise BackupFailed(
            f"the log is damaged: {damage}; `tidemark wal verify` lists all such places"
        ) from damage
    finally:
        file.close()
    return index.encode(segment)


def recovered_end(root: Path, pchannel: str) -> CutEnd:
    """Where the log in `root/pchannel` ends when a broker opens it. Raises BackupFailed."""
    try:
        found = LogRecovery(UntouchedFiles(root), pchannel, _SPACING, refuse).run()
    except (Corrupt, UnknownFormat, OSError) as error:
        raise BackupFailed(f"the log of {pchannel} does not open: {error}") from error
    return CutEnd(0, found.next_id, found.last_tick, found.last_term)


_SPACING = DEFAULTS.index_spacing_bytes


def _recovered(files: OsFiles, pchannel: str) -> RecoveredLog:
    for attempt in range(READS_MAX):
        try:
            return LogRecovery(files, pchannel, _SPACING, refuse).run()
        except Corrupt:
            if attempt == READS_MAX - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def _cut(files: OsFiles, pchannel: str, found: RecoveredLog, tick: TimeTick) -> CutLog:
    whole = whole_segments([it.last_tick for it in found.sealed], tick)
    kept = list(found.sealed[:whole])
    if whole == len(found.sealed):
        offset = kept[-1].end if kept else HEADER_BYTES
        end = CutEnd(offset, found.next_id, found.last_tick, found.last_term)
        return CutLog(pchannel, tuple(kept), whole, end)
    split = found.sealed[whole]
    end = _end_in(files, pchannel, split, kept[-1] if kept else None, tick)
    if end.offset > HEADER_BYTES:
        kept.append(
            replace(
                split,
                end=end.offset,
                next_id=end.next_id,
                last_tick=end.last_tick,
                last_term=end.last_term,
            )
        )
    return CutLog(pchannel, tuple(kept), whole, end)


def _end_in(
    files: OsFiles, pchannel: str, segment: LogSegment, before: LogSegment | None, tick: TimeTick
) -> CutEnd:
    """The end of the last record up to the tick in a segment that goes beyond it."""
    tick_before = before.last_tick if before else TimeTick(0)
    term_before = before.last_term if before else segment.name.term
    start = CutEnd(HEADER_BYTES, segment.base_id, tick_before, term_before)
    path = f"{pchannel}/{segment.name.log_file}"
    file = files.open(path)
    try:
        return end_up_to(_places(file, path, segment), tick, start)
    finally:
        file.close()


def _places(file: ReadableFile, path: str, segment: LogSegment) -> Iterator[RecordPlace]:
    for entry in entries_in(file, path, segment, refuse):
        behind = CutEnd(entry.end, entry.next_id, entry.last_tick, entry.term)
        # Of a gap nothing is left to split: one across the tick lies behind the cut.
        base_tick = entry.last_tick if isinstance(entry, Gap) else entry.base_tick
        yield RecordPlace(base_tick, behind)
