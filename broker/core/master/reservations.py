"""Reservations of rows in segments that writers outside of the log fill.

A reservation holds room for a number of rows until its tick has passed everywhere: then nobody can
still write rows with it. A segment takes rows of one partition and one range of channels. It is
sealed at a share of its rows or bytes, or when it is told to, and closed once every node has
processed what may have been written into it.

Nothing here is stored: the caller stores a new `SegmentMeta` first and gives it to `keep` then.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from broker.model.failure import Refusal, StreamingCode, invalid_argument
from broker.model.ids import TICK_LOGICAL_BITS, CollectionId, PartitionId, SegmentId, TimeTick
from broker.model.master.reservation import OpenReservations, ReservedRows, RowsWanted
from broker.model.master.segment_meta import SegmentMeta, SegmentMetaState, SegmentOrigin

MIB: Final = 1024 * 1024
ROW_BYTES: Final = 1024
"""Of a collection without a schema."""


@dataclass(frozen=True, slots=True)
class ReservationLimits:
    """How much one segment holds and how long a reservation lasts; the defaults are Milvus's."""

    segment_bytes: int = 512 * MIB
    seal_proportion: float = 0.75
    """Share of a segment's rows, or bytes, from which it is sealed."""
    expire_ms: int = 2000
    open_max: int = 4096
    """Open segments; a request that needs one more is refused until some are closed."""
    reservations_max: int = 100_000
    """Reservations that have not expired; one more is refused until some have."""


@dataclass(frozen=True, slots=True)
class ChannelRange:
    """The pchannels of numbers `first` to `last`."""

    first: int
    last: int


def channel_ranges(channels: int, query_nodes: int) -> tuple[ChannelRange, ...]:
    """Split channels 0 … n-1 as evenly as possible; the first n mod q ranges get one more.

    No more ranges than channels.
    """
    size, larger = divmod(channels, query_nodes)
    ranges: list[ChannelRange] = []
    first = 0
    for index in range(min(channels, query_nodes)):
        last = first + size - (0 if index < larger else 1)
        ranges.append(ChannelRange(first, last))
        first = last + 1
    return tuple(ranges)


_Place = tuple[CollectionId, PartitionId, int]
"""A partition and the first channel of a range."""


@dataclass(slots=True)
class _Reservation:
    rows: int
    size_bytes: int
    made_tick: TimeTick


@dataclass(slots=True)
class _OpenSegment:
    """`reserved`: by the tick at which they expire, in that order; `reserved_rows` in all."""

    meta: SegmentMeta
    reserved: dict[TimeTick, _Reservation] = field(default_factory=dict)
    reserved_rows: int = 0
    last_expire_tick: TimeTick = TimeTick(0)

    @property
    def free(self) -> int:
        return self.meta.rows_max - self.meta.rows - self.reserved_rows


