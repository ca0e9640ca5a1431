"""The state of a log: however often it is saved, half saved and gone on from, it is the same."""

import random
from dataclasses import dataclass, field
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from broker.core.log.log_recovery import RecoveryState
from broker.core.log.recovery_objects import SCHEMA_KEPT_MS
from broker.core.segments.segment_table import DROPPED_MAX
from broker.core.txn.transactions import Transactions
from broker.model.batch import BatchPart
from broker.model.effect import (
    CollectionCreated,
    CollectionDropped,
    Inserted,
    PartitionDropped,
    SegmentCreated,
    SegmentFlushed,
    SegmentLevel,
)
from broker.model.ids import CollectionId, MessageId, PartitionId, SegmentId, TimeTick, VChannelName
from broker.model.message import MessageType
from broker.model.producer_numbers import ProducedBatch
from broker.model.snapshot import (
    FinishedTxn,
    SegmentSnapshot,
    SegmentState,
    Snapshot,
    SnapshotChange,
    VChannelSnapshot,
    VChannelState,
    WalCheckpoint,
)
from tests.broker.core.log.made_logs import (
    CONTROL,
    LIMITS,
    MS,
    C,
    Log,
    Naive,
    P,
    V,
    assert_same,
    random_log,
)
from tests.cases import cases

ONE = PartitionId(1)


@dataclass
class Store:
    """What a store holds after some of the writes of some changes."""

    checkpoint: WalCheckpoint | None = None
    vchannels: dict[str, VChannelSnapshot] = field(default_factory=dict)
    segments: dict[int, SegmentSnapshot] = field(default_factory=dict)
    finished: tuple[tuple[FinishedTxn, ...], TimeTick] = ((), TimeTick(0))

    def write(self, change: SnapshotChange, crash_after: int, rng: random.Random) -> bool:
        """Objects in any order, the checkpoint last; whether it came to the end."""
        steps: list[tuple[dict[Any, Any], Any, object]] = [
            *[(self.vchannels, each.name, each) for each in change.vchannels],
            *[(self.segments, each.id, each) for each in change.segments],
            *[(self.vchannels, name, None) for name in change.gone_vchannels],
            *[(self.segments, id, None) for id in change.gone_segments],
        ]
        rng.shuffle(steps)
        for table, key, value in steps[:crash_after]:
            table.pop(key, None)
            if value is not None:
                table[key] = value
        if crash_after < len(steps):
            return False
        if change.finished is not None:
            self.finished = (change.finished, change.checkpoint.tick)
        if crash_after == len(steps):
            return False
        self.checkpoint = change.checkpoint
        return True

    def load(self) -> Snapshot:
        return Snapshot(
            self.checkpoint,
            tuple(self.vchannels.values()),
            tuple(self.segments.values()),
            *self.finished,
        )


def replayed(log: Log, store: Store, until: int) -> RecoveryState:
    """A restart: the snapshot, and every record from the one that holds the checkpoint's id."""
    state = log.state(store.load())
    for record in log.records[:until]:
        if record.next_id > state_start(store):
            state.observe(record)
    return state


def state_start(store: Store) -> int:
    return store.checkpoint.id if store.checkpoint else 0


@settings(
    max_examples=cases(1000), deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)
@given(st.integers(0, 2**32))
def test_however_it_is_saved_and_crashes_the_state_is_that_of_the_whole_log(seed: int) -> None:
    rng = random.Random(seed)
    log = random_log(rng, rng.randint(0, 60))
    store, state, at = Store(), log.state(), 0
    while at < len(log.records):
        state.observe(log.records[at])
        at += 1
        if rng.random() < 0.3:
            before, change = store.checkpoint, state.take()
            if store.write(change, rng.choice((0, 1, 2, 3, 99)), rng):
                state.saved(change)
                assert before is None or (before.id, before.tick) <= (
                    change.checkpoint.id,
                    change.checkpoint.tick,
                )
            else:
                state = replayed(log, store, at)
        if rng.random() < 0.1:
            state = replayed(log, store, at)
    assert_same(state.snapshot(), Naive(log))
    assert_same(replayed(log, store, at).snapshot(), Naive(log))


def rows(segment: SegmentId, count: int = 1) -> Inserted:
    return Inserted(C, ONE, segment, count, 10, 1)


def collection(log: Log, vchannel: str = V[0]) -> SegmentId:
    """A collection on it, and a segment that grows."""
    log.add(vchannel, CollectionCreated(C, (ONE,), b"schema", 1))
    segment = SegmentId(log.tick + 1)
    log.add(vchannel, SegmentCreated(C, ONE, segment, 100, 5, SegmentLevel.ROWS, 1))
    return segment


