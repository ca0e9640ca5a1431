"""Numbered batches: each rule once, and any order of sending against a naive memory of the log."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.log.admission import AdmissionPolicy
from broker.core.log.log_end import LogEnd
from broker.core.log.numbered_producers import (
    PRODUCER_LENGTH_MAX,
    GroupSequences,
    NumberedProducers,
    ProducerLimits,
    produced_by,
)
from broker.core.log.record_drafts import WriterState
from broker.core.log.sequencer import sequence
from broker.core.txn.transactions import Transactions
from broker.model.batch import BatchPart, NewBatch
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import MessageId, PChannelName, Term, TimeTick
from broker.model.message import Appended, NewMessage
from broker.model.producer_numbers import OutOfSequence, ProducedBatch, ProducerPart
from broker.model.record import Record

P = PChannelName("by-dev-rootcoord-dml_3")
V = f"{P}_7v0"
MS = 1 << 18
LIMITS = ProducerLimits(producers_max=2, runs_max=3, silent_ms_max=1000)


def batch(producer: str, number: int, count: int = 1, vchannel: str = V) -> NewBatch:
    part = BatchPart(b"", producer=ProducerPart(producer, number))
    return NewBatch(vchannel, 2, b"x" * count, count, sizes=(1,) * count, part=part)


@dataclass
class Writer:
    """An Appender without its surroundings."""

    producers: NumberedProducers = field(default_factory=lambda: NumberedProducers(LIMITS))
    records: list[Record] = field(default_factory=list)
    end: LogEnd = LogEnd(Term(1), MessageId(1), TimeTick(1_000 * MS))

    def group(self, *messages: NewMessage) -> tuple[Appended | Refusal, ...]:
        result = sequence(
            messages,
            TimeTick(self.end.last_tick + 1),
            self.end,
            AdmissionPolicy(P, message_bytes_max=1000),
            WriterState(Transactions(), self.producers),
        )
        self.records += result.records
        self.end = result.end
        return result.outcomes

    def one(self, message: NewMessage) -> Appended | Refusal:
        (outcome,) = self.group(message)
        return outcome

    def wait(self, ms: int) -> None:
        self.end = LogEnd(Term(1), self.end.next_id, TimeTick(self.end.last_tick + ms * MS))

    def expected(self, message: NewMessage) -> int:
        outcome = self.one(message)
        assert isinstance(outcome, OutOfSequence), outcome
        assert outcome.code is StreamingCode.INVALID_REQUEST_SEQ
        return outcome.expected


def test_a_repeat_gets_the_first_answer_and_is_not_stored() -> None:
    writer = Writer()
    first = writer.one(batch("a", 0, 3))
    second = writer.one(batch("a", 3))
    assert writer.one(batch("a", 0, 3)) == first
    assert writer.one(batch("a", 3)) == second
    assert len(writer.records) == 2


def test_a_repeat_within_one_group_gets_the_first_answer() -> None:
    writer = Writer()
    outcomes = writer.group(batch("a", 0, 2), batch("a", 0, 2), batch("a", 2), batch("a", 0, 2))
    assert outcomes[0] == outcomes[1] == outcomes[3]
    assert isinstance(outcomes[2], Appended)
    assert outcomes[2].id == 3
    known = writer.group(batch("a", 3), batch("a", 2))
    assert known[1] == outcomes[2]
    assert len(writer.records) == 3


def test_numbers_left_out_are_told_with_the_one_that_comes_next() -> None:
    writer = Writer()
    writer.one(batch("a", 0, 2))
    assert writer.expected(batch("a", 3)) == 2
    outcomes = writer.group(batch("a", 2), batch("a", 4), batch("a", 3))
    assert isinstance(outcomes[1], OutOfSequence)
    assert outcomes[1].expected == 3
    assert isinstance(outcomes[2], Appended)


def test_a_producer_nobody_knows_must_begin_at_0() -> None:
    writer = Writer()
    assert writer.expected(batch("a", 7)) == 0
    assert isinstance(writer.one(batch("a", 0)), Appended)


def test_what_is_older_than_the_window_is_too_old_to_tell() -> None:
    writer = Writer()
    for number in range(5):
        writer.one(batch("a", number))
    assert writer.expected(batch("a", 1)) == 5
    assert isinstance(writer.one(batch("a", 2)), Appended)
    assert len(writer.records) == 5


def test_the_same_number_for_another_batch_is_refused() -> None:
    writer = Writer()
    writer.one(batch("a", 0, 3))
    for wrong in (batch("a", 0, 2), batch("a", 1), batch("a", 2, 4)):
        outcome = writer.one(wrong)
        assert isinstance(outcome, Refusal)
        assert outcome.code is StreamingCode.INVALID_ARGUMENT
    outcomes = writer.group(batch("b", 0, 2), batch("b", 0, 3))
    assert isinstance(outcomes[1], Refusal)
    assert outcomes[1].code is StreamingCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "wrong", [batch("a", -1), batch("a" * (PRODUCER_LENGTH_MAX + 1), 0)], ids=["number", "name"]
)
def test_a_number_below_0_and_a_name_too_long_are_refused(wrong: NewBatch) -> None:
    outcome = Writer().one(wrong)
    assert isinstance(outcome, Refusal)
    assert outcome.code is StreamingCode.INVALID_ARGUMENT


def test_a_refused_batch_uses_up_no_number() -> None:
    writer = Writer()
    assert isinstance(writer.one(batch("a", 0, vchannel="elsewhere_1v0")), Refusal)
    assert isinstance(writer.one(batch("a", 0)), Appended)


def test_who_is_silent_longest_or_too_long_is_forgotten() -> None:
    writer = Writer()
    for name in ("a", "b", "c"):
        writer.one(batch(name, 0))
    assert len(writer.producers) == 2
    assert writer.expected(batch("a", 1)) == 0
    writer.wait(1_001)
    writer.one(batch("c", 1))
    assert len(writer.producers) == 1


def test_a_run_stored_twice_keeps_its_first_place_and_a_window_may_hold_nobody() -> None:
    first = ProducedBatch("a", 0, 2, MessageId(1), TimeTick(10), MessageId(1))
    for limits, kept in ((LIMITS, (first,)), (ProducerLimits(producers_max=0), ())):
        producers = NumberedProducers(limits)
        producers.learn(first)
        producers.learn(replace(first, id=MessageId(9), tick=TimeTick(20)))
        assert producers.runs() == kept


def test_a_batch_that_nobody_numbered_is_stored_each_time() -> None:
    writer = Writer()
    plain = NewBatch(V, 2, b"ab", 2, sizes=(1, 1), part=BatchPart(b""))
    first, second = writer.group(plain, plain)
    assert isinstance(first, Appended)
    assert isinstance(second, Appended)
    assert second.id == first.id + 2
    assert [produced_by(record) for record in writer.records] == [None, None]


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 6), st.integers(1, 3)),
        max_size=40,
    ),
    st.integers(1, 5),
)
def test_each_number_is_stored_once_and_answered_as_the_log_says(
    sent: list[tuple[str, int, int]], group: int
) -> None:
    writer = Writer(NumberedProducers(ProducerLimits(producers_max=3, runs_max=99)))
    messages = [batch(*each) for each in sent]
    outcomes = [
        outcome
        for at in range(0, len(messages), group)
        for outcome in writer.group(*messages[at : at + group])
    ]
    assert len(outcomes) == len(messages)
    log: dict[str, list[ProducedBatch]] = {"a": [], "b": [], "c": []}
    for record in writer.records:
        run = produced_by(record)
        assert run is not None
        stored = log[run.producer]
        assert run.sequence == (stored[-1].next_sequence if stored else 0)
        stored.append(run)
    for (name, number, count), outcome in zip(sent, outcomes, strict=True):
        if isinstance(outcome, Appended):
            (run,) = [it for it in log[name] if (it.sequence, it.count) == (number, count)]
            assert outcome == run.landed(number)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3)), max_size=30), st.integers(0, 30)
)
def test_what_is_read_back_from_anywhere_is_what_was_known(
    sent: list[tuple[str, int]], restored: int
) -> None:
    writer = Writer()
    next_numbers = {"a": 0, "b": 0, "c": 0}
    snapshot: tuple[tuple[ProducedBatch, ...], TimeTick] = ((), TimeTick(0))
    for at, (name, count) in enumerate(sent):
        outcome = writer.one(batch(name, next_numbers[name], count))
        if isinstance(outcome, OutOfSequence):  # forgotten: it begins anew
            next_numbers[name] = 0
            writer.one(batch(name, 0, count))
        next_numbers[name] += count
        if at == restored:
            snapshot = writer.producers.runs(), writer.producers.tick
    again = NumberedProducers(LIMITS, *snapshot)
    for record in writer.records:
        again.replay(record)
    assert again.runs() == writer.producers.runs()
    assert again.tick == writer.producers.tick


def test_a_log_that_begins_in_the_middle_of_a_producer_is_known_from_there() -> None:
    writer = Writer()
    for number in range(3):
        writer.one(batch("a", number))
    late = NumberedProducers(LIMITS)
    late.replay(writer.records[2])
    assert isinstance(late.look_up(ProducerPart("a", 2), 1), Appended)
    assert late.look_up(ProducerPart("a", 3), 1) is None
    assert isinstance(late.look_up(ProducerPart("a", 1), 1), OutOfSequence)
    late.learn(ProducedBatch("a", 9, 1, MessageId(50), TimeTick(2_000 * MS), MessageId(50)))
    assert isinstance(late.look_up(ProducerPart("a", 2), 1), OutOfSequence)
    assert GroupSequences(late).look_up(ProducerPart("a", 10), 1) is None
