"""The three rules: their worked examples, the mistakes they must not repeat, and plain models."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.time.barrier import Barrier, HardList, HardMinimum, ReportVerdict, SoftMinimum
from broker.model.ids import TimeTick

Reports = Sequence[tuple[str, int]]
PEERS = "123"


def reports(text: str) -> list[tuple[str, int]]:
    """`1:10 2:20` as pairs."""
    return [(peer, int(tick)) for peer, _, tick in (each.partition(":") for each in text.split())]


def eager(barrier: Barrier, told: Reports) -> list[int]:
    """What a reader gets who looks after each report."""
    taken: list[int] = []
    for peer, tick in told:
        barrier.report(peer, TimeTick(tick))
        taken += barrier.take()
    return taken


def lazy(barrier: Barrier, told: Reports) -> list[int]:
    """What a reader gets who looks once, at the end."""
    for peer, tick in told:
        barrier.report(peer, TimeTick(tick))
    return list(barrier.take())


REFERENCE = reports("1:10 2:20 3:30 4:40 1:30 2:30")


# ---- soft --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("interval", "passed"), [(10, [10, 20, 30]), (11, [10, 30]), (20, [10, 30]), (21, [10])]
)
def test_soft_ticks_are_an_interval_apart_and_never_zero(interval: int, passed: list[int]) -> None:
    assert eager(SoftMinimum(PEERS, interval), REFERENCE) == passed


def test_a_lazy_reader_of_a_soft_barrier_gets_the_newest_alone() -> None:
    barrier = SoftMinimum(PEERS, 10)
    assert lazy(barrier, REFERENCE) == [30]
    assert barrier.take() == ()


def test_soft_step_by_step() -> None:
    barrier = SoftMinimum(PEERS, 10)
    steps = []
    for peer, tick in REFERENCE:
        verdict = barrier.report(peer, TimeTick(tick))
        steps.append((verdict.name, *barrier.take()))
    assert steps == [
        ("TAKEN",), ("TAKEN",), ("TAKEN", 10), ("UNKNOWN",), ("TAKEN", 20), ("TAKEN", 30),
    ]  # fmt: skip


def test_two_writers_in_turn_give_a_soft_tick_each_interval() -> None:
    told = [("12"[turn % 2], 1000 + 100 * turn) for turn in range(10)]
    assert eager(SoftMinimum("12", 500), told) == [1000, 1500]


def test_a_soft_barrier_drops_what_is_late_or_repeated() -> None:
    barrier = SoftMinimum("12", 1)
    told = reports("1:100 2:90 1:95 2:90 2:120 1:130")
    verdicts, taken = list[ReportVerdict](), list[int]()
    for peer, tick in told:
        verdicts.append(barrier.report(peer, TimeTick(tick)))
        taken += barrier.take()
    assert taken == [90, 100, 120]
    assert [it is ReportVerdict.LATE for it in verdicts] == [False, False, True, True, False, False]


def test_a_newcomer_holds_a_soft_barrier_and_never_lets_it_fall() -> None:
    barrier = SoftMinimum("12", 10)
    assert eager(barrier, reports("1:100 2:100")) == [100]
    barrier.join("3")
    assert barrier.waits_for() == ("3",)
    assert eager(barrier, reports("1:200 2:200 3:50")) == []
    assert barrier.passed == 100
    assert eager(barrier, reports("3:150")) == [150]


def test_who_leaves_holds_up_nobody() -> None:
    for barrier in (SoftMinimum(PEERS, 1), HardMinimum(PEERS), HardList(PEERS)):
        assert eager(barrier, reports("1:10 2:10")) == []
        barrier.leave("3")
        assert barrier.take() == (10,)
        barrier.leave("3")
        assert barrier.report("3", TimeTick(20)) is ReportVerdict.UNKNOWN


def test_a_slow_reader_fills_no_queue() -> None:
    barrier = SoftMinimum("1", 1)
    for tick in range(1, 100_000):
        barrier.report("1", TimeTick(tick))
    assert (barrier.passed, barrier.take()) == (99_999, (99_999,))


# ---- hard --------------------------------------------------------------------------------------

EXAMPLES = {
    "A": ("1:10 2:10 3:10", [10], [10]),
    "B": ("1:10 1:20 1:30 2:10 2:20 3:10 3:20", [10, 20], [10, 20]),
    "C": ("1:10 2:10", [], []),
    "D": ("1:10 2:15 3:10 2:20 1:20 3:20", [10, 20], [20]),
    # The minimum once accepted 3's way back from 20 to 15 here, and passed 15.
    "E": ("1:10 2:10 9:10 3:10 1:20 1:15 2:20 3:20", [10, 20], [10, 20]),
    "F": ("1:10 2:10 3:10 1:20 2:20 3:30 1:30 2:30", [10, 20, 30], [10, 30]),
}


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("reader", [eager, lazy])
def test_hard_examples(name: str, reader: Callable[[Barrier, Reports], list[int]]) -> None:
    told, minimum, listed = EXAMPLES[name]
    assert reader(HardMinimum(PEERS), reports(told)) == minimum
    assert reader(HardList(PEERS), reports(told)) == listed


def test_the_minimum_counts_who_is_ahead_of_the_others() -> None:
    barrier = HardMinimum(PEERS)
    eager(barrier, reports(EXAMPLES["B"][0]))
    assert barrier.ahead == 3


def test_what_a_peer_left_out_is_skipped_for_all_and_counted() -> None:
    barrier = HardList(PEERS)
    eager(barrier, reports(EXAMPLES["D"][0]))
    assert barrier.skipped == {"1": 1, "2": 1, "3": 1}
    barrier = HardList(PEERS)
    eager(barrier, reports(EXAMPLES["F"][0]))
    assert barrier.skipped == {"1": 1, "2": 1}


def test_what_waits_for_the_others_is_kept() -> None:
    barrier = HardList(PEERS)
    eager(barrier, reports(EXAMPLES["B"][0]))
    assert barrier.waits_for() == ("2", "3")
    assert eager(barrier, reports("2:30 3:30")) == [30]
    for listed in (HardList(PEERS), HardMinimum(PEERS)):
        eager(listed, reports(EXAMPLES["C"][0]))
        assert listed.waits_for() == ("3",)
        assert eager(listed, reports("3:10")) == [10]


def test_unknown_peers_and_regressions_are_told_apart() -> None:
    for barrier in (HardList(PEERS), HardMinimum(PEERS), SoftMinimum(PEERS, 1)):
        assert barrier.report("9", TimeTick(10)) is ReportVerdict.UNKNOWN
        assert barrier.report("1", TimeTick(20)) is ReportVerdict.TAKEN
        assert barrier.report("1", TimeTick(15)) is ReportVerdict.LATE
        assert barrier.report("1", TimeTick(20)) is ReportVerdict.LATE
        assert barrier.newest("1") == 20


def test_what_has_passed_does_not_pass_again_when_everybody_starts_anew() -> None:
    for barrier in (HardList("12"), HardMinimum("12"), SoftMinimum("12", 1)):
        assert eager(barrier, reports("1:10 2:10 1:50 2:50")) == [10, 50]
        for peer in "12":
            barrier.join(peer)
            assert barrier.newest(peer) == 0
        assert eager(barrier, reports("1:10 2:10 1:60 2:60")) == [60]


def test_a_peer_far_ahead_of_a_silent_one_takes_limited_room() -> None:
    barrier = HardList("12", ahead_max=3)
    assert eager(barrier, [("1", tick) for tick in range(1, 11)]) == []
    assert barrier.skipped == {"1": 7}
    assert eager(barrier, [("2", tick) for tick in range(1, 11)]) == [8, 9, 10]


@pytest.mark.parametrize("make", [HardList, HardMinimum, lambda peers: SoftMinimum(peers, 1)])
def test_a_barrier_begins_with_a_peer_and_may_lose_all(make: Callable[[str], Barrier]) -> None:
    with pytest.raises(ValueError, match="at least one peer"):
        make("")
    barrier = make("11")
    assert eager(barrier, reports("1:10")) == [10]
    barrier.leave("1")
    assert (barrier.take(), barrier.waits_for(), barrier.passed) == ((), (), 10)
    barrier.join("2")
    assert eager(barrier, reports("2:20")) == [20]


# ---- beside plain models -----------------------------------------------------------------------

REPORT = st.tuples(st.just("report"), st.sampled_from("1234"), st.integers(0, 12))
MEMBERSHIP = st.tuples(st.sampled_from(["join", "leave"]), st.sampled_from("1234"), st.just(0))
EVENTS = st.lists(REPORT | REPORT | REPORT | MEMBERSHIP, max_size=60)
Event = tuple[str, str, int]


def lowest_now(history: Sequence[Event]) -> int:
    """The smallest of the members' newest ticks, from the whole history, each time anew."""
    newest = dict.fromkeys("12", 0)
    for what, peer, tick in history:
        if what == "join":
            newest[peer] = 0
        elif what == "leave":
            newest.pop(peer, None)
        elif peer in newest:
            newest[peer] = max(newest[peer], tick)
    return min(newest.values(), default=0)


