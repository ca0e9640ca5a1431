"""Acknowledgements in transactions: whatever dies, they take effect with the commit."""

import random

import pytest

from broker.core.groups.group_changes import AckedInTxn, GroupCreated, GroupDropped, GroupSought
from broker.core.groups.group_table import GroupTable
from broker.core.log.log_recovery import RecoveryState
from broker.model.groups.consumer_group import GroupKey, TickSpan
from broker.model.ids import TimeTick, TxnId
from broker.model.message import MessageType
from tests.broker.core.groups.made_changes import V
from tests.broker.core.groups.made_txns import (
    MadeLog,
    NaiveGroup,
    Step,
    made_log,
    naive_fold,
    ticks_of,
)
from tests.broker.core.log.test_log_recovery_groups import Store, no_effect

KEY = GroupKey(V, "g")
BEGIN, COMMIT, ROLLBACK = (
    MessageType.BEGIN_TXN,
    MessageType.COMMIT_TXN,
    MessageType.ROLLBACK_TXN,
)

Shown = dict[GroupKey, tuple[set[int], dict[TxnId, set[int]]]]


def shown(table: GroupTable) -> Shown:
    found: Shown = {}
    for key, state in table.groups.items():
        acked = set(range(1, state.floor + 1)) | ticks_of(tuple(state.acked))
        held: dict[TxnId, set[int]] = {}
        for it in state.held:
            held.setdefault(it.txn, set()).update(ticks_of(it.spans))
        found[key] = acked, held
    return found


def expected(groups: dict[GroupKey, NaiveGroup]) -> Shown:
    return {key: (it.acked, it.held) for key, it in groups.items()}


@pytest.mark.parametrize("seed", range(300))
def test_however_it_is_saved_and_crashes_what_transactions_hold_is_that_of_the_whole_log(
    seed: int,
) -> None:
    rng = random.Random(seed)
    log = made_log(rng)
    store, at = Store(), 0
    state = store.state()
    while at < len(log.records):
        assert state.observe(log.records[at]) == []
        at += 1
        died = rng.random() < 0.1
        if rng.random() < 0.3:
            change = state.take()
            died = not store.write(change, rng)
            if not died:
                state.saved(change)
        if died:
            state = store.state()
            # As a replay does: from the last confirmed id of the snapshot, and not from its end.
            for record in log.records[:at]:
                if record.next_id > state.checkpoint.id:
                    state.observe(record)
        assert shown(state.groups) == expected(naive_fold(log.steps[:at]))
    assert set(state.groups.holding) <= set(log.open)


def replayed(*steps: Step) -> RecoveryState:
    """From a snapshot that was taken after the first half of the steps."""
    log = MadeLog(random.Random(0))
    for step in steps:
        log.add(step)
    state = Store().state()
    for record in log.records[: len(log.records) // 2]:
        state.observe(record)
    state = RecoveryState(state.snapshot(), no_effect)
    for record in log.records:
        if record.next_id > state.checkpoint.id:
            assert state.observe(record) == []
    assert shown(state.groups) == expected(naive_fold(log.steps))
    return state


CREATED = Step(TimeTick(100), V, GroupCreated("g", 1000, TimeTick(0)))
BEGUN = Step(TimeTick(101), V, None, TxnId(101), BEGIN)


def acked(tick: int, after: int, upto: int) -> Step:
    spans = (TickSpan(TimeTick(after), TimeTick(upto)),)
    return Step(TimeTick(tick), V, AckedInTxn("g", TxnId(101), spans, 1))


def ended(tick: int, kind: int) -> Step:
    return Step(TimeTick(tick), V, None, TxnId(101), kind)


def test_a_snapshot_between_an_acknowledgement_and_its_commit_loses_nothing() -> None:
    state = replayed(CREATED, BEGUN, acked(102, 0, 5), acked(103, 7, 9), ended(104, COMMIT))
    assert state.groups.groups[KEY].floor == 5
    assert list(state.groups.groups[KEY].acked) == [TickSpan(TimeTick(7), TimeTick(9))]


def test_a_rollback_leaves_the_group_as_it_was() -> None:
    state = replayed(CREATED, BEGUN, acked(102, 0, 5), ended(103, ROLLBACK))
    assert state.groups.groups[KEY].floor == 0
    assert state.groups.holding == set()


@pytest.mark.parametrize(
    "change", [GroupSought("g", TimeTick(1)), GroupDropped("g"), GroupCreated("g", 9, TimeTick(1))]
)
@pytest.mark.parametrize("more", [0, 1, 2, 3, 4])
def test_a_group_that_is_set_elsewhere_takes_nothing_from_a_transaction_before_it(
    change: GroupSought | GroupDropped | GroupCreated, more: int
) -> None:
    """`more` records behind the end have the snapshot taken before, amid and after it."""
    behind = [Step(TimeTick(110 + it), V, GroupDropped("h")) for it in range(more)]
    sought = Step(TimeTick(103), V, change)
    state = replayed(CREATED, BEGUN, acked(102, 1, 5), sought, ended(104, COMMIT), *behind)
    group = state.groups.groups.get(KEY)
    assert group is None or (group.floor == 1 and len(group.acked) == 0)


def test_one_of_a_group_or_transaction_that_is_not_there_is_passed_over() -> None:
    table = GroupTable()
    change = AckedInTxn("g", TxnId(5), (TickSpan(TimeTick(1), TimeTick(2)),), 1)
    table.hold(V, change, TimeTick(10))
    assert table.end_txn(TxnId(5), TimeTick(11)) == []
    log = MadeLog(random.Random(0))
    log.add(CREATED)
    log.add(Step(TimeTick(102), V, change))
    for record in log.records:
        assert table.observe(record, [TxnId(6)]) == []
    assert table.groups[KEY].held == []
