"""Lanes, bound and order, without any actor."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors import Envelope, MailboxSpec
from actors.mailbox import Mailbox


def taken(mailbox: Mailbox) -> list[object]:
    return [envelope.message for envelope in mailbox.take()]


def test_child_events_come_before_messages() -> None:
    mailbox = Mailbox(MailboxSpec(batch_max=2))
    for number in range(3):
        mailbox.offer(Envelope(number))
    mailbox.put_event(Envelope("event"))
    assert mailbox.depth == 4
    assert [taken(mailbox), taken(mailbox), taken(mailbox)] == [["event", 0], [1, 2], []]


def test_more_events_than_a_batch_holds_come_in_several() -> None:
    mailbox = Mailbox(MailboxSpec(batch_max=2))
    for number in range(3):
        mailbox.put_event(Envelope(number))
    assert [taken(mailbox), taken(mailbox)] == [[0, 1], [2]]


def test_a_full_lane_refuses() -> None:
    mailbox = Mailbox(MailboxSpec(bound=1))
    assert mailbox.offer(Envelope(1))
    assert not mailbox.offer(Envelope(2))
    assert taken(mailbox) == [1]


def test_a_tick_has_a_place_in_a_full_lane_and_can_be_taken_back() -> None:
    mailbox = Mailbox(MailboxSpec(bound=1))
    tick, other = Envelope("tick"), Envelope("other")
    mailbox.offer(Envelope(1))
    mailbox.put_tick(tick)
    assert mailbox.holds(tick)
    mailbox.withdraw(tick)
    mailbox.withdraw(other)
    assert [taken(mailbox), taken(mailbox)] == [[1], []]


async def test_who_waits_for_room_gets_it_in_order_and_may_leave() -> None:
    mailbox = Mailbox(MailboxSpec(bound=1))
    places = [asyncio.get_running_loop().create_future() for _ in range(4)]
    envelopes = [Envelope(number) for number in range(5)]
    mailbox.offer(Envelope("first"))
    for envelope, place in zip(envelopes[:4], places, strict=True):
        mailbox.line_up(envelope, place)
    mailbox.line_up(envelopes[4])
    mailbox.leave(envelopes[1])
    mailbox.leave(Envelope("never there"))
    places[2].cancel()
    assert [taken(mailbox) for _ in range(5)] == [["first"], [0], [3], [4], []]
    assert [place.done() for place in places] == [True, False, True, True]


async def test_a_cleared_mailbox_turns_away_who_stands_in_line() -> None:
    mailbox = Mailbox(MailboxSpec(bound=1))
    places = [asyncio.get_running_loop().create_future() for _ in range(2)]
    mailbox.offer(Envelope("first"))
    mailbox.line_up(Envelope(1), places[0])
    mailbox.line_up(Envelope(2), places[1])
    mailbox.line_up(Envelope(3))
    places[1].cancel()
    mailbox.clear()
    assert mailbox.depth == 0
    assert places[0].result() is False


async def test_a_waiting_taker_is_woken_once() -> None:
    mailbox = Mailbox(MailboxSpec())
    asyncio.get_running_loop().call_soon(mailbox.offer, Envelope(1))
    asyncio.get_running_loop().call_soon(mailbox.offer, Envelope(2))
    await mailbox.wait()
    assert taken(mailbox) == [1]
    mailbox.wake()


async def test_a_taker_that_has_left_is_not_woken() -> None:
    mailbox = Mailbox(MailboxSpec())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(mailbox.wait(), 0)
    mailbox.wake()
    mailbox.put_event(Envelope("event"))
    assert taken(mailbox) == ["event"]


@pytest.mark.parametrize(("bound", "batch_max"), [(0, 1), (1, 0)])
def test_a_mailbox_that_could_never_deliver_is_refused(bound: int, batch_max: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        MailboxSpec(bound=bound, batch_max=batch_max)


@given(
    st.lists(st.one_of(st.just("take"), st.just("event"), st.integers())),
    st.integers(1, 5),
    st.integers(1, 4),
)
def test_a_mailbox_is_two_queues_with_a_bound(
    steps: list[object], bound: int, batch_max: int
) -> None:
    """The naive model: two lists."""
    mailbox = Mailbox(MailboxSpec(bound=bound, batch_max=batch_max))
    events: list[object] = []
    messages: list[object] = []
    for step in steps:
        if step == "take":
            expected = (events + messages)[:batch_max]
            del messages[: max(0, batch_max - len(events))]
            del events[:batch_max]
            assert taken(mailbox) == expected
        elif step == "event":
            mailbox.put_event(Envelope(step))
            events.append(step)
        else:
            assert mailbox.offer(Envelope(step)) == (len(messages) < bound)
            messages = [*messages, step][:bound]
        assert mailbox.depth == len(events) + len(messages)