def play(barrier: Barrier, event: Event) -> None:
    what, peer, tick = event
    match what:
        case "join":
            barrier.join(peer)
        case "leave":
            barrier.leave(peer)
        case _:
            barrier.report(peer, TimeTick(tick))


@given(EVENTS, st.integers(1, 5), st.lists(st.booleans(), min_size=60, max_size=60))
def test_soft_is_the_smallest_newest_an_interval_above_the_last_taken(
    events: list[Event], interval: int, looks: list[bool]
) -> None:
    barrier = SoftMinimum("12", interval)
    last = due = 0
    for number, event in enumerate(events):
        play(barrier, event)
        lowest = lowest_now(events[: number + 1])
        if lowest > max(last, due) and (last == 0 or lowest - last >= interval):
            due = lowest
        if looks[number]:
            expected = (due,) if due > last else ()
            assert barrier.take() == expected
            last = max(last, due)


@given(EVENTS)
def test_hard_minimum_is_each_new_height_of_the_smallest_newest(events: list[Event]) -> None:
    barrier, expected = HardMinimum("12"), list[int]()
    taken: list[int] = []
    for number, event in enumerate(events):
        play(barrier, event)
        taken += barrier.take()
        lowest = lowest_now(events[: number + 1])
        if lowest > max(expected, default=0):
            expected.append(lowest)
        assert taken == expected


