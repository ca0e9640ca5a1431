"""A naive reader of a log of collections and segments, who trusts nobody."""

from dataclasses import dataclass, replace
from typing import assert_never

from broker.core.segments.segment_sealing import SegmentLimits
from broker.model.effect import (
    ALL_PARTITIONS,
    AllFlushed,
    CollectionAltered,
    CollectionCreated,
    CollectionDropped,
    Deleted,
    Effect,
    Inserted,
    ManuallyFlushed,
    PartitionCreated,
    PartitionDropped,
    SchemaChanged,
    SegmentCreated,
    SegmentFlushed,
    Truncated,
)
from broker.model.failure import Refusal
from broker.model.ids import (
    PartitionId,
    SegmentId,
    TimeTick,
    TxnId,
)
from broker.model.message import EXCLUSIVE_TYPES, MessageType
from broker.model.record import Record
from tests.broker.core.segments.shard_log import Book, Change, ShardLog, unsaid


@dataclass
class Grown:
    """A segment as the log tells it."""

    vchannel: str
    created: SegmentCreated
    tick: TimeTick
    rows: int = 0
    size_bytes: int = 0
    inserts: int = 0
    flushed: bool = False
    closed: bool = False
    """Another one was created in its partition."""


class NaiveReader:
    """Reads a log from its beginning and asserts what was promised about every record."""

    def __init__(self, limits: SegmentLimits) -> None:
        self.limits = limits
        self.book = Book()
        self.defaults: dict[str, PartitionId | None] = {}
        self.collections: dict[str, CollectionCreated] = {}
        self.segments: dict[SegmentId, Grown] = {}
        self.open: dict[TxnId, set[SegmentId]] = {}
        self.fence: dict[str, TimeTick] = {}
        self.placed: dict[TxnId, list[tuple[Grown, int, int]]] = {}
        """What a rollback takes back: a segment, rows and bytes."""
        self.began_on: dict[TxnId, str] = {}
        self.ended: list[set[SegmentId]] = []
        """The segments of each transaction that the log has ended for the change that follows."""
        self.records_read = 0

    def read(self, log: ShardLog) -> "NaiveReader":
        """What it has not read yet."""
        self.book = log.book
        start, self.records_read = self.records_read, len(log.records)
        for record, tick, effect in log.effects(start):
            if record.txn is not None:
                self._follow(record)
            if effect is not None:
                assert not isinstance(effect, Refusal)
                if record.kind in EXCLUSIVE_TYPES:
                    self._check_ended(record, effect)
                self._take(record, tick, effect)
        return self

    def growing(self, vchannel: str | None = None) -> set[SegmentId]:
        """Not flushed by anything."""
        return {
            id
            for id, it in self.segments.items()
            if not it.flushed and vchannel in (None, it.vchannel)
        }

    def _check_ended(self, record: Record, effect: Effect) -> None:
        """A change ends the transactions of its scope, and one of Arrow rows none without need."""
        ended, self.ended = self.ended, []
        whole = isinstance(effect, AllFlushed)
        still = [
            held
            for txn_id, held in self.open.items()
            if whole or self.began_on[txn_id] == record.vchannel
        ]
        known = self.collections.get(record.vchannel)
        id = None if known is None else known.collection_id
        match effect:
            case CollectionCreated(of_rows=True):
                assert not ended
            case PartitionCreated(collection, of_rows=True) if collection == id:
                assert not ended
            case PartitionDropped(collection, partition, of_rows=True) if collection == id:
                of_it = {
                    id
                    for id, it in self.segments.items()
                    if (it.vchannel, it.created.partition_id) == (record.vchannel, partition)
                }
                assert all(held & of_it for held in ended)
                assert not any(held & of_it for held in still)
            case _:
                assert not still

    def _follow(self, record: Record) -> None:
        assert record.txn is not None
        if record.kind in (MessageType.COMMIT_TXN, MessageType.ROLLBACK_TXN):
            held = self.open.pop(record.txn.id, set())
            if record.kind == MessageType.ROLLBACK_TXN and not record.body:
                self.ended.append(held)
            if record.kind == MessageType.ROLLBACK_TXN:
                for it, rows, size_bytes in self.placed.pop(record.txn.id, ()):
                    it.rows -= rows
                    it.size_bytes -= size_bytes
        elif record.kind == MessageType.BEGIN_TXN:
            self.open[record.txn.id] = set()
            self.began_on[record.txn.id] = record.vchannel

    def _take(self, record: Record, tick: TimeTick, effect: Effect) -> None:
        vchannel = record.vchannel
        match effect:
            case CollectionCreated():
                if vchannel not in self.collections:
                    self.collections[vchannel] = effect
                    self.defaults[vchannel] = next(iter(effect.partition_ids), None)
            case SegmentCreated():
                self._create(vchannel, tick, effect)
            case Inserted():
                self._insert(record, tick, effect)
            case Deleted():
                if vchannel in self.collections:
                    self._check_batch(record, effect)
                    self._delete(record, effect)
            case SegmentFlushed(_, _, id):
                self._flush({id})
            case AllFlushed():
                self._flush(self.growing())
            case _:
                self._change(vchannel, tick, effect)

    def _create(self, vchannel: str, tick: TimeTick, created: SegmentCreated) -> None:
        assert created.segment_id not in self.segments
        assert vchannel in self.collections
        for it in self.segments.values():
            if (it.vchannel, it.created.partition_id) == (vchannel, created.partition_id):
                it.closed = True
        self.segments[created.segment_id] = Grown(vchannel, created, tick)

    def _insert(self, record: Record, tick: TimeTick, insert: Inserted) -> None:
        if record.vchannel not in self.collections:
            assert insert.segment_id == 0
            return
        self._check_batch(record, insert)
        it = self.segments[insert.segment_id]
        assert not it.flushed
        assert not it.closed
        assert (it.vchannel, it.created.partition_id) == (record.vchannel, insert.partition_id)
        known = self.collections[record.vchannel]
        assert insert.partition_id in known.partition_ids
        assert insert.schema_version in (None, known.schema_version)
        assert it.tick < tick
        assert it.tick > self.fence.get(record.vchannel, 0)
        it.rows += insert.rows
        it.size_bytes += insert.size_bytes
        it.inserts += 1
        assert it.rows <= it.created.rows_max
        assert it.size_bytes <= it.created.size_bytes_max <= self.limits.insert_bytes_max
        self._hold(record, it, insert.rows, insert.size_bytes)

    def _check_batch(self, record: Record, rows: Inserted | Deleted) -> None:
        """A batch is as many rows as it has messages, of its vchannel's collection."""
        if record.batch is None:
            return
        known = self.collections[record.vchannel]
        assert (rows.rows, rows.collection_id) == (len(record.sizes), known.collection_id)
        said = self.book.before[record.batch.properties]
        if isinstance(rows, Inserted) and said == unsaid():
            assert rows.partition_id == self.defaults[record.vchannel]
        elif isinstance(rows, Inserted):
            assert isinstance(said, Inserted)
            assert rows.partition_id == said.partition_id
            assert said.size_bytes in (0, rows.size_bytes)

    def _delete(self, record: Record, delete: Deleted) -> None:
        (it,) = [
            it
            for id, it in self.segments.items()
            if it.vchannel == record.vchannel
            and it.created.partition_id == ALL_PARTITIONS
            and not (it.flushed or it.closed)
        ]
        it.rows += delete.rows
        it.size_bytes += delete.size_bytes
        it.inserts += 1
        assert it.inserts == 1 or it.rows <= self.limits.deletes_rows_max
        assert it.inserts == 1 or it.size_bytes <= self.limits.deletes_bytes_max
        self._hold(record, it, delete.rows, delete.size_bytes)

    def _hold(self, record: Record, it: Grown, rows: int, size_bytes: int) -> None:
        if record.txn is not None:
            self.open[record.txn.id].add(it.created.segment_id)
            self.placed.setdefault(record.txn.id, []).append((it, rows, size_bytes))

    def _change(self, vchannel: str, tick: TimeTick, effect: Change) -> None:
        known = self.collections.get(vchannel)
        if known is None or known.collection_id != effect.collection_id:
            return
        match effect:
            case CollectionDropped():
                self._flush(self.growing(vchannel))
                del self.collections[vchannel]
            case PartitionCreated(_, partition):
                ids = (*known.partition_ids, partition)
                self.collections[vchannel] = replace(known, partition_ids=ids)
            case PartitionDropped(_, partition):
                left = tuple(each for each in known.partition_ids if each != partition)
                self.collections[vchannel] = replace(known, partition_ids=left)
                self._flush(
                    {
                        id
                        for id in self.growing(vchannel)
                        if self.segments[id].created.partition_id == partition
                    }
                )
            case SchemaChanged() | Truncated() | ManuallyFlushed():
                assert set(effect.segment_ids) == self.growing(vchannel)
                self._flush(set(effect.segment_ids))
                self.fence[vchannel] = tick
                if isinstance(effect, SchemaChanged):
                    version = effect.schema_version
                    self.collections[vchannel] = replace(known, schema_version=version)
            case CollectionAltered():
                return
            case _:
                assert_never(effect)

    def _flush(self, ids: set[SegmentId]) -> None:
        for id in ids:
            it = self.segments[id]
            assert not it.flushed
            assert it.inserts, "a segment without rows"
            assert not any(id in held for held in self.open.values())
            it.flushed = True
