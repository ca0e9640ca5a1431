"""The tail against the plain list of everything that was pushed."""

from weakref import ref

from hypothesis import given
from hypothesis import strategies as st

from broker.core.log import tail_window
from broker.core.log.tail_window import TailWindow
from broker.model.ids import MessageId, Term, TimeTick
from broker.model.record import Record


def record(base_id: int, count: int) -> Record:
    return Record(
        Term(1), MessageId(base_id), TimeTick(base_id), MessageId(base_id), 2, "v", (10,) * count,
        bytes(10 * count),
    )  # fmt: skip


GROUPS = st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4), max_size=12)


@given(GROUPS, st.lists(st.integers(0, 3_000), min_size=12, max_size=12))
def test_a_window_holds_a_contiguous_end_of_what_was_pushed(
    groups: list[list[int]], limits: list[int]
) -> None:
    window, pushed, next_id = TailWindow(MessageId(1)), list[Record](), 1
    for now, (counts, limit) in enumerate(zip(groups, limits, strict=False)):
        group = []
        for count in counts:
            group.append(record(next_id, count))
            next_id += count
        pushed += group
        window.push(group, float(now))
        window.evict_beyond(limit)
        assert window.first_id <= group[0].base_id, "the newest group stays"
        assert window.size_bytes <= limit or window.first_id == group[0].base_id
    assert window.next_id == next_id
    for wanted in range(1, next_id + 2):
        found = window.read(MessageId(wanted))
        if wanted >= next_id:
            assert found == ()
        elif wanted < window.first_id:
            assert found is None
        else:
            assert found == [each for each in pushed if each.next_id > wanted]


def test_old_groups_leave_and_the_newest_stays() -> None:
    window = TailWindow(MessageId(1))
    assert (window.first_id, window.read(MessageId(1))) == (1, ())
    assert not window.evict_oldest()
    for start in (1, 2, 3):
        window.push([record(start, 1)], float(start))
    window.evict_old(2.5)
    assert window.first_id == 3
    window.evict_old(99.0)
    assert window.first_id == 3


def test_pushing_nothing_changes_nothing() -> None:
    window = TailWindow(MessageId(5))
    window.push([], 1.0)
    assert (window.first_id, window.next_id, window.size_bytes) == (5, 5, 0)


def test_evicted_places_are_reclaimed_and_reads_stay_right() -> None:
    window, count = TailWindow(MessageId(1)), 5 * tail_window._HEAD_MAX
    for start in range(1, count + 1):
        window.push([record(start, 1)], 0.0)
        if start > 10:
            window.evict_oldest()
    assert len(window._records) < 2 * tail_window._HEAD_MAX + 20
    assert window.first_id == count - 9
    found = window.read(MessageId(count - 3))
    assert found is not None
    assert [each.base_id for each in found] == [count - 3, count - 2, count - 1, count]


class Watched(Record):
    """A record to which weak references are possible."""


def test_evicted_records_are_freed_at_once() -> None:
    window, pushed = TailWindow(MessageId(1)), list[ref[Record]]()
    for start in range(1, 101):
        watched = Watched(
            Term(1), MessageId(start), TimeTick(start), MessageId(start), 2, "v", (9,), bytes(9)
        )
        pushed.append(ref(watched))
        window.push([watched], 0.0)
        del watched
        window.evict_beyond(5_000)
    assert [each() is None for each in pushed] == [
        start < window.first_id for start in range(1, 101)
    ]
    assert 1 < window.first_id < 100


def test_one_read_is_bounded() -> None:
    window = TailWindow(MessageId(1))
    window.push([record(start, 1) for start in range(1, 3_000)], 0.0)
    found = window.read(MessageId(1))
    assert found is not None
    assert len(found) == tail_window.SLICE_RECORDS_MAX