@given(st.lists(st.tuples(st.sampled_from("1234"), st.integers(0, 12)), max_size=60))
def test_hard_list_is_what_all_have_reported(told: list[tuple[str, int]]) -> None:
    """With lasting peers it is the intersection of the growing ticks of each."""
    barrier, taken = HardList(PEERS), list[int]()
    growing: dict[str, list[int]] = {peer: [] for peer in PEERS}
    for peer, tick in told:
        barrier.report(peer, TimeTick(tick))
        taken += barrier.take()
        if peer in growing and tick > max(growing[peer], default=0):
            growing[peer].append(tick)
        assert taken == sorted(set.intersection(*map(set, growing.values())))


@given(EVENTS)
def test_hard_list_passes_growing_ticks_that_every_member_reported(events: list[Event]) -> None:
    barrier, reached = HardList("12"), {"1": set[int](), "2": set[int]()}
    before = 0
    for what, peer, tick in events:
        play(barrier, (what, peer, tick))
        if what == "join":
            reached[peer] = set()
        elif what == "leave":
            reached.pop(peer, None)
        elif peer in reached:
            reached[peer].add(tick)
        for passed in barrier.take():
            assert passed > before
            assert all(passed in ticks for ticks in reached.values())
            before = passed
        assert barrier.passed == before
