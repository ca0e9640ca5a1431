"""What one log holds of each vchannel: read once from its segments, then counted as it is appended.

The log is a run of stretches. Those of segments that were there before are read; what is appended
later is counted into stretches that grow, which become the stretch of their segment once that is
sealed. So a running broker reads a segment again only after it was written anew.

Bytes are those of the records as they are stored, of transactions that were rolled back, too; but
not what is purged, whose space comes back later. A stretch across a purge counts by its ids until
`refine` says how much it is.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from broker.core.space.retention_due import HEAD_BYTES
from broker.model.ids import MessageId
from broker.model.message import MessageType
from broker.model.record import Record
from broker.model.retention.dead import Contents
from broker.model.retention.policy import SealedSegment

GRAIN_BYTES: Final = 256 * 1024
"""A growing stretch ends there. One that lies in two segments counts by its ids."""
PARTS_MAX: Final = 1 << 18
"""Of vchannels in sealed segments, about 20 MB; from there on no more segments are read.

From twice as many on the oldest segments are left out, so this is at most about 40 MB. What grows
is that of one segment, and has a part for each vchannel in each 256 KiB.
"""
_TXN_BYTES, _BATCH_BYTES = 32, 28
GROWS: Final = -1


@dataclass(slots=True)
class _Stretch:
    """Ids from `base_id` to below `end_id`. `size_bytes`: that of its segment, or GROWS."""

    base_id: MessageId
    end_id: MessageId
    size_bytes: int = GROWS
    bytes: dict[str, int] = field(default_factory=dict)
    appended: int = 0


@dataclass(frozen=True, slots=True)
class Straddled:
    """A vchannel of whose stretch, the one that ends at `end_id`, a part is purged.

    `floor`: what lies below is purged. `bytes`: of the stretch before, so at most.
    """

    vchannel: str
    floor: MessageId
    end_id: MessageId
    bytes: int


@dataclass(slots=True)
class _Counting:
    """What is known since counting began. `begun`: records from this id on are counted.

    All ids from `from_id` to `until_id` are in `grown`.
    """

    begun: MessageId
    from_id: MessageId
    until_id: MessageId
    sealed: dict[MessageId, _Stretch] = field(default_factory=dict)
    grown: list[_Stretch] = field(default_factory=list)

    def is_cut_by(self, ends: Iterable[MessageId]) -> bool:
        """Whether any lies within what the active segment held: a share by ids may be far off."""
        base_id = self.grown[0].base_id if self.grown else self.begun
        return any(base_id < it < self.begun for it in ends)

    def stretches(self) -> list[_Stretch]:
        return [*self.sealed.values(), *self.grown]


class LogSizes:
    """Of one opened log; costs nothing before `begin`."""

    def __init__(self, parts_max: int = PARTS_MAX) -> None:
        self.wanted = False
        """Whether somebody wants it; then who reads the log calls `begin`."""
        self.unread: list[SealedSegment] = []
        """Segments to read, for `read`."""
        self.straddled: list[Straddled] = []
        """To be refined, if that is worth reading the heads."""
        self.left_out = 0
        """Segments that are not counted, because there are too many vchannels in segments."""
        self._parts_max = parts_max
        self._looked: Sequence[SealedSegment] | None = None
        """Those in the figures, as the log told them: it tells others when any has changed."""
        self._at: _Counting | None = None
        self._active_read = False
        self._totals: dict[str, int] = {}
        self._floors: dict[str, MessageId] = {}

    @property
    def counting(self) -> bool:
        """Whether `begin` was called."""
        return self._at is not None

    @property
    def complete(self) -> bool:
        """Whether nothing of the log is still to be read. Segments that are left out never are."""
        return self._active_read and not self.unread

    def warning(self, log: str) -> str:
        """What an operator should know of this log; "": nothing."""
        if not self.left_out:
            return ""
        return (
            f"{log}: {self.left_out} segments are not counted for limits of storage, because the"
            f" others have {self._parts_max} vchannels in them, added up; raise segment_bytes, or"
            " have fewer collections"
        )

    def begin(self, next_id: MessageId) -> None:
        """Count records from this id on; read the active segment now, then call `read_active`."""
        self._at = _Counting(next_id, next_id, next_id)

    def stop(self) -> None:
        """Forget everything: nobody wants it any more, or the log cannot be read."""
        self._at, self._active_read, self.wanted = None, False, False
        self.unread, self.straddled, self.left_out, self._looked = [], [], 0, None
        self._totals, self._floors = {}, {}

    def bytes_of(self, vchannel: str) -> int:
        """What is known to be stored of a vchannel."""
        return self._totals.get(vchannel, 0)

    def vchannels(self) -> list[str]:
        """Those of which something is stored."""
        return [*self._totals]

    def stored(self, records: Sequence[Record]) -> None:
        """These have become durable, in the order of the log, without a gap."""
        at = self._at
        if at is None:
            return
        for record in records:
            # Those of the group that was written when it began were read with the active segment.
            if record.base_id >= at.begun:
                if self._counts(record):
                    self._grow(at, record)
                at.until_id = record.next_id

    def read_active(self, contents: Contents | None, base_id: MessageId) -> None:
        """What the active segment, which began at `base_id`, held when `begin` was called.

        None: it was sealed meanwhile, and is read as a sealed one.
        """
        at = self._at
        if at is None:
            return
        self._active_read = True
        if contents is not None and base_id < at.begun:
            at.from_id = base_id
            stretch = _Stretch(base_id, at.begun)
            at.grown.insert(0, stretch)
            self._fill(stretch, contents, at.begun)

    def look(self, segments: Sequence[SealedSegment], first_id: MessageId) -> None:
        """The sealed segments now: forget those that are gone, and find out which to read."""
        at = self._at
        if at is None or (self._looked is segments and not self.unread):
            return
        if not segments and any(it > first_id for it in at.sealed):
            return  # the log is being moved, and does not tell them meanwhile
        self._looked = segments
        here = {it.next_id for it in segments}
        for end_id in [it for it in at.sealed if it not in here]:
            self._forget(at.sealed.pop(end_id))
        was_cut = at.is_cut_by({first_id, *here})
        for gone in self._cut(at, first_id):  # sealed and removed since the last look
            self._forget(gone)
        unread = self._unread(at, segments, first_id)
        active_id = segments[-1].next_id if segments else first_id
        if self._active_read and (active_id < at.from_id or was_cut):
            # The log was moved, and its active segment begins elsewhere there.
            self.stop()
            self.wanted = True
            return
        self._bound(at, unread)

    def _unread(
        self, at: _Counting, segments: Sequence[SealedSegment], first_id: MessageId
    ) -> list[SealedSegment]:
        """Those that are not known as they are; what has grown since is taken for its segment."""
        unread, base_id = list[SealedSegment](), first_id
        for segment in segments:
            known = at.sealed.get(segment.next_id)
            if known is not None:
                if known.size_bytes != segment.size_bytes:
                    unread.append(segment)
            elif at.from_id > base_id:
                unread.append(segment)
            elif segment.next_id <= at.until_id:
                self._seal(at, segment, base_id)
            else:  # its last records are still to be shown
                self._looked = None
            base_id = segment.next_id
        return unread

    def _bound(self, at: _Counting, unread: Sequence[SealedSegment]) -> None:
        """Leave out the oldest of too many segments, and decide which of those unread to read."""
        parts = sum([len(it.bytes) for it in at.sealed.values()])
        crowded, gone = parts >= self._parts_max, set[MessageId]()
        while parts > 2 * self._parts_max:
            oldest = min(at.sealed)
            parts -= len(at.sealed[oldest].bytes)
            if parts < self._parts_max:  # it would be read again at once
                break
            self._forget(at.sealed.pop(oldest))
            gone.add(oldest)
        left = [it for it in unread if it.next_id not in gone]
        self.unread = [it for it in left if it.next_id in at.sealed] if crowded else left
        self.left_out = len(left) - len(self.unread) + len(gone)

    def read(self, segment: SealedSegment, base_id: MessageId, contents: Contents) -> None:
        """What a segment of `unread` holds; it begins at `base_id`."""
        at, end_id = self._at, segment.next_id
        if at is None:
            return
        self.unread = [it for it in self.unread if it.next_id != end_id]
        if (before := at.sealed.get(end_id)) is not None:
            self._forget(before)
        stretch = at.sealed[end_id] = _Stretch(base_id, end_id, segment.size_bytes)
        self._fill(stretch, contents, end_id)
        if at.from_id < end_id:
            for it in self._cut(at, end_id):
                self._forget(it)
            at.from_id = end_id

    def purged(self, vchannel: str, floor: MessageId) -> None:
        """What a vchannel has below this id is purged. A lower one than before changes nothing."""
        before = self._floors.get(vchannel, MessageId(0))
        if self._at is None or floor <= before:
            return
        self._floors[vchannel] = floor
        for stretch in self._at.stretches():
            base_id = max(stretch.base_id, before)
            if base_id < floor and vchannel in stretch.bytes:
                self._lower(stretch, vchannel, base_id, stretch.end_id)

    def refine(self, found: Straddled, size: int) -> None:
        """What a straddled stretch has above the floor; in vain once either has changed."""
        if self._at is None or self._floors.get(found.vchannel) != found.floor:
            return
        for stretch in self._at.stretches():
            if stretch.end_id == found.end_id and found.vchannel in stretch.bytes:
                self._put(stretch, found.vchannel, min(size, found.bytes))

    def _counts(self, record: Record) -> bool:
        if record.kind == MessageType.TIME_TICK or not record.vchannel:
            return False
        return not self._floors or record.next_id > self._floors.get(record.vchannel, 0)

    def _grow(self, at: _Counting, record: Record) -> None:
        last = at.grown[-1] if at.grown else None
        if last is None or last.base_id < at.begun or last.appended >= GRAIN_BYTES:
            last = _Stretch(record.base_id, record.next_id)
            at.grown.append(last)
        size = stored_bytes(record)
        last.end_id = record.next_id
        last.appended += size
        self._put(last, record.vchannel, last.bytes.get(record.vchannel, 0) + size)

    def _seal(self, at: _Counting, segment: SealedSegment, base_id: MessageId) -> None:
        stretch = _Stretch(base_id, segment.next_id, segment.size_bytes)
        at.sealed[segment.next_id] = stretch
        for part in self._cut(at, segment.next_id):
            for vchannel, size in part.bytes.items():
                stretch.bytes[vchannel] = stretch.bytes.get(vchannel, 0) + size
        at.from_id = segment.next_id

    def _cut(self, at: _Counting, end_id: MessageId) -> list[_Stretch]:
        """Take out what has grown below an id, of a stretch across it its share."""
        below = [it for it in at.grown if it.end_id <= end_id]
        at.grown = [it for it in at.grown if it.end_id > end_id]
        if at.grown and (across := at.grown[0]).base_id < end_id:
            share, whole = end_id - across.base_id, across.end_id - across.base_id
            part = {name: size * share // whole for name, size in across.bytes.items()}
            across.bytes = {name: size - part[name] for name, size in across.bytes.items()}
            below.append(_Stretch(across.base_id, end_id, bytes=part))
            across.base_id = end_id
        return below

    def _fill(self, stretch: _Stretch, contents: Contents, end_id: MessageId) -> None:
        for vchannel, part in contents.items():
            # Beyond the end: appended while it was read, and counted already.
            next_id = min(part.next_id, end_id)
            if not vchannel or part.base_id >= next_id:
                continue
            share, whole = next_id - part.base_id, part.next_id - part.base_id
            self._put(stretch, vchannel, part.bytes * share // whole)
            if part.base_id < self._floors.get(vchannel, 0):
                self._lower(stretch, vchannel, part.base_id, next_id)

    def _lower(
        self, stretch: _Stretch, vchannel: str, base_id: MessageId, end_id: MessageId
    ) -> None:
        """Leave out what lies below the floor of what has these ids, which begin below it."""
        before, floor = stretch.bytes[vchannel], self._floors[vchannel]
        if end_id <= floor:
            self._put(stretch, vchannel, 0)
            return
        self.straddled.append(Straddled(vchannel, floor, stretch.end_id, before))
        self._put(stretch, vchannel, before * (end_id - floor) // (end_id - base_id))

    def _put(self, stretch: _Stretch, vchannel: str, size: int) -> None:
        self._add(vchannel, size - stretch.bytes.pop(vchannel, 0))
        if size:
            stretch.bytes[vchannel] = size

    def _forget(self, stretch: _Stretch) -> None:
        for vchannel, size in stretch.bytes.items():
            self._add(vchannel, -size)

    def _add(self, vchannel: str, size: int) -> None:
        total = self._totals.get(vchannel, 0) + size
        if total:
            self._totals[vchannel] = total
        else:
            self._totals.pop(vchannel, None)


def stored_bytes(record: Record) -> int:
    """About how many bytes a record takes in the log."""
    size = HEAD_BYTES + len(record.vchannel) + 4 * len(record.sizes) + len(record.body)
    if record.txn is not None:
        size += _TXN_BYTES
    batch = record.batch
    if batch is not None:
        sizes = len(batch.keys.sizes) + len(batch.own.sizes)
        producer = 0 if batch.producer is None else len(batch.producer.producer)
        size += _BATCH_BYTES + batch.shared_bytes + 4 * sizes + producer
    return size
