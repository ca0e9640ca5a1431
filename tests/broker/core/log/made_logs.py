"""Random logs with collections, segments and transactions, and a naive reading of them.

A message's body is the number of its effect in `Log.effects`, so a log needs no wire format.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from broker.core.log.log_recovery import RecoveryState
from broker.core.txn.txn_limits import TxnLimits
from broker.model.batch import BatchKeys, BatchPart
from broker.model.effect import (
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
    SegmentLevel,
    Truncated,
)
from broker.model.ids import CollectionId, MessageId, PartitionId, SegmentId, Term, TimeTick, TxnId
from broker.model.message import EXCLUSIVE_TYPES, PREPARE_TXN, MessageType
from broker.model.record import Record
from broker.model.snapshot import SegmentState, Snapshot, VChannelState
from broker.model.txn import TxnPart

C = CollectionId(7)
P = "by-dev-rootcoord-dml_0"
V = (f"{P}_7v0", f"{P}_7v1")
CONTROL = f"{P}_vcchan"
LIMITS = TxnLimits(finished_max=3, finished_ms=2)
MS = 1 << 18
KIND: dict[type[Effect], MessageType] = {
    CollectionCreated: MessageType.CREATE_COLLECTION,
    CollectionDropped: MessageType.DROP_COLLECTION,
    PartitionCreated: MessageType.CREATE_PARTITION,
    PartitionDropped: MessageType.DROP_PARTITION,
    SchemaChanged: MessageType.SCHEMA_CHANGE,
    CollectionAltered: MessageType.ALTER_COLLECTION,
    Truncated: MessageType.TRUNCATE_COLLECTION,
    ManuallyFlushed: MessageType.MANUAL_FLUSH,
    AllFlushed: MessageType.FLUSH_ALL,
    Inserted: MessageType.INSERT,
    Deleted: MessageType.DELETE,
    SegmentCreated: MessageType.CREATE_SEGMENT,
    SegmentFlushed: MessageType.FLUSH,
}


@dataclass
class Log:
    """Records as a writer makes them: ids and ticks in one order, every end a record."""

    records: list[Record] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    next_id: int = 1
    tick: int = 1000 * MS
    open: dict[int, TxnPart] = field(default_factory=dict)
    txn_vchannels: dict[int, str] = field(default_factory=dict)

    def effect_of(self, kind: int, stored: bytes, *, of_batch: bool = False) -> Effect | str | None:
        if stored == b"nothing":
            return None
        return self.effects[int(stored)] if stored.isdigit() else f"no header in {stored!r}"

    def add(self, vchannel: str, *effects: Effect, later: int = 1) -> Record:
        """One record of these, all of one type; an exclusive one ends what is open there first."""
        kind = KIND[type(effects[0])]
        if kind in EXCLUSIVE_TYPES:
            for txn, name in list(self.txn_vchannels.items()):
                if kind == MessageType.FLUSH_ALL or name == vchannel:
                    self.end(txn, MessageType.ROLLBACK_TXN)
        return self.store(vchannel, kind, [self.body_of(each) for each in effects], later=later)

    def batch(self, vchannel: str, effect: Effect, messages: int, txn: int | None = None) -> None:
        """A batch with this effect in the header that its messages share."""
        part = None if txn is None else self.open[txn]
        shared = BatchPart(self.body_of(effect), keys=BatchKeys((2,) * messages, b"k" * messages))
        kind = KIND[type(effect)]
        self.store(vchannel, kind, [b"payload"] * messages, part, batch=shared)
        if part is not None:
            bodies = part.bodies + messages
            self.open[part.id] = TxnPart(part.id, part.keepalive_ms, part.begin_id, bodies)

    def begin(self, vchannel: str) -> int:
        self.tick += 1
        txn = self.tick
        part = TxnPart(TxnId(txn), 500, MessageId(self.next_id), 0)
        self.tick -= 1
        self.store(vchannel, MessageType.BEGIN_TXN, [b"begin"], part)
        self.open[txn], self.txn_vchannels[txn] = part, vchannel
        return txn

    def body(self, txn: int, *effects: Effect) -> None:
        part = self.open[txn]
        kind = KIND[type(effects[0])]
        self.store(self.txn_vchannels[txn], kind, [self.body_of(each) for each in effects], part)
        bodies = part.bodies + len(effects)
        self.open[txn] = TxnPart(part.id, part.keepalive_ms, part.begin_id, bodies)

    def prepare(self, txn: int) -> None:
        self.store(self.txn_vchannels[txn], PREPARE_TXN, [b""], self.open[txn])

    def end(self, txn: int, kind: int = MessageType.COMMIT_TXN) -> None:
        vchannel = self.txn_vchannels.pop(txn)
        self.store(vchannel, kind, [b"end"], self.open[txn])
        del self.open[txn]

    def store(
        self,
        vchannel: str,
        kind: int,
        bodies: list[bytes],
        txn: TxnPart | None = None,
        later: int = 1,
        batch: BatchPart | None = None,
    ) -> Record:
        self.tick += later
        oldest = min([part.begin_id for part in self.open.values()], default=self.next_id)
        record = Record(
            term=Term(1),
            base_id=MessageId(self.next_id),
            base_tick=TimeTick(self.tick),
            last_confirmed_id=MessageId(min(self.next_id, oldest)),
            kind=kind,
            vchannel=vchannel,
            sizes=tuple(map(len, bodies)),
            body=b"".join(bodies),
            txn=txn,
            batch=batch,
        )
        self.records.append(record)
        self.next_id, self.tick = record.next_id, record.last_tick
        return record

    def state(self, snapshot: Snapshot | None = None) -> RecoveryState:
        """What a node makes of it, from this snapshot on."""
        return RecoveryState(snapshot or Snapshot(), self.effect_of, LIMITS)

    def body_of(self, effect: Effect) -> bytes:
        self.effects.append(effect)
        return b"%d" % (len(self.effects) - 1)


def random_log(rng: random.Random, steps: int) -> Log:
    """Mostly what a writer would do, and now and then what it never should."""
    log = Log()
    segments = [SegmentId(1)]
    for _ in range(steps):
        vchannel = rng.choice(V)
        match rng.randrange(15):
            case 0 | 1 | 2 | 3 | 4:
                _change_collection(rng, log, vchannel, segments)
            case 5 | 6 | 7 | 8:
                segments.append(SegmentId(log.tick + 1))
                level = rng.choice((SegmentLevel.ROWS, SegmentLevel.ROWS, SegmentLevel.DELETES))
                partition = PartitionId(rng.randint(1, 2))
                log.add(vchannel, SegmentCreated(C, partition, segments[-1], 0, 0, level, 1))
            case 9:
                log.add(vchannel, *_rows(rng, segments))
            case 10:
                _batch(rng, log, vchannel, segments)
            case 11:
                log.begin(vchannel)
            case 12 | 13 | 14 if log.open:
                _go_on(rng, log, segments)
            case _:
                log.store("", MessageType.TIME_TICK, [b""], later=rng.choice((1, MS)))
    return log


def _change_collection(
    rng: random.Random, log: Log, vchannel: str, segments: Sequence[SegmentId]
) -> None:
    partition, segment = PartitionId(rng.randint(1, 2)), rng.choice(segments[-4:])
    match rng.randrange(8):
        case 0 | 1:
            log.add(rng.choice((vchannel, CONTROL)), CollectionCreated(C, (partition,), b"", 1))
        case 2:
            log.add(vchannel, CollectionDropped(C))
        case 3:
            log.add(vchannel, rng.choice((PartitionCreated, PartitionDropped))(C, partition))
        case 4:
            wait = rng.choice((1, 13 * 3600 * 1000 * MS))
            log.add(vchannel, SchemaChanged(C, b"s", log.tick, (segment,)), later=wait)
        case 5:
            log.add(vchannel, rng.choice((Truncated, ManuallyFlushed))(C, (segment,)))
        case 6:
            log.add(vchannel, rng.choice((AllFlushed(), CollectionAltered(C))))
        case _:
            log.add(vchannel, SegmentFlushed(C, partition, segment))


def _go_on(rng: random.Random, log: Log, segments: Sequence[SegmentId]) -> None:
    txn = rng.choice(list(log.open))
    if rng.random() < 0.4:
        log.body(txn, *_rows(rng, segments))
    elif rng.random() < 0.4:
        _batch(rng, log, log.txn_vchannels[txn], segments, txn)
    else:
        if rng.random() < 0.3:
            log.prepare(txn)
        log.end(txn, rng.choice((MessageType.COMMIT_TXN, MessageType.ROLLBACK_TXN)))


def _rows(rng: random.Random, segments: Sequence[SegmentId]) -> list[Effect]:
    if rng.random() < 0.3:
        return [Deleted(C, rng.randint(1, 9)) for _ in range(rng.randint(1, 2))]
    return [
        Inserted(C, PartitionId(1), rng.choice(segments[-4:]), rng.randint(1, 9), 10, 1)
        for _ in range(rng.randint(1, 3))
    ]


def _batch(
    rng: random.Random,
    log: Log,
    vchannel: str,
    segments: Sequence[SegmentId],
    txn: int | None = None,
) -> None:
    """As a writer stamps it, or as it was sent where no collection was."""
    count = rng.randint(1, 4)
    effect: Inserted | Deleted
    match rng.randrange(4):
        case 0:
            effect = Inserted(CollectionId(0), PartitionId(0), SegmentId(0), 0, 0, None)
        case 1:
            effect = Deleted(rng.choice((CollectionId(0), C)), count)
        case _:
            effect = Inserted(C, PartitionId(1), rng.choice(segments[-4:]), count, 10, None)
    log.batch(vchannel, effect, count, txn)


class Naive:
    """The log folded from its first record to its last, in the plainest way there is."""

    def __init__(self, log: Log) -> None:
        self.vchannels: dict[str, tuple[set[int], list[int]]] = {}
        self.segments: dict[int, list[int]] = {}
        self.where: dict[int, tuple[str, int, bool]] = {}
        self.ends: list[tuple[int, int]] = []
        bodies: dict[int, list[Effect]] = {}
        for record in log.records:
            effects = [log.effects[int(m.body)] for m in record.messages() if m.body.isdigit()]
            if record.batch is not None:
                of_all = log.effects[int(record.batch.properties)]
                assert isinstance(of_all, Inserted | Deleted)
                # Without a header nothing counts it.
                effects = [of_all] if of_all.collection_id else []
            if record.kind == PREPARE_TXN:
                continue
            if record.txn is None:
                for effect in effects:
                    self.fold(record.vchannel, effect, record.last_tick)
            elif record.kind == MessageType.BEGIN_TXN:
                bodies[record.txn.id] = []
            elif record.kind in (MessageType.INSERT, MessageType.DELETE):
                bodies[record.txn.id] += [self.taken(record.vchannel, it) for it in effects]
            else:
                self.ends.append((record.txn.id, record.last_tick))
                members = bodies.pop(record.txn.id)
                for effect in members if record.kind == MessageType.COMMIT_TXN else ():
                    self.fold(record.vchannel, effect, record.last_tick)

    def fold(self, name: str, effect: Effect, tick: int) -> None:
        if isinstance(effect, AllFlushed):
            self.segments.clear()
        elif isinstance(effect, CollectionCreated):
            if name not in self.vchannels and name != CONTROL:
                self.vchannels[name] = ({*effect.partition_ids}, [tick])
        elif name in self.vchannels:
            self.fold_segment(name, effect, tick)
            self.fold_collection(name, effect, tick)

    def fold_segment(self, name: str, effect: Effect, tick: int) -> None:
        match effect:
            case Inserted(_, _, segment, rows):
                if segment in self.segments and self.where[segment][0] == name:
                    self.segments[segment] = [self.segments[segment][0] + rows, tick]
            case SegmentCreated(_, partition, segment, level=level):
                self.segments[segment] = [0, tick]
                self.where[segment] = (name, partition, level is SegmentLevel.DELETES)
            case SegmentFlushed(_, _, segment):
                self.flush(name, [segment])
            case Deleted(_, rows, _, segment):
                taken = segment or self.newest_for_deletes(name)
                if taken in self.segments:
                    self.segments[taken] = [self.segments[taken][0] + rows, tick]
            case _:
                return

    def taken(self, name: str, effect: Effect) -> Effect:
        """Deletes with the segment that takes them now."""
        if not isinstance(effect, Deleted):
            return effect
        return replace(effect, segment_id=self.newest_for_deletes(name))

    def newest_for_deletes(self, name: str) -> SegmentId:
        """-1: none."""
        mine = [it for it in self.segments if self.where[it][::2] == (name, True)]
        return SegmentId(max(mine, default=-1))

    def fold_collection(self, name: str, effect: Effect, tick: int) -> None:
        partitions, starts = self.vchannels[name]
        match effect:
            case CollectionDropped():
                del self.vchannels[name]
                self.flush(name, list(self.segments))
            case PartitionCreated(_, partition):
                partitions.add(partition)
            case PartitionDropped(_, partition):
                partitions.discard(partition)
                self.flush(name, [it for it in self.segments if self.where[it][1] == partition])
            case SchemaChanged():
                starts.append(tick)
                old = tick - 24 * 3600 * 1000 * MS
                starts[:] = [a for a, b in pairwise([*starts, tick + 1]) if b > old]
                self.flush(name, effect.segment_ids)
            case Truncated() | ManuallyFlushed():
                self.flush(name, effect.segment_ids)
            case _:
                return

    def flush(self, name: str, segments: Sequence[int]) -> None:
        for segment in segments:
            if segment in self.segments and self.where[segment][0] == name:
                del self.segments[segment]

    def finished(self) -> list[int]:
        newest = self.ends[-1][1] if self.ends else 0
        fresh = [txn for txn, tick in self.ends if newest < tick + LIMITS.finished_ms * MS]
        return fresh[-LIMITS.finished_max :]


def assert_same(snapshot: Snapshot, naive: Naive) -> None:
    """The living part of a state is what the naive reading says."""
    vchannels = {
        each.name: ({*each.partition_ids}, [schema.start_tick for schema in each.schemas])
        for each in snapshot.vchannels
        if each.state is VChannelState.NORMAL
    }
    assert vchannels == naive.vchannels
    segments = {
        each.id: [each.rows, each.modified_tick]
        for each in snapshot.segments
        if each.state is SegmentState.GROWING
    }
    assert segments == naive.segments
    assert [each.outcome.txn.id for each in snapshot.finished] == naive.finished()
