"""What a state says of a log, in pages, and what remains of a log without its oldest segments."""

import pytest

from broker.model.ids import MessageId, Term, TimeTick
from broker.ports.wal import Corrupt
from broker.wal.kafka.entries import NOWHERE
from broker.wal.kafka.log_state import (
    PAGE_SEGMENTS,
    LogState,
    TopicSegment,
    TopicView,
    decode_state,
    empty_view,
)


def segment(number: int) -> TopicSegment:
    ids = MessageId(10 * number + 1), MessageId(10 * number + 11)
    return TopicSegment(*ids, 5 * number + 1, 5 * number + 5, TimeTick(100 * number + 9), 999)


def view_of(segments: int) -> TopicView:
    """Sealed one after the other, each followed by a state."""
    view = empty_view().behind_state(0)
    for number in range(segments):
        view = TopicView(
            view.first_id, view.removed_tick, Term(1), view.sealed, segment(number),
            TimeTick(100 * number), view.state, view.page_from, view.earlier,
        )  # fmt: skip
        view = view.sealed_now().behind_state(5 * number + 5)
    return view


def test_a_state_is_read_as_it_was_written() -> None:
    state = LogState(
        MessageId(11), MessageId(31), TimeTick(209), Term(4), TimeTick(9), 17,
        (segment(1), segment(2)), "some-cluster",
    )  # fmt: skip
    assert decode_state(state.encode(), "t", 3) == state


def test_a_state_that_is_cut_or_longer_is_told() -> None:
    whole = view_of(3).as_state("c").encode()
    for wrong in (whole[:-1], whole + b"x", whole[:10], b""):
        with pytest.raises(Corrupt, match="topic t: damaged at offset 3"):
            decode_state(wrong, "t", 3)


def test_a_state_lists_a_page_and_names_the_one_before() -> None:
    full = view_of(PAGE_SEGMENTS)
    assert full.as_state("c").page == ()
    assert full.earlier == full.state, "the newest state has the page"
    more = view_of(PAGE_SEGMENTS + 3)
    assert [it.base_id for it in more.as_state("c").page] == [
        it.base_id for it in more.sealed[PAGE_SEGMENTS:]
    ]
    assert more.earlier == full.state
    assert len(more.sealed) == PAGE_SEGMENTS + 3


def test_without_its_oldest_segments_a_log_begins_behind_them() -> None:
    view = view_of(6)
    left = view.without(2)
    assert (left.first_id, left.removed_tick) == (21, 109)
    assert left.sealed == view.sealed[2:]
    assert left.needed_from == 10, "the state before its first entry"
    assert view.without(0) is view
    empty = view.without(6)
    assert (empty.first_id, empty.next_id, empty.needed_from) == (61, 61, view.state)
    assert empty.bounds().size_bytes == 0


def test_an_earlier_page_is_forgotten_with_its_last_segment() -> None:
    view = view_of(PAGE_SEGMENTS + 3)
    assert view.without(PAGE_SEGMENTS - 1).earlier != NOWHERE
    assert view.without(PAGE_SEGMENTS).earlier == NOWHERE
    assert view.without(PAGE_SEGMENTS).as_state("c").page == view.sealed[PAGE_SEGMENTS:]


def test_an_empty_active_segment_is_not_sealed() -> None:
    view = view_of(2)
    assert view.sealed_now() is view
