"""Reservations of rows in segments, with the worked examples, and a naive model."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.master.reservations import (
    MIB,
    ChannelRange,
    ReservationLimits,
    SegmentReservations,
    channel_ranges,
)
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import TICK_LOGICAL_BITS, CollectionId, PartitionId, SegmentId, TimeTick
from broker.model.master.reservation import OpenReservations, ReservedRows, RowsWanted
from broker.model.master.segment_meta import SegmentMeta, SegmentMetaState

WANTED = RowsWanted(CollectionId(7), PartitionId(8), "_default", channel=0, count=100, row_bytes=1)
SMALL = ReservationLimits(segment_bytes=1000)
FEW = replace(SMALL, reservations_max=6)
NOW = TimeTick((1_600_000_000_000 << TICK_LOGICAL_BITS) + 5)
EXPIRES = TimeTick(NOW + (2000 << TICK_LOGICAL_BITS))


def later(ms: int) -> TimeTick:
    return TimeTick(NOW + (ms << TICK_LOGICAL_BITS))


def reservations(limits: ReservationLimits = SMALL, channels: int = 1) -> SegmentReservations:
    return SegmentReservations(channel_ranges(channels, 1), limits)


def opened(core: SegmentReservations, id: int = 1, wanted: RowsWanted = WANTED) -> SegmentId:
    core.keep(core.new_segment(SegmentId(id), wanted, NOW))
    return SegmentId(id)


@pytest.mark.parametrize(
    ("channels", "nodes", "expected"),
    [
        (5, 3, [(0, 1), (2, 3), (4, 4)]),
        (2, 4, [(0, 0), (1, 1)]),
        (16, 1, [(0, 15)]),
        (6, 3, [(0, 1), (2, 3), (4, 5)]),
    ],
)
def test_channels_are_split_as_evenly_as_possible(
    channels: int, nodes: int, expected: list[tuple[int, int]]
) -> None:
    assert channel_ranges(channels, nodes) == tuple(ChannelRange(*it) for it in expected)


@given(st.integers(1, 40), st.integers(1, 40))
def test_every_channel_is_in_one_range_and_sizes_differ_by_one(channels: int, nodes: int) -> None:
    ranges = channel_ranges(channels, nodes)
    assert [n for it in ranges for n in range(it.first, it.last + 1)] == list(range(channels))
    sizes = [it.last - it.first + 1 for it in ranges]
    assert max(sizes) - min(sizes) <= 1
    assert len(ranges) == min(channels, nodes)


def test_a_reservation_is_exactly_the_count_and_expires_two_seconds_later() -> None:
    core = reservations()
    assert core.room(WANTED) is None
    id = opened(core)
    assert core.reserve(id, WANTED, NOW) == ReservedRows(id, 100, EXPIRES)
    assert core.statistics() == (OpenReservations(id, rows=100, size_bytes=100, last_tick=NOW),)


def test_the_worked_sizes_of_a_segment_of_512_mib() -> None:
    core = reservations(ReservationLimits())
    assert core.rows_max(1024) == 512 * MIB // 1024
    huge = replace(WANTED, count=600_000, row_bytes=1024)
    refusal = core.refusal(huge)
    assert refusal is not None
    assert refusal.code is StreamingCode.INVALID_ARGUMENT
    assert "524288 rows" in refusal.cause
    assert core.refusal(replace(huge, count=524_288)) is None


@pytest.mark.parametrize("count", [0, -1])
def test_a_count_below_one_is_refused(count: int) -> None:
    refusal = reservations().refusal(replace(WANTED, count=count))
    assert refusal is not None
    assert refusal.code is StreamingCode.INVALID_ARGUMENT
    assert str(count) in refusal.cause


def test_a_segment_with_less_room_is_passed_over_for_the_next() -> None:
    core = reservations()
    first, second = opened(core, 1), opened(core, 2)
    core.reserve(first, replace(WANTED, count=901), NOW)
    assert core.room(WANTED) == second
    assert core.room(replace(WANTED, count=99)) == first
    core.reserve(second, replace(WANTED, count=1000), NOW)
    assert core.room(WANTED) is None


def test_a_segment_takes_rows_of_one_partition_and_one_range_of_channels() -> None:
    core = SegmentReservations(channel_ranges(5, 3), SMALL)
    id = opened(core, 1, replace(WANTED, channel=2))
    assert core.find(id) is not None
    assert core.all()[0].channel_end == 3
    assert core.room(replace(WANTED, channel=3)) == id
    assert core.room(replace(WANTED, channel=1)) is None
    assert core.room(replace(WANTED, channel=3, partition_id=PartitionId(9))) is None
    assert core.room(replace(WANTED, channel=3, collection_id=CollectionId(9))) is None


@pytest.mark.parametrize(("passed", "free"), [(-1, 0), (0, 1000), (1, 1000)])
def test_a_reservation_is_dropped_at_the_tick_that_passes_it(passed: int, free: int) -> None:
    core = reservations()
    id = opened(core)
    core.reserve(id, replace(WANTED, count=1000), NOW)
    core.expire(TimeTick(EXPIRES + passed))
    assert (core.room(replace(WANTED, count=1000)) == id) is (free == 1000)


@pytest.mark.parametrize(
    ("rows", "memory", "full"), [(749, 750, False), (750, 0, True), (0, 751, True)]
)
def test_a_segment_is_sealed_at_its_share_of_rows_or_bytes(
    rows: int, memory: int, full: bool
) -> None:
    core = reservations()
    meta = core.counted(opened(core), rows, memory, later(5))
    assert meta is not None
    assert (meta.rows, meta.size_bytes, meta.modified_tick) == (rows, memory, later(5))
    assert (meta.state is SegmentMetaState.SEALED) is full
    core.keep(meta)
    assert (core.room(replace(WANTED, count=1)) is None) is full


def test_counts_of_a_segment_that_is_not_open_change_nothing() -> None:
    assert reservations().counted(SegmentId(1), 5, 5, NOW) is None
    assert reservations().find(SegmentId(1)) is None


def test_a_sealed_segment_closes_when_all_nodes_have_passed_its_last_reservation() -> None:
    core = reservations()
    id, growing = opened(core), opened(core, 2, replace(WANTED, collection_id=CollectionId(1)))
    core.reserve(id, WANTED, NOW)
    core.expire(later(5000))
    assert core.closed(later(5000), NOW) == []
    (sealed,) = core.sealed(CollectionId(7))
    core.keep(sealed)
    assert core.sealed(CollectionId(7)) == []
    assert core.closed(TimeTick(EXPIRES - 1), later(9)) == []
    (closed,) = core.closed(EXPIRES, later(9))
    assert (closed.id, closed.state, closed.close_tick) == (id, SegmentMetaState.FLUSHED, later(9))
    core.keep(closed)
    core.keep(closed)
    assert [it.id for it in core.all()] == [growing]


def test_the_end_of_one_of_two_segments_of_a_place_leaves_the_other() -> None:
    core = reservations()
    ended, other = opened(core), opened(core, 2)
    core.keep(replace(_meta(core, ended), state=SegmentMetaState.DROPPED))
    assert [it.id for it in core.all()] == [other]
    assert core.room(WANTED) == other


def _meta(core: SegmentReservations, id: SegmentId) -> SegmentMeta:
    found = core.find(id)
    assert found is not None
    return found


def test_ticks_are_waited_for_while_rows_are_reserved_or_a_segment_is_sealed() -> None:
    core = reservations()
    id = opened(core)
    seen = [core.wait_for_ticks]
    core.reserve(id, WANTED, NOW)
    seen.append(core.wait_for_ticks)
    core.expire(EXPIRES)
    seen.append(core.wait_for_ticks)
    core.keep(core.sealed(WANTED.collection_id)[0])
    seen.append(core.wait_for_ticks)
    assert seen == [False, True, False, True]


def test_after_a_restart_all_free_rows_are_reserved_for_as_long_as_a_reservation_lasts() -> None:
    before = reservations()
    metas = [before.new_segment(SegmentId(it), WANTED, NOW) for it in (2, 1)]
    over = replace(metas[0], rows=2000, state=SegmentMetaState.SEALED)
    core = reservations()
    core.restore([over, metas[1]], later(10))
    assert [it.id for it in core.all()] == [1, 2]
    assert core.room(WANTED) is None
    assert core.closed(later(2009), NOW) == []
    core.expire(later(2010))
    assert core.room(WANTED) == 1
    assert [it.id for it in core.closed(later(2010), NOW)] == [2]


def test_segments_of_ranges_that_are_no_more_are_sealed() -> None:
    before = reservations(channels=2)
    core = reservations(channels=4)
    core.restore([before.new_segment(SegmentId(1), WANTED, NOW)], NOW)
    (sealed,) = core.outgrown()
    assert sealed.state is SegmentMetaState.SEALED
    core.keep(sealed)
    assert core.outgrown() == []


def test_segments_of_partitions_that_are_gone_are_dropped() -> None:
    core = reservations()
    opened(core, 1)
    opened(core, 2, replace(WANTED, partition_id=PartitionId(9)))
    opened(core, 3, replace(WANTED, collection_id=CollectionId(9)))
    gone = core.dropped({CollectionId(7): frozenset({PartitionId(9)})}, later(1))
    assert [(it.id, it.state) for it in gone] == [
        (1, SegmentMetaState.DROPPED),
        (3, SegmentMetaState.DROPPED),
    ]
    for each in gone:
        core.keep(each)
    assert [it.id for it in core.all()] == [2]


def test_more_reservations_or_segments_than_the_limit_are_refused_for_now() -> None:
    few = reservations(replace(SMALL, reservations_max=1))
    few.reserve(opened(few), WANTED, NOW)
    one = reservations(replace(SMALL, open_max=1))
    one.reserve(opened(one), replace(WANTED, count=1000), NOW)
    for core, what in ((few, "1 reservations"), (one, "1 segments")):
        refusal = core.refusal(WANTED)
        assert refusal is not None
        assert refusal.code is StreamingCode.RESOURCE_ACQUIRED
        assert what in refusal.cause
        core.expire(EXPIRES)
        assert core.refusal(WANTED) is None


# ---- the naive model ------------------------------------------------------------------------


@dataclass
class NaiveSegment:
    """Everything that ever happened to a segment, looked through at each question."""

    place: tuple[int, int, int]
    made: list[tuple[int, int]]
    rows: int = 0
    sealed: bool = False
    closed: bool = False

    def reserved(self, soft_tick: int) -> int:
        return sum(count for count, at in self.made if at > soft_tick)

    def free(self, soft_tick: int) -> int:
        return 1000 - self.rows - self.reserved(soft_tick)

    def reservations(self, soft_tick: int) -> int:
        return len({at for _, at in self.made if at > soft_tick})


class Naive:
    def __init__(self) -> None:
        self.segments: dict[int, NaiveSegment] = {}
        self.soft_tick = 0

    def fitting(self, place: tuple[int, int, int], count: int) -> int | None:
        for id, it in self.segments.items():
            takes = not it.sealed and not it.closed and it.place == place
            if takes and it.free(self.soft_tick) >= count:
                return id
        return None


Steps = st.lists(
    st.one_of(
        st.tuples(st.just("want"), st.integers(1, 1100), st.integers(0, 3), st.integers(1, 2)),
        st.tuples(st.just("soft"), st.integers(0, 3000)),
        st.tuples(st.just("hard"), st.integers(0, 3000)),
        st.tuples(st.just("count"), st.integers(1, 5), st.integers(0, 1100)),
        st.tuples(st.just("seal"), st.integers(1, 2)),
        st.tuples(st.just("wait"), st.integers(1, 1500)),
    ),
    max_size=40,
)


@given(Steps)
def test_whatever_happens_a_naive_model_agrees(steps: list[tuple[str | int, ...]]) -> None:
    core = SegmentReservations(channel_ranges(4, 2), FEW)
    naive = Naive()
    now = NOW
    for name, *given_ in steps:
        numbers = [int(it) for it in given_]
        if name == "wait":
            now = TimeTick(now + (numbers[0] << TICK_LOGICAL_BITS))
        elif name == "want":
            _want(core, naive, now, *numbers)
        elif name == "soft":
            # No tick has passed everywhere before it was given out.
            naive.soft_tick = max(naive.soft_tick, now - (numbers[0] << TICK_LOGICAL_BITS))
            core.expire(TimeTick(naive.soft_tick))
        elif name == "hard":
            _close(core, naive, TimeTick(now - (numbers[0] << TICK_LOGICAL_BITS)))
        elif name == "count":
            _count(core, naive, *numbers)
        else:
            for meta in core.sealed(CollectionId(numbers[0])):
                core.keep(meta)
            for it in naive.segments.values():
                it.sealed |= it.place[0] == numbers[0] and not it.closed
        alive = {id: it for id, it in naive.segments.items() if not it.closed}
        assert [it.id for it in core.all()] == list(alive)
        assert [it.rows for it in core.statistics()] == [
            it.reserved(naive.soft_tick) for it in alive.values()
        ]
        assert [it.state is SegmentMetaState.SEALED for it in core.all()] == [
            it.sealed for it in alive.values()
        ]


def _want(
    core: SegmentReservations, naive: Naive, now: TimeTick, count: int, channel: int, of: int
) -> None:
    wanted = replace(WANTED, count=count, channel=channel, collection_id=CollectionId(of))
    refusal = core.refusal(wanted)
    alive = [it for it in naive.segments.values() if not it.closed]
    reservations = sum(it.reservations(naive.soft_tick) for it in alive)
    assert isinstance(refusal, Refusal) == (count > 1000 or reservations >= FEW.reservations_max)
    if refusal is not None:
        return
    place = (of, 8, channel // 2)
    expected = naive.fitting(place, count)
    id = core.room(wanted)
    assert id == expected
    if id is None:
        id = SegmentId(len(naive.segments) + 1)
        core.keep(core.new_segment(id, wanted, now))
        naive.segments[id] = NaiveSegment(place, [])
    reserved = core.reserve(id, wanted, now)
    assert reserved == ReservedRows(id, count, TimeTick(now + (2000 << TICK_LOGICAL_BITS)))
    naive.segments[id].made.append((count, reserved.expire_tick))


def _close(core: SegmentReservations, naive: Naive, hard_tick: TimeTick) -> None:
    closed: list[SegmentMeta] = core.closed(hard_tick, hard_tick)
    expected = [
        id
        for id, it in naive.segments.items()
        if it.sealed and not it.closed and all(at <= hard_tick for _, at in it.made)
    ]
    assert [it.id for it in closed] == expected
    for meta in closed:
        core.keep(meta)
        naive.segments[meta.id].closed = True


def _count(core: SegmentReservations, naive: Naive, id: int, rows: int) -> None:
    meta = core.counted(SegmentId(id), rows, 0, NOW)
    known = naive.segments.get(id)
    assert (meta is None) == (known is None or known.closed)
    if meta is not None and known is not None:
        core.keep(meta)
        known.rows = rows
        known.sealed |= rows >= 750
