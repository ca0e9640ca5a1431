"""Every append gets exactly one outcome, and the outcome says the truth about what was written."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.client.append.outbox import Outbox, PendingAppend, SendLimits
from broker.client.net.retry_rules import RetryVerdict, may_be_written
from broker.model.failure import StreamingCode

LIMITS = SendLimits(appends_max=8, bytes_max=1000)
CODES = st.sampled_from([it for it in StreamingCode if it is not StreamingCode.OK])


class AnyOrderOfEvents(RuleBasedStateMachine):
    """The naive model: per append whether it waits or flies, and whether it may be written."""

    def __init__(self) -> None:
        super().__init__()
        self.outbox: Outbox[int] = Outbox(LIMITS)
        self.pending: dict[int, PendingAppend[int]] = {}
        self.flying: dict[int, int] = {}
        self.maybe: set[int] = set()
        self.finished: list[int] = []
        self.count = 0
        self.now_s = 0.0

    def finish(self, number: int) -> None:
        assert number not in self.finished
        self.finished.append(number)
        self.pending.pop(number, None)

    @rule(size=st.integers(1, 300), patience_s=st.integers(1, 20))
    def offer(self, size: int, patience_s: int) -> None:
        if not self.outbox.has_room:
            return
        self.count += 1
        pending = PendingAppend(b"x" * size, self.now_s + patience_s, self.count)
        self.pending[self.count] = pending
        self.outbox.offer(pending)

    @rule(bytes_max=st.integers(1, 600))
    def take(self, bytes_max: int) -> None:
        waiting = sorted(set(self.pending) - set(self.flying.values()))
        taken = self.outbox.take(bytes_max)
        for request_id, message in taken:
            number = waiting.pop(0)
            while self.pending[number].abandoned:
                self.finish(number)
                number = waiting.pop(0)
            assert message is self.pending[number].message
            self.flying[request_id] = number
        assert taken or not [it for it in waiting if not self.pending[it].abandoned]

    @rule()
    def drop_abandoned(self) -> None:
        self.outbox.drop_abandoned()
        for number in sorted(set(self.pending) - set(self.flying.values())):
            if self.pending[number].abandoned:
                self.finish(number)

    @invariant()
    def knows_whether_anybody_waits(self) -> None:
        awaited = [it for it in self.flying.values() if not self.pending[it].abandoned]
        assert self.outbox.awaits_answers == bool(awaited)

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.flying)))
        number = self.flying.pop(request_id)
        answered = self.outbox.answered(request_id)
        assert answered is not None
        assert answered.waiter == number
        self.finish(number)
        assert self.outbox.answered(request_id) is None

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), code=CODES, resend=st.booleans())
    def refuse(self, data: st.DataObject, code: StreamingCode, resend: bool) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.flying)))
        number = self.flying.pop(request_id)
        found = self.outbox.refused(request_id, code, "no", resend=resend)
        assert found is not None
        verdict, pending = found
        assert pending.waiter == number
        if may_be_written(code):
            self.maybe.add(number)
        assert pending.unanswered == (number in self.maybe)
        if verdict is RetryVerdict.SURFACE or (pending.unanswered and not resend):
            self.finish(number)

    @rule(resend=st.booleans())
    def lose_the_stream(self, resend: bool) -> None:
        lost = self.outbox.stream_lost(resend=resend)
        assert sorted(it.waiter for it in lost) == ([] if resend else sorted(self.flying.values()))
        for number in self.flying.values():
            self.maybe.add(number)
            if not resend:
                self.finish(number)
        self.flying.clear()

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def abandon(self, data: st.DataObject) -> None:
        self.pending[data.draw(st.sampled_from(sorted(self.pending)))].abandoned = True

    @rule(seconds=st.integers(1, 10))
    def let_time_pass(self, seconds: int) -> None:
        self.now_s += seconds
        expired, next_deadline_s = self.outbox.expire(self.now_s)
        for it in expired:
            number = it.pending.waiter
            assert it.pending.deadline_s <= self.now_s
            assert it.maybe_written == (number in self.maybe or number in self.flying.values())
            self.flying = {key: value for key, value in self.flying.items() if value != number}
            self.finish(number)
        assert next_deadline_s == min((it.deadline_s for it in self.outbox), default=None)

    @invariant()
    def the_books_balance(self) -> None:
        held = {it.waiter for it in self.outbox}
        assert held <= set(self.pending)
        assert len(self.outbox) == len(held)
        assert self.outbox.bytes_held == sum(len(it.message) for it in self.outbox)
        assert self.outbox.in_flight == len(self.flying)

    def teardown(self) -> None:
        """Closing returns every append that is left, once."""
        for it in self.outbox.clear():
            self.finish(it.pending.waiter)
        assert len(self.outbox) == 0
        assert self.outbox.bytes_held == 0
        assert all(it.abandoned for it in self.pending.values())


TestAnyOrderOfEvents = AnyOrderOfEvents.TestCase
TestAnyOrderOfEvents.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_what_was_on_a_lost_stream_is_sent_again_before_what_never_was() -> None:
    outbox: Outbox[str] = Outbox(LIMITS)
    for name in "abcd":
        outbox.offer(PendingAppend(name.encode(), 10, name))
    outbox.take(2)
    outbox.stream_lost(resend=True)
    assert [message for _, message in outbox.take(100)] == [b"a", b"b", b"c", b"d"]


def test_refused_for_now_keeps_its_place_in_the_order() -> None:
    outbox: Outbox[str] = Outbox(LIMITS)
    for name in "abc":
        outbox.offer(PendingAppend(name.encode(), 10, name))
    ids = [request_id for request_id, _ in outbox.take(2)]
    outbox.refused(ids[1], StreamingCode.INNER, "disk full", resend=True)
    outbox.refused(ids[0], StreamingCode.INNER, "disk full", resend=True)
    assert [message for _, message in outbox.take(100)] == [b"a", b"b", b"c"]


@pytest.mark.parametrize("limits", [SendLimits(appends_max=2), SendLimits(bytes_max=2)])
def test_there_is_no_room_beyond_the_limits(limits: SendLimits) -> None:
    outbox: Outbox[str] = Outbox(limits)
    for name in "ab":
        assert outbox.has_room
        outbox.offer(PendingAppend(name.encode(), 10, name))
    assert not outbox.has_room
    assert outbox.room == 0
    ((request_id, _), *_) = outbox.take(100)
    outbox.answered(request_id)
    assert outbox.has_room