UNSAID = Inserted(CollectionId(0), PartitionId(0), SegmentId(0), 0, 0, None)
"""What a batch says that was appended before its vchannel had a collection."""


def observed(log: Log, state: RecoveryState | None = None, since: int = 0) -> list[str]:
    """What is wrong with the log from there on."""
    state = state or log.state()
    return [wrong for record in log.records[since:] for wrong in state.observe(record)]


def test_rows_count_in_their_segment_and_those_of_a_transaction_at_its_commit() -> None:
    log = Log()
    segment = collection(log)
    log.add(V[0], rows(segment, 3), rows(segment, 4))
    txn = log.begin(V[0])
    log.body(txn, rows(segment, 5))
    log.body(txn, rows(segment, 6))
    state = log.state()
    assert observed(log, state) == []
    assert state.objects.segments[segment].rows == 7
    log.end(txn)
    observed(log, state, since=len(log.records) - 1)
    assert state.objects.segments[segment].rows == 18
    assert state.objects.segments[segment].modified_tick == log.tick


def test_a_log_without_collections_only_moves_the_checkpoint() -> None:
    log = Log()
    log.store(V[0], MessageType.INSERT, [b"not read", b"at all"])
    log.store(CONTROL, MessageType.CREATE_COLLECTION, [b"for others"])
    log.store(V[0], MessageType.IMPORT, [b"unknown here"])
    state = log.state()
    assert observed(log, state) == []
    assert state.checkpoint == WalCheckpoint(MessageId(4), TimeTick(log.tick))
    assert (state.dirty, state.objects.vchannels) == (3, {})


def test_messages_that_say_nothing_and_batches_of_programs_change_no_collection() -> None:
    log = Log()
    segment = collection(log)
    txn = log.begin(V[0])
    log.store(V[0], MessageType.INSERT, [b"nothing"], log.open[txn])
    log.body(txn, rows(segment))
    log.store(V[0], MessageType.INSERT, [b"nothing"])
    log.store(V[0], MessageType.ALTER_COLLECTION, [b"nothing"])
    log.store(V[0], MessageType.INSERT, [b"payload"], batch=BatchPart(log.body_of(UNSAID)))
    log.store(V[0], MessageType.IMPORT, [b"payload"], batch=BatchPart(b"not read"))
    state = log.state()
    assert observed(log, state) == []
    assert state.objects.segments[segment].rows == 0
    assert state.pending() == {txn: (rows(segment),)}


def test_the_checkpoint_stays_at_the_begin_of_the_oldest_open_transaction() -> None:
    log, state = Log(), Log().state()
    log.store("", MessageType.TIME_TICK, [b""])
    txn = log.begin(V[0])
    log.store(V[1], MessageType.INSERT, [b"x", b"y"])
    observed(log, state)
    assert state.checkpoint == WalCheckpoint(MessageId(2), TimeTick(log.tick))
    log.end(txn)
    log.store(V[1], MessageType.INSERT, [b"x", b"y"])
    observed(log, state, since=3)
    assert state.checkpoint.id == log.next_id - 1


def test_what_cannot_be_is_told_and_counted_and_stops_nothing() -> None:
    log = Log()
    segment = collection(log)
    log.add(V[0], rows(SegmentId(99)))
    log.add(V[0], CollectionCreated(C, (ONE,), b"", 1))
    log.add(V[0], SegmentCreated(C, ONE, segment, 0, 0, SegmentLevel.ROWS, 1))
    log.add(V[0], PartitionDropped(C, PartitionId(5)))
    log.store(V[0], MessageType.MANUAL_FLUSH, [b"torn"])
    log.store(V[0], MessageType.INSERT, [b"payload"], batch=BatchPart(b"torn"))
    log.add(V[1], SegmentFlushed(C, ONE, segment))
    log.add(V[0], SegmentFlushed(C, ONE, segment))
    log.add(V[0], rows(segment))
    txn = log.begin(V[0])
    log.store(V[0], MessageType.INSERT, [b"torn"], log.open[txn])
    log.add(V[0], CollectionDropped(C))
    log.add(V[0], CollectionDropped(C))
    state = log.state()
    wrong = observed(log, state)
    said = (
        "no segment 99",
        "has a collection already",
        "already, but it is created",
        "no partition 5",
        "cannot be read",
        "cannot be read",
        "has no collection",
        "which was flushed earlier",
        "cannot be read",
        "was dropped",
    )
    assert len(wrong) == len(said) == state.wrong
    assert all(text in each for text, each in zip(said, wrong, strict=True))


