"""The collections of one pchannel and their segments: Milvus's shard state.

Holds which vchannel belongs to which collection, with its partitions and schema version; the one
growing segment of each partition; and the sealed segments that wait for their Flush. It is updated
as messages are placed, in log order. If a write of placed messages fails, discard it.

Why it keeps no fence ticks, as Milvus does: a pchannel has one writer, which places one message
after another. A segment that a flush ends is gone from here before the next insert is placed, so
that insert has a larger tick and another segment.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from broker.core.segments.segment_sealing import GrowingSegment, SealReason, SegmentLimits, overdue
from broker.model.channel import SegmentCounts
from broker.model.effect import ALL_PARTITIONS, SegmentLevel
from broker.model.failure import Dropped, Refusal, StreamingCode
from broker.model.ids import CollectionId, PartitionId, SegmentId, TimeTick, TxnId
from broker.model.master.reservation import SegmentOrders

DROPPED_MAX = 4096
"""Vchannels remembered after their collection was dropped, so that late inserts are refused."""


@dataclass(slots=True)
class CollectionSegments:
    """One collection on one vchannel. `growing`: at most one segment for each partition.

    `default_partition_id`: of batches that name no partition; None: they are refused.
    """

    id: CollectionId
    partition_ids: set[PartitionId]
    schema_version: int
    default_partition_id: PartitionId | None = None
    growing: dict[PartitionId, GrowingSegment] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewSegment:
    """The inputs for a new segment: an unused id, the creation tick, a random number in [0, 1]."""

    id: SegmentId
    tick: TimeTick
    chance: float


class SegmentTable:
    """The collections and segments of one pchannel."""

    def __init__(self, limits: SegmentLimits | None = None, *, required: bool = False) -> None:
        self.limits = limits or SegmentLimits()
        self.required = required
        """Refuse rows for a vchannel without a collection."""
        self.collections: dict[str, CollectionSegments] = {}
        self.sealed: dict[SegmentId, GrowingSegment] = {}
        """Segments that wait for their Flush, in the order of sealing."""
        self.growing_bytes = 0
        self.created_count = 0
        self.inserted_rows = self.deleted_rows = 0
        """Rows placed since somebody took these counts."""
        self.flushed_by: Counter[SealReason] = Counter()
        """Segments created, and flushed by reason of sealing, since this object was made."""
        self.dropped: dict[str, CollectionId] = {}
        """Of the newest `DROPPED_MAX` vchannels whose collection was dropped, its id."""
        self._held: dict[TxnId, list[GrowingSegment]] = {}

    # ---- what is known ----------------------------------------------------------------------

    def growing(self) -> list[GrowingSegment]:
        """Every growing segment, by vchannel and partition in order of creation."""
        return [
            segment
            for collection in self.collections.values()
            for segment in collection.growing.values()
        ]

    def counts(self) -> SegmentCounts:
        """Totals for statistics."""
        growing = sum(len(each.growing) for each in self.collections.values())
        return SegmentCounts(growing, self.growing_bytes, len(self.sealed))

    def flushable(self) -> list[GrowingSegment]:
        """The sealed segments that no open transaction holds."""
        return [segment for segment in self.sealed.values() if not segment.held_by]

    @property
    def idle(self) -> bool:
        """Whether there is no collection and none is required: rows need no check."""
        return not (self.collections or self.sealed or self.dropped or self.required)

    def is_ours(self, vchannel: str) -> bool:
        """Whether this vchannel has a collection, or had one that was dropped."""
        return vchannel in self.collections or vchannel in self.dropped

    def refusal(
        self, vchannel: str, collection_id: CollectionId, partition_id: PartitionId
    ) -> Refusal | None:
        """Why no rows may be placed there; None if they may. `Dropped` after the drop.

        Call it only if `is_ours(vchannel)`, or if a collection is `required`.
        """
        collection = self.collections.get(vchannel)
        if collection is None and vchannel in self.dropped:
            # Between the drop's copy here and its effect on the catalog, only the log can say so.
            return Dropped(
                StreamingCode.UNRECOVERABLE,
                f"collection {self.dropped[vchannel]} of vchannel {vchannel!r} was dropped; look up"
                " the vchannels of the collection by its name",
            )
        if collection is None:
            return _never(f"{vchannel!r} has no collection; append its CreateCollection first")
        if collection.id != collection_id:
            return _never(
                f"{vchannel!r} belongs to collection {collection.id}, not to {collection_id}"
            )
        if partition_id != ALL_PARTITIONS and partition_id not in collection.partition_ids:
            return _never(f"collection {collection_id} has no partition {partition_id}")
        return None

    def holders(self, vchannel: str, partition_id: PartitionId) -> frozenset[TxnId]:
        """The transactions with rows in this partition, whose end is not durable yet."""
        growing = self.collections[vchannel].growing.get(partition_id)
        sealed = [
            it
            for it in self.sealed.values()
            if (it.vchannel, it.partition_id) == (vchannel, partition_id)
        ]
        both = sealed if growing is None else [growing, *sealed]
        return frozenset([txn_id for it in both for txn_id in it.held_by])

    # ---- collections and partitions ---------------------------------------------------------

    def create_collection(
        self,
        vchannel: str,
        collection_id: CollectionId,
        partition_ids: Iterable[PartitionId],
        schema_version: int,
        default_partition_id: PartitionId | None = None,
    ) -> None:
        """Add a collection; no change if the vchannel has one."""
        if vchannel not in self.collections:
            # A vchannel may be used again after a drop; its rows are accepted then.
            self.dropped.pop(vchannel, None)
            self.collections[vchannel] = CollectionSegments(
                collection_id, set(partition_ids), schema_version, default_partition_id
            )

    def drop_collection(self, vchannel: str) -> tuple[SegmentId, ...]:
        """Drop it; returns the segments that this flushes."""
        flushed = self.flush(vchannel, why=SealReason.COLLECTION_REMOVED)
        self.dropped[vchannel] = self.collections.pop(vchannel).id
        if len(self.dropped) > DROPPED_MAX:
            del self.dropped[next(iter(self.dropped))]
        return flushed

    def drop_partition(self, vchannel: str, partition_id: PartitionId) -> tuple[SegmentId, ...]:
        """Drop it; returns the segments that this flushes."""
        self.collections[vchannel].partition_ids.discard(partition_id)
        return self.flush(vchannel, partition_id, why=SealReason.PARTITION_REMOVED)

    # ---- segments ---------------------------------------------------------------------------

    def room(
        self, vchannel: str, partition_id: PartitionId, rows: int, size_bytes: int
    ) -> GrowingSegment | None:
        """The growing segment if it has room for these; a full one is sealed."""
        segment = self.collections[vchannel].growing.get(partition_id)
        if segment is None or segment.takes(rows, size_bytes):
            return segment
        self.seal(segment, SealReason.CAPACITY)
        return None

    def create_segment(
        self, vchannel: str, partition_id: PartitionId, new: NewSegment, first: tuple[int, int]
    ) -> GrowingSegment:
        """Create a segment; its limits are raised to the `first` rows and bytes if need be."""
        collection, limits = self.collections[vchannel], self.limits
        assert partition_id not in collection.growing, (vchannel, partition_id)
        deletes = partition_id == ALL_PARTITIONS
        # Jitter may draw less than the largest insert that is accepted, and no insert is ever
        # split.
        drawn = limits.drawn_bytes_max(new.chance)
        segment = GrowingSegment(
            id=new.id,
            vchannel=vchannel,
            collection_id=collection.id,
            partition_id=partition_id,
            level=SegmentLevel.DELETES if deletes else SegmentLevel.ROWS,
            bytes_max=max(first[1], limits.deletes_bytes_max if deletes else drawn),
            rows_max=max(first[0], limits.deletes_rows_max if deletes else limits.insert_rows_max),
            created_tick=new.tick,
            modified_tick=new.tick,
        )
        collection.growing[partition_id] = segment
        self.created_count += 1
        return segment

    def grow(
        self,
        segment: GrowingSegment,
        rows: int,
        size_bytes: int,
        tick: TimeTick,
        txn_id: TxnId | None,
    ) -> None:
        """Rows were placed in the segment; those of a transaction hold it until `release`."""
        if txn_id is not None and txn_id not in segment.held_by:
            self._held.setdefault(txn_id, []).append(segment)
        segment.add(rows, size_bytes, txn_id)
        segment.modified_tick = tick
        self.growing_bytes += size_bytes

    def release(self, txn_id: TxnId, *, committed: bool) -> None:
        """The end of the transaction is durable; unless committed, its rows are subtracted."""
        for segment in self._held.pop(txn_id, ()):
            rows, size_bytes = segment.held_by.pop(txn_id)
            if not committed:
                segment.rows -= rows
                segment.size_bytes -= size_bytes
                # `seal` has subtracted the segment's bytes already.
                self.growing_bytes -= 0 if segment.sealed else size_bytes

    def seal(self, segment: GrowingSegment, why: SealReason) -> None:
        """Stop adding rows to it; it is flushed once no transaction holds it."""
        segment.sealed = why
        self.growing_bytes -= segment.size_bytes
        del self.collections[segment.vchannel].growing[segment.partition_id]
        self.sealed[segment.id] = segment

    def seal_overdue(self, tick: TimeTick) -> None:
        """Seal the segments that are too old or idle at this tick."""
        for segment in self.growing():
            why = overdue(segment, tick, self.limits)
            if why is not None:
                self.seal(segment, why)

    def obey(self, orders: SegmentOrders) -> None:
        """Carry out orders about growing segments. A segment with too many files is sealed."""
        binlogs, seal = dict(orders.binlogs), frozenset(orders.seal)
        for segment in self.growing():
            # A late report must not lower the count.
            segment.binlogs = max(segment.binlogs, binlogs.get(segment.id, 0))
            if segment.id in seal or segment.collection_id in orders.seal_collections:
                self.seal(segment, SealReason.FORCED)
            elif segment.binlogs > self.limits.binlogs_max:
                self.seal(segment, SealReason.BINLOGS)

    def seal_some(self, ids: Sequence[SegmentId], why: SealReason) -> None:
        """Seal those of these segments that still grow."""
        chosen = frozenset(ids)
        for segment in self.growing():
            if segment.id in chosen:
                self.seal(segment, why)

    def flush(
        self,
        vchannel: str | None = None,
        partition_id: PartitionId | None = None,
        why: SealReason = SealReason.FENCED,
    ) -> tuple[SegmentId, ...]:
        """Flush all segments of a scope by a message that is placed now; returns their ids.

        No transaction holds them: a message that flushes is exclusive in its scope.
        """
        gone = [
            segment
            for segment in (*self.sealed.values(), *self.growing())
            if vchannel in (None, segment.vchannel) and partition_id in (None, segment.partition_id)
        ]
        for segment in gone:
            # Statistics count the first reason.
            segment.sealed = segment.sealed or why
            self._forget(segment)
        return tuple(sorted([segment.id for segment in gone]))

    def flushed(self, segment: GrowingSegment) -> None:
        """The segment's own Flush was placed."""
        self._forget(segment)

    def restore(self, segment: GrowingSegment) -> None:
        """Add a segment that an earlier owner created and did not flush; call it oldest first."""
        collection = self.collections[segment.vchannel]
        older = collection.growing.get(segment.partition_id)
        if older is not None:
            self.seal(older, SealReason.RECOVERED)
        collection.growing[segment.partition_id] = segment
        self.growing_bytes += segment.size_bytes
        for txn_id in segment.held_by:
            self._held.setdefault(txn_id, []).append(segment)
        if segment.level is SegmentLevel.DELETES and not self.limits.delete_segments:
            # Created while deletes had segments; nothing more goes into it.
            self.seal(segment, SealReason.RECOVERED)

    def _forget(self, segment: GrowingSegment) -> None:
        assert segment.sealed is not None, segment
        self.flushed_by[segment.sealed] += 1
        for txn_id in segment.held_by:
            self._held[txn_id].remove(segment)
        # It still grew, so its bytes still count.
        if self.sealed.pop(segment.id, None) is None:
            self.growing_bytes -= segment.size_bytes
            del self.collections[segment.vchannel].growing[segment.partition_id]


def _never(cause: str) -> Refusal:
    return Refusal(StreamingCode.UNRECOVERABLE, cause)
