"""What lies above a floor, counted from heads, against counting every message by itself."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.groups import lag_counts
from broker.core.groups.lag_counts import LagCounts
from broker.model.groups.consumer_group import GroupLag
from broker.model.ids import TICK_LOGICAL_BITS, MessageId, TimeTick, TxnId
from broker.model.measured import RecordHead
from broker.model.message import COMPACTION, GROUP_CHANGE, PREPARE_TXN, PURGE, RELEASED, MessageType
from broker.model.txn import TxnPart
from tests.broker.core.time.measured_logs import SHARDS, Part, log_of, parts, seen

ONE, TWO = SHARDS[:2]


def head(tick: int, messages: int = 1, vchannel: str = ONE) -> RecordHead:
    id = MessageId(tick)
    return RecordHead(id, TimeTick(tick), id, messages, MessageType.INSERT, vchannel, 10 * messages)


def counted(floors: dict[str, TimeTick], *heads: RecordHead) -> LagCounts:
    counts = LagCounts(floors)
    for each in heads:
        counts.take(each, hidden=False)
    counts.taken()
    return counts


@given(parts, st.integers(0, 60), st.integers(0, 200))
def test_small_logs_are_counted_exactly_at_the_ends_of_steps(
    happened: list[Part], after: int, further: int
) -> None:
    heads, rows = log_of(happened)
    counts = counted({ONE: TimeTick(after), TWO: TimeTick(after + further)}, *heads)
    for vchannel, floor in ((ONE, after), (TWO, after)):
        sizes = [it.size for it in seen(rows, vchannel) if it.tick > floor]
        lag = counts.lag(vchannel, TimeTick(floor), TimeTick(1 << 30))
        assert (lag.messages, lag.bytes) == (len(sizes), sum(sizes))


def test_within_a_step_what_is_left_is_divided_evenly() -> None:
    counts = counted({ONE: TimeTick(100)}, head(101, 64), head(165, 64))
    lags = [counts.lag(ONE, TimeTick(floor), TimeTick(300)) for floor in (100, 116, 164, 196, 228)]
    assert [(it.messages, it.bytes) for it in lags] == [
        *((128, 1280), (112, 1120), (64, 640), (32, 320), (0, 0)),
    ]


def test_a_lag_is_as_old_as_the_floor_or_the_first_message_above_it() -> None:
    second = 1000 << TICK_LOGICAL_BITS
    counts = counted({ONE: TimeTick(0)}, head(5 * second))
    assert counts.lag(ONE, TimeTick(0), TimeTick(8 * second)) == GroupLag(1, 10, 3000)
    assert counts.lag(ONE, TimeTick(4 * second), TimeTick(8 * second)) == GroupLag(1, 10, 3000)
    assert counts.lag(ONE, TimeTick(5 * second), TimeTick(8 * second)) == GroupLag(0, 0, 0)


def test_a_count_serves_floors_from_its_own_on_of_the_vchannels_it_knows() -> None:
    counts = counted({ONE: TimeTick(10), TWO: TimeTick(20)}, head(11))
    assert counts.serves({ONE: TimeTick(10)})
    assert not counts.serves({ONE: TimeTick(9)})
    assert not counts.serves({"another": TimeTick(30)})
    assert counts.lag(TWO, TimeTick(20), TimeTick(30)) == GroupLag(0, 0, 0)


def test_a_group_is_idle_when_nothing_was_taken_above_its_floor_that_it_may_deliver() -> None:
    change = replace(head(40), kind=GROUP_CHANGE)
    counts = counted({ONE: TimeTick(10), TWO: TimeTick(20)}, head(15, 3), change)
    assert counts.is_idle(ONE, TimeTick(17))
    assert not counts.is_idle(ONE, TimeTick(16))
    assert counts.is_idle(TWO, TimeTick(20))
    assert not counts.is_idle(TWO, TimeTick(9)), "not counted from there on"
    assert not counts.is_idle("another", TimeTick(30))
    counts.take(replace(head(50), vchannel="another"), hidden=False)
    counts.take(head(51), hidden=True)
    assert counts.is_idle(ONE, TimeTick(17))
    counts.take(replace(head(52), kind=RELEASED), hidden=False)
    assert not counts.is_idle(ONE, TimeTick(17))


@pytest.mark.parametrize(
    ("kind", "inside", "shows"),
    [
        (GROUP_CHANGE, False, False),
        (PURGE, False, False),
        (COMPACTION, False, False),
        (MessageType.FLUSH, False, False),
        (MessageType.CREATE_SEGMENT, False, False),
        (MessageType.BEGIN_TXN, True, False),
        (MessageType.INSERT, True, False),
        (PREPARE_TXN, True, False),
        (MessageType.ROLLBACK_TXN, True, False),
        (MessageType.COMMIT_TXN, True, True),
        (MessageType.INSERT, False, True),
        (RELEASED, False, True),
    ],
)
def test_only_what_readers_may_get_at_its_tick_keeps_a_group_from_being_idle(
    kind: int, inside: bool, shows: bool
) -> None:
    txn = TxnPart(TxnId(5), 1000, MessageId(1), 0) if inside else None
    counts = counted({ONE: TimeTick(10)}, replace(head(15), kind=kind, txn=txn))
    assert counts.is_idle(ONE, TimeTick(12)) == (not shows)


def test_a_message_of_all_vchannels_leaves_no_group_idle() -> None:
    counts = counted({ONE: TimeTick(10), TWO: TimeTick(20)})
    counts.take(replace(head(30), vchannel="", kind=MessageType.TIME_TICK), hidden=False)
    assert counts.is_idle(ONE, TimeTick(10))
    counts.take(replace(head(31), vchannel="", kind=MessageType.FLUSH_ALL), hidden=False)
    assert not counts.is_idle(ONE, TimeTick(10))
    assert not counts.is_idle(TWO, TimeTick(30))
    assert counts.is_idle(TWO, TimeTick(31))


def test_a_count_whose_steps_are_too_large_for_what_is_left_is_begun_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lag_counts, "STEPS_MAX", 1)
    counts = counted({ONE: TimeTick(0)}, *[head(1 + 100 * it, 100) for it in range(10)])
    assert counts.serves({ONE: TimeTick(800)})
    assert not counts.serves({ONE: TimeTick(1000)})