def test_what_is_at_its_end_leaves_the_memory_once_saved_and_then_the_store() -> None:
    log = Log()
    segment = collection(log)
    log.add(V[0], CollectionDropped(C))
    state = log.state()
    observed(log, state)
    first = state.take()
    assert [each.state for each in first.vchannels] == [VChannelState.DROPPED]
    assert [each.state for each in first.segments] == [SegmentState.FLUSHED]
    assert state.objects.vchannels
    state.saved(first)
    assert not state.objects.segments
    assert state.objects.vchannels[VChannelName(V[0])].schemas == ()
    second = state.take()
    assert (second.gone_vchannels, second.gone_segments) == ((), (segment,))
    assert state.take().gone_segments == ()


def test_a_dropped_vchannel_is_known_for_a_day_and_of_many_the_newest() -> None:
    log = Log()
    collection(log)
    log.add(V[0], CollectionDropped(C))
    day = SCHEMA_KEPT_MS * MS
    log.store("", MessageType.TIME_TICK, [b""], later=day - 3 * DROPPED_MAX)
    state = log.state()
    observed(log, state)
    state.saved(state.take())
    assert list(state.objects.vchannels) == [V[0]]
    for number in range(DROPPED_MAX):
        log.add(f"{P}_8v{number}", CollectionCreated(C, (ONE,), b"", 1))
        log.add(f"{P}_8v{number}", CollectionDropped(C))
    observed(log, state, since=4)
    state.saved(state.take())
    assert len(state.objects.vchannels) == DROPPED_MAX
    assert state.take().gone_vchannels == (V[0],)
    log.store("", MessageType.TIME_TICK, [b""], later=day)
    observed(log, state, since=len(log.records) - 1)
    state.saved(state.take())
    assert not state.objects.vchannels
    assert len(state.take().gone_vchannels) == DROPPED_MAX


@settings(
    max_examples=cases(1000), deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)
@given(st.integers(0, 2**32))
def test_a_log_cut_at_any_checkpoint_has_every_open_transaction_and_every_row_whole(
    seed: int,
) -> None:
    rng = random.Random(seed)
    log = random_log(rng, rng.randint(1, 60))
    store, state = Store(), log.state()
    for record in log.records:
        state.observe(record)
        if rng.random() < 0.2:
            store.write(state.take(), rng.choice((1, 99, 99)), rng)
            state = replayed(log, store, log.records.index(record) + 1)
    left = [record for record in log.records if record.next_id > state_start(store)]
    whole, cut = Transactions(LIMITS), Transactions(LIMITS)
    for transactions, records in ((whole, log.records), (cut, left)):
        for record in records:
            transactions.replay(record)
    assert cut.views() == whole.views()
    again = log.state(store.load())
    for record in left:
        again.observe(record)
    assert_same(again.snapshot(), Naive(log))
    assert again.pending().keys() == {view.context.id for view in whole.views()}


def test_a_snapshot_of_another_log_is_renounced_whole() -> None:
    log = Log()
    segment = collection(log)
    log.end(log.begin(V[0]))
    foreign = log.state()
    observed(log, foreign)
    foreign.producers.learn(ProducedBatch("p", 0, 1, MessageId(1), TimeTick(5), MessageId(1)))
    state = Log().state()
    state.renounce(foreign.snapshot())
    change = state.take()
    assert (change.gone_vchannels, change.gone_segments) == ((V[0],), (segment,))
    assert (change.finished, change.producers) == ((), ())


def test_transactions_and_producers_are_in_a_change_when_they_have_changed() -> None:
    log, state = Log(), Log().state()
    log.end(log.begin(V[0]))
    observed(log, state)
    state.producers.learn(ProducedBatch("p", 0, 1, MessageId(1), TimeTick(5), MessageId(1)))
    change = state.take()
    assert [each.begin_id for each in change.finished or ()] == [1]
    assert [each.producer for each in change.producers or ()] == ["p"]
    again = state.take()
    assert (again.finished, again.producers) == (None, None)


def test_a_replay_passes_over_bodies_whose_begin_it_does_not_meet() -> None:
    log = Log()
    segment = collection(log)
    txn = log.begin(V[0])
    log.body(txn, rows(segment))
    log.end(txn)
    log.store("", MessageType.TIME_TICK, [b""])
    state = log.state()
    observed(log, state)
    store = Store()
    assert store.write(state.take(), 99, random.Random(1))
    again = log.state(store.load())
    assert observed(log, again, since=3) == []
    assert again.objects.segments[segment].rows == 1
    assert again.finished.all() == state.finished.all()
