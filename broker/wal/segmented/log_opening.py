"""Recovery of a log folder: finds the chain of segments and where the log ends. Read-only.

Runs after the claim, so it sees everything that earlier owners acknowledged.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from broker.model.ids import FIRST_MESSAGE_ID, MessageId, Term, TimeTick
from broker.ports.files import Files
from broker.ports.wal import Corrupt
from broker.wal.segmented.index import SparseIndex
from broker.wal.segmented.record_format import BadRecord, Window, salt_of
from broker.wal.segmented.scan import OnDamage, scan_tail
from broker.wal.segmented.segment import (
    HEADER_BYTES,
    Link,
    LogSegment,
    SegmentHeader,
    SegmentName,
)

FIRST_SUFFIX = ".first"
LEFTOVER_SUFFIXES = (".log", ".index", ".new", FIRST_SUFFIX)


@dataclass(slots=True)
class RecoveredLog:
    """The log up to its end. `unindexed`: the new indexes of segments that were scanned."""

    sealed: tuple[LogSegment, ...] = ()
    next_id: MessageId = FIRST_MESSAGE_ID
    last_tick: TimeTick = TimeTick(0)
    last_term: Term = Term(0)
    removed_tick: TimeTick = TimeTick(0)
    link: Link | None = None
    unindexed: dict[SegmentName, SparseIndex] = field(default_factory=dict)
    leftovers: tuple[str, ...] = ()


class LogRecovery:
    """Recovers one log folder. Use once."""

    def __init__(
        self, files: Files, folder: str, index_spacing_bytes: int, on_damage: OnDamage
    ) -> None:
        self._files, self._folder, self._on_damage = files, folder, on_damage
        self._spacing_bytes = index_spacing_bytes
        self._names: Sequence[str] = ()
        self._editions: dict[SegmentName, SegmentName] = {}
        self._unindexed: dict[SegmentName, SparseIndex] = {}
        self._headers: dict[SegmentName, SegmentHeader] = {}
        self._damaged = False

    def run(self) -> RecoveredLog:
        """Recover. Raises Corrupt or UnknownFormat, and OSError when the disk fails."""
        self._names = self._files.list(self._folder)
        found = {name for name in map(SegmentName.of, self._names) if name}
        if not found:
            return RecoveredLog(next_id=self._mark(), leftovers=self._leftovers(()))
        # Sorted, so that the newest edition of each segment stays.
        self._editions = {name.original: name for name in sorted(found)}
        chain = self._chain(found)
        head, recovered = chain[-1], RecoveredLog()
        recovered.next_id, recovered.last_tick = head.next_id, head.last_tick
        recovered.last_term = head.last_term
        recovered.removed_tick = self._header(chain[0].name).last_tick
        if head.size_bytes:
            recovered.link = Link(head.name, head.end)
        else:
            # An empty head holds nothing: the new segment takes its place in the chain, or each
            # restart of an idle log would leave one more file.
            recovered.link = self._header(head.name).previous
            chain.pop()
        recovered.sealed = tuple(chain)
        recovered.unindexed = {
            s.name: self._unindexed[s.name] for s in chain if s.name in self._unindexed
        }
        recovered.leftovers = self._leftovers(chain)
        return recovered

    def _chain(self, found: set[SegmentName]) -> list[LogSegment]:
        """The segments, oldest first, found from the newest back to the first id."""
        mark = self._mark()
        header = self._header(max(found))
        chain = [self._tail(header)]
        # Segments below the mark were truncated; a crash may have left their files.
        while header.previous is not None and chain[-1].base_id > mark:
            link, above = header.previous, header
            if link.name in self._editions:
                header = self._header(self._editions[link.name])
                chain.append(_sealed(link, header, above))
            else:
                self._report(Corrupt(self._path(link.name), 0, "the segment file is missing"))
                # Damage is skipped, or `_report` would have raised: continue with the next older
                # file.
                before = self._newest_before(above.name)
                if before is None:
                    break
                header = self._header(before)
                chain.append(self._tail(header))
            self._refuse_short(chain[-1])
        return chain[::-1]

    def _tail(self, header: SegmentHeader) -> LogSegment:
        """A segment that no later header seals: its end is in its index, or found by a scan."""
        # An index is stored when its segment is sealed, so it names the end and no scan is needed.
        indexed = self._stored_index(header)
        if indexed is not None:
            self._refuse_short(indexed)
            return indexed
        path = self._path(header.name)
        file = self._files.open(path)
        try:
            # After a failed sync the page cache may hold data that never reached the disk. Drop it
            # and read the disk, so that what is recovered now survives the next crash.
            file.sync()
            file.forget()
            index = SparseIndex(self._spacing_bytes)
            tail = scan_tail(file, path, header, index, self._report)
            file.sync()  # a fenced owner may have written during the scan
        finally:
            file.close()
        self._unindexed[header.name] = tail.index
        return tail.segment

    def _report(self, damage: Corrupt) -> None:
        """Raise, or with `skip_damage` remember it: then no leftovers are removed."""
        self._on_damage(damage)
        self._damaged = True

    def _header(self, name: SegmentName) -> SegmentHeader:
        if name not in self._headers:
            try:
                self._headers[name] = read_header(self._files, self._path(name), name)
            except Corrupt as damage:
                self._report(damage)
                self._headers[name] = self._rebuilt_header(name)
        return self._headers[name]

    def _rebuilt_header(self, name: SegmentName) -> SegmentHeader:
        """A header rebuilt from the first record and the segment before, for a damaged one."""
        before = self._newest_before(name)
        below = self._tail(self._header(before)) if before else None
        file = self._files.open(self._path(name))
        try:
            # Only the header has the salt; the checksum of the first record gives it back.
            salt = salt_of(Window(file, self._path(name), file.size(), HEADER_BYTES), HEADER_BYTES)
        except BadRecord:
            salt = 0
        finally:
            file.close()
        link = Link(below.name, below.end) if below else None
        tick, term = (below.last_tick, below.last_term) if below else (TimeTick(0), Term(0))
        return SegmentHeader("", name, salt, link, tick, term)

    def _newest_before(self, name: SegmentName) -> SegmentName | None:
        found = (other for other in map(SegmentName.of, self._names) if other)
        older = [o for o in found if o.base_id < name.base_id and o.term <= name.term]
        return max(older, default=None)

    def _stored_index(self, header: SegmentHeader) -> LogSegment | None:
        if header.name.index_file not in self._names:
            return None
        data = read_all(self._files, f"{self._folder}/{header.name.index_file}")
        decoded = SparseIndex.decode(data, header.name, header.salt, self._spacing_bytes)
        return decoded[1] if decoded else None

    def _refuse_short(self, segment: LogSegment) -> None:
        path = self._path(segment.name)
        file = self._files.open(path)
        try:
            size = file.size()
        finally:
            file.close()
        if size < segment.end:
            self._report(
                Corrupt(path, size, f"the file ends before byte {segment.end}, where it was sealed")
            )

    def _mark(self) -> MessageId:
        return first_mark(self._names)

    def _leftovers(self, chain: Sequence[LogSegment]) -> tuple[str, ...]:
        kept = {s.name.log_file for s in chain} | {s.name.index_file for s in chain}
        kept.add(mark_name(self._mark()))
        suffixes = (".new",) if self._damaged else LEFTOVER_SUFFIXES
        return tuple(n for n in self._names if n.endswith(suffixes) and n not in kept)

    def _path(self, name: SegmentName) -> str:
        return f"{self._folder}/{name.log_file}"


def _sealed(link: Link, header: SegmentHeader, above: SegmentHeader) -> LogSegment:
    next_id, tick, term = above.name.base_id, above.last_tick, above.last_term
    # Each edition is shorter than the one before, and so is the front part of one in a backup: of
    # two ends the smaller one is that of the file.
    end = min(link.end, header.end or link.end)
    return LogSegment(header.name, header.salt, end, next_id, tick, term)


def read_header(files: Files, path: str, name: SegmentName) -> SegmentHeader:
    """A segment's header; Corrupt when it is damaged or belongs to another file."""
    file = files.open(path)
    try:
        header = SegmentHeader.decode(file.read(0, HEADER_BYTES), path)
    finally:
        file.close()
    if header.name != name:
        raise Corrupt(path, 0, f"the header belongs to {header.name.log_file}")
    return header


def read_all(files: Files, path: str) -> bytes:
    """A small file, whole."""
    file = files.open(path)
    try:
        return file.read(0, file.size())
    finally:
        file.close()


def first_mark(names: Sequence[str]) -> MessageId:
    """The first id that truncation left: the highest name of a `.first` file."""
    stems = (n.removesuffix(FIRST_SUFFIX) for n in names if n.endswith(FIRST_SUFFIX))
    return MessageId(max((int(s) for s in stems if s.isdecimal()), default=FIRST_MESSAGE_ID))


def mark_name(first_id: MessageId) -> str:
    """The name of the file that records a first id."""
    return f"{first_id:020d}{FIRST_SUFFIX}"
