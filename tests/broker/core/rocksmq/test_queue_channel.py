"""One channel: ids are half-open, pages close when they are above their size, seeks are checked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.rocksmq.queue_channel import (
    QueueChannel,
    appended,
    commit_fault,
    ids_fault,
    seek_fault,
    unread,
    with_position,
    without_group,
)
from broker.model.rocksmq.queue_refusal import QueueFault

SIZES = st.lists(st.integers(0, 50), max_size=12)


def naive_pages(sizes: list[int], page_bytes: int) -> tuple[list[tuple[int, int]], int]:
    """Each page as the place of its last message and its bytes; then the bytes left over."""
    pages, page = [], 0
    for place, size in enumerate(sizes):
        if page + size > page_bytes:
            pages.append((place, page + size))
            page = 0
        else:
            page += size
    return pages, page


@given(SIZES, st.integers(1, 100), st.integers(1, 2**50), st.data())
def test_however_messages_are_batched_pages_and_ids_are_those_of_one_naive_walk(
    sizes: list[int], page_bytes: int, first: int, data: st.DataObject
) -> None:
    channel, at = QueueChannel(), 0
    while at < len(sizes):
        count = data.draw(st.integers(1, len(sizes) - at))
        channel = appended(channel, first + at, sizes[at : at + count], page_bytes)
        at += count
    pages, left = naive_pages(sizes, page_bytes)
    assert [(it.end_id - first, it.size_bytes) for it in channel.pages] == pages
    assert channel.open_bytes == left
    assert sum(sizes) == left + sum(size for _, size in pages)
    assert (channel.begin_id, channel.end_id) == ((first, first + len(sizes)) if sizes else (0, 0))


def test_a_gap_in_the_ids_moves_the_end_and_not_the_begin() -> None:
    channel = appended(appended(QueueChannel(), 10, [1], 100), 20, [1, 1], 100)
    assert (channel.begin_id, channel.end_id) == (10, 22)


def test_ids_never_go_back() -> None:
    channel = appended(QueueChannel(), 10, [1], 100)
    with pytest.raises(AssertionError):
        appended(channel, 10, [1], 100)


def test_groups_come_and_go_by_name() -> None:
    channel = with_position(with_position(QueueChannel(), "a", -1), "b", 5)
    assert with_position(channel, "a", 7).positions == {"a": 7, "b": 5}
    assert without_group(channel, "a").positions == {"b": 5}


def test_a_channel_without_messages_takes_no_seek_but_to_its_beginning() -> None:
    assert seek_fault("c", QueueChannel(end_id=0), -1) is None
    for position in (-2, 1, 2**40):
        refusal = seek_fault("c", QueueChannel(), position)
        assert refusal is not None
        assert "no messages yet" in refusal.cause


def test_a_seek_is_taken_from_the_first_message_left_to_the_next_one_to_come() -> None:
    channel = QueueChannel(begin_id=10, end_id=20)
    for position in (-1, 10, 15, 20):
        assert seek_fault("c", channel, position) is None
    for position, told in (
        (9, "below 10 are removed"),
        (21, "next message is 20"),
        (-2, "removed"),
    ):
        refusal = seek_fault("c", channel, position)
        assert refusal is not None
        assert refusal.fault is QueueFault.OUT_OF_RANGE
        assert told in refusal.cause
        assert f"seek to {position}" in refusal.cause
        assert "'c'" in refusal.cause


@given(st.sets(st.integers(1, 20)), st.integers(-1, 22))
def test_there_is_something_unread_where_a_list_has_a_message_at_or_above_the_position(
    ids: set[int], position: int
) -> None:
    channel = QueueChannel()
    for msg_id in sorted(ids):
        channel = appended(channel, msg_id, [1], 100)
    assert unread(channel, position) == any(msg_id >= position for msg_id in ids)


def test_what_a_group_was_not_given_is_not_committed() -> None:
    for position in (-1, 5, 10):
        assert commit_fault("g", "c", position, 10) is None
    for position in (11, -2):
        refusal = commit_fault("g", "c", position, 10)
        assert refusal is not None
        assert f"commit up to {position - 1}" in refusal.cause
        assert "given nothing above 9" in refusal.cause


def test_ids_that_go_back_are_refused_with_both() -> None:
    channel = QueueChannel(begin_id=10, end_id=20)
    assert ids_fault("c", channel, 20) is None
    assert ids_fault("c", QueueChannel(), 1) is None
    for first_id, of in ((19, channel), (0, QueueChannel())):
        refusal = ids_fault("c", of, first_id)
        assert refusal is not None
        assert f"gave {first_id}" in refusal.cause
        assert f"is at {of.end_id}" in refusal.cause
