"""The end of a log, and the ticks that close it."""

from dataclasses import replace

import pytest

from broker.core.log.log_end import LogEnd, closed_tick, end_after, time_tick_record
from broker.model.ids import MessageId, Term, TimeTick
from broker.model.message import MessageType
from broker.model.record import Record
from tests.broker.core.log.test_sequencer import END


def test_a_tick_record_says_nothing_but_its_tick() -> None:
    record = time_tick_record(TimeTick(2_000), END)
    assert record == Record(
        Term(4), MessageId(50), TimeTick(2_000), MessageId(50), MessageType.TIME_TICK, "", (0,), b""
    )
    assert end_after([record], END) == LogEnd(Term(4), MessageId(51), TimeTick(2_000))


def test_a_tick_without_a_record_carries_what_is_confirmed() -> None:
    end = replace(END, next_id=MessageId(60))
    free, held = (
        closed_tick(TimeTick(2_000), it) for it in (end, replace(end, open_txn_id=MessageId(9)))
    )
    assert (free.tick, free.id, free.last_confirmed_id, free.term) == (2_000, 59, 59, 4)
    assert (held.id, held.last_confirmed_id, held.persisted) == (9, 9, False)


def test_no_records_change_nothing() -> None:
    assert end_after([], END) is END


def test_a_tick_record_below_the_newest_tick_is_a_broken_invariant() -> None:
    with pytest.raises(AssertionError):
        time_tick_record(TimeTick(1_000), END)