class SegmentReservations:
    """The open segments, and what is reserved in them."""

    def __init__(
        self, ranges: Sequence[ChannelRange], limits: ReservationLimits | None = None
    ) -> None:
        self._ranges = tuple(ranges)
        self._limits = limits or ReservationLimits()
        self._open: dict[SegmentId, _OpenSegment] = {}
        self._at: dict[_Place, list[SegmentId]] = defaultdict(list)
        # Sums that every request needs, and that would take a walk through all segments.
        self._reservations = 0

    def find(self, segment_id: SegmentId) -> SegmentMeta | None:
        """An open or sealed segment."""
        found = self._open.get(segment_id)
        return None if found is None else found.meta

    def all(self) -> tuple[SegmentMeta, ...]:
        """Every open or sealed segment, oldest first."""
        return tuple([each.meta for each in self._open.values()])

    @property
    def wait_for_ticks(self) -> bool:
        """Whether a tick can expire a reservation or close a sealed segment."""
        return any(
            each.reserved or each.meta.state is SegmentMetaState.SEALED
            for each in self._open.values()
        )

    def statistics(self) -> tuple[OpenReservations, ...]:
        """What is reserved in each segment."""
        return tuple([_statistics(each) for each in self._open.values()])

    # ---- reserving --------------------------------------------------------------------------

    def refusal(self, wanted: RowsWanted) -> Refusal | None:
        """Why these rows cannot be reserved in any segment, or not now; None if they can."""
        if wanted.count < 1:
            return invalid_argument(f"the count must be at least 1, not {wanted.count}").refusal
        total = self.rows_max(wanted.row_bytes)
        if wanted.count > total:
            return invalid_argument(
                f"{wanted.count} rows do not fit into one segment, which holds {total} rows of"
                f" {wanted.row_bytes} bytes; ask for fewer rows at a time"
            ).refusal
        if self._reservations >= self._limits.reservations_max:
            return _later(f"{self._reservations} reservations have not expired")
        if self.room(wanted) is None and len(self._open) >= self._limits.open_max:
            return _later(f"{len(self._open)} segments are open")
        return None

    def rows_max(self, row_bytes: int) -> int:
        """How many rows of this size a segment holds."""
        return max(1, self._limits.segment_bytes // row_bytes)

    def room(self, wanted: RowsWanted) -> SegmentId | None:
        """The oldest open segment with room for these rows; None: a new one is needed."""
        for id in self._at.get(self._place(wanted), ()):
            found = self._open[id]
            if found.meta.state is SegmentMetaState.GROWING and wanted.count <= found.free:
                return id
        return None

    def new_segment(self, id: SegmentId, wanted: RowsWanted, tick: TimeTick) -> SegmentMeta:
        """A segment for these rows; store it, then `keep` it."""
        channels = self._range(wanted.channel)
        return SegmentMeta(
            id=id,
            collection_id=wanted.collection_id,
            partition_id=wanted.partition_id,
            partition_tag=wanted.partition_tag,
            channel_start=channels.first,
            channel_end=channels.last,
            open_tick=tick,
            close_tick=TimeTick(0),
            rows=0,
            size_bytes=0,
            modified_tick=tick,
            state=SegmentMetaState.GROWING,
            origin=SegmentOrigin.RESERVED,
            rows_max=self.rows_max(wanted.row_bytes),
            size_bytes_max=self._limits.segment_bytes,
        )

    def reserve(self, id: SegmentId, wanted: RowsWanted, now: TimeTick) -> ReservedRows:
        """Reserve exactly these rows in a segment that has room for them."""
        segment = self._open[id]
        assert wanted.count <= segment.free, (wanted, segment)
        self._hold(segment, wanted.count, wanted.count * wanted.row_bytes, now)
        return ReservedRows(id, wanted.count, segment.last_expire_tick)

    # ---- what is stored ---------------------------------------------------------------------

    def keep(self, meta: SegmentMeta) -> None:
        """The segment was stored like this: new, changed, or ended, which removes it."""
        place = (meta.collection_id, meta.partition_id, meta.channel_start)
        found = self._open.get(meta.id)
        if meta.state in (SegmentMetaState.GROWING, SegmentMetaState.SEALED):
            if found is None:
                self._open[meta.id] = _OpenSegment(meta)
                self._at[place].append(meta.id)
            else:
                found.meta = meta
        elif found is not None:
            self._reservations -= len(found.reserved)
            del self._open[meta.id]
            self._at[place].remove(meta.id)
            if not self._at[place]:
                del self._at[place]

    def restore(self, metas: Iterable[SegmentMeta], now: TimeTick) -> None:
        """Open segments of an earlier incarnation, whose reservations are not known.

        All their free rows count as reserved now: an earlier reservation expires before these do.
        """
        for meta in sorted(metas, key=lambda it: it.id):
            self.keep(meta)
            segment = self._open[meta.id]
            free = max(0, segment.free)
            self._hold(segment, free, 0, now)

    # ---- ticks ------------------------------------------------------------------------------

    def expire(self, soft_tick: TimeTick) -> None:
        """Nobody writes rows up to this tick any more: drop the reservations that it has passed."""
        for segment in self._open.values():
            passed = [tick for tick in segment.reserved if tick <= soft_tick]
            self._reservations -= len(passed)
            for tick in passed:
                segment.reserved_rows -= segment.reserved.pop(tick).rows

    def closed(self, hard_tick: TimeTick, now: TimeTick) -> list[SegmentMeta]:
        """The sealed segments into which nothing can come any more, as closed at `now`.

        `hard_tick`: every node has processed all rows up to it.
        """
        return [
            replace(it.meta, state=SegmentMetaState.FLUSHED, close_tick=now, modified_tick=now)
            for it in self._open.values()
            if it.meta.state is SegmentMetaState.SEALED and it.last_expire_tick <= hard_tick
        ]

    # ---- statistics, sealing ----------------------------------------------------------------

    def counted(
        self, segment_id: SegmentId, rows: int, memory_bytes: int, tick: TimeTick
    ) -> SegmentMeta | None:
        """The segment with what a query node counted in it, sealed if that is enough.

        None for a segment that is not open here.
        """
        found = self._open.get(segment_id)
        if found is None:
            return None
        meta = replace(found.meta, rows=rows, size_bytes=memory_bytes, modified_tick=tick)
        limit = self._limits.seal_proportion
        full = rows >= limit * meta.rows_max or memory_bytes > limit * meta.size_bytes_max
        return replace(meta, state=SegmentMetaState.SEALED) if full else meta

    def sealed(self, collection_id: CollectionId) -> list[SegmentMeta]:
        """The growing segments of a collection, as sealed."""
        return [
            replace(each.meta, state=SegmentMetaState.SEALED)
            for each in self._open.values()
            if each.meta.collection_id == collection_id
            and each.meta.state is SegmentMetaState.GROWING
        ]

    def outgrown(self) -> list[SegmentMeta]:
        """Growing segments whose channels are no range any more, as sealed: channels were added."""
        return [
            replace(each.meta, state=SegmentMetaState.SEALED)
            for each in self._open.values()
            if each.meta.state is SegmentMetaState.GROWING
            and ChannelRange(each.meta.channel_start, each.meta.channel_end) not in self._ranges
        ]

    def dropped(
        self, partitions: Mapping[CollectionId, frozenset[PartitionId]], now: TimeTick
    ) -> list[SegmentMeta]:
        """The segments outside of these partitions, as dropped at `now`."""
        return [
            replace(it.meta, state=SegmentMetaState.DROPPED, close_tick=now, modified_tick=now)
            for it in self._open.values()
            if it.meta.partition_id not in partitions.get(it.meta.collection_id, frozenset())
        ]

    # ---- inside -----------------------------------------------------------------------------

    def _range(self, channel: int) -> ChannelRange:
        return next(it for it in self._ranges if it.first <= channel <= it.last)

    def _place(self, wanted: RowsWanted) -> _Place:
        return wanted.collection_id, wanted.partition_id, self._range(wanted.channel).first

    def _hold(self, segment: _OpenSegment, rows: int, size_bytes: int, now: TimeTick) -> None:
        expire_tick = TimeTick(now + (self._limits.expire_ms << TICK_LOGICAL_BITS))
        known = segment.reserved.get(expire_tick)
        if known is None:
            known = segment.reserved[expire_tick] = _Reservation(0, 0, now)
            self._reservations += 1
        known.rows += rows
        segment.reserved_rows += rows
        known.size_bytes += size_bytes
        segment.last_expire_tick = max(segment.last_expire_tick, expire_tick)


def _statistics(segment: _OpenSegment) -> OpenReservations:
    reserved = segment.reserved.values()
    return OpenReservations(
        segment.meta.id,
        rows=segment.reserved_rows,
        size_bytes=sum([it.size_bytes for it in reserved]),
        last_tick=max([it.made_tick for it in reserved], default=TimeTick(0)),
    )


def _later(what: str) -> Refusal:
    cause = f"{what}, which is the limit; try again in a few seconds"
    return Refusal(StreamingCode.RESOURCE_ACQUIRED, cause)
