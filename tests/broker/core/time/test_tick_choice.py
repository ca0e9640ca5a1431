"""The choice of a tick on many channels, against trying every tick there is."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from broker.core.time.span_count import SpanCount, SpanLimit, StepSize
from broker.core.time.tick_choice import choose, extended, split, splitting
from broker.model.ids import BroadcastId, MessageId, TimeTick
from broker.model.measured import AtomicMember, MeasuredChannel, MeasuredSpan, RecordHead, SpanStep
from broker.model.message import MessageType

AFTER, UNTIL = 5, 60
CHANNELS = ("a", "b", "c")
Rows = dict[str, list[int]]
"""By channel: the ticks of its messages, growing."""

rows_of_channels = st.fixed_dictionaries(
    {name: st.sets(st.integers(AFTER + 1, UNTIL), max_size=25).map(sorted) for name in CHANNELS}
)
copies_of = st.lists(
    st.dictionaries(st.sampled_from(CHANNELS), st.integers(AFTER + 1, UNTIL), min_size=1),
    max_size=4,
)


def measured_of(
    rows: Rows, grain: int, copies: list[dict[str, int]], exact: int = UNTIL, after: int = AFTER
) -> MeasuredSpan:
    channels: dict[str, MeasuredChannel] = {}
    for name, ticks in rows.items():
        span = (TimeTick(after), TimeTick(exact))
        measuring = SpanCount([name], span, StepSize(grain), SpanLimit())
        for number, tick in enumerate(ticks):
            own_id = MessageId(number)
            head = RecordHead(own_id, TimeTick(tick), own_id, 1, MessageType.INSERT, name, 10)
            if not measuring.take(head):
                break
        measuring.finish()
        channels |= measuring.channels()
    seen = [
        AtomicMember(BroadcastId(number), name, TimeTick(tick), len(each))
        for number, each in enumerate(copies)
        for name, tick in each.items()
        if after < tick <= exact
    ]
    return MeasuredSpan(TimeTick(after), TimeTick(UNTIL), channels, tuple(seen))


def count(rows: Rows, tick: int) -> int:
    return sum(AFTER < it <= tick for each in rows.values() for it in each)


def splits(tick: int, copies: list[dict[str, int]]) -> bool:
    return any(min(each.values()) <= tick < max(each.values()) for each in copies)


@given(rows_of_channels, copies_of, st.integers(1, 40), st.integers(6, UNTIL))
def test_told_of_every_message_it_is_the_largest_tick_that_keeps_to_the_limits(
    rows: Rows, copies: list[dict[str, int]], rows_max: int, exact: int
) -> None:
    choice = choose(measured_of(rows, 1, copies, exact), rows_max, 0)
    ticks = {it for each in rows.values() for it in each} | {exact}
    open_ended = [it for it in copies if min(it.values()) <= exact < max(it.values())]
    allowed = [it for it in sorted(ticks) if it <= exact and not splits(it, copies)]
    if exact < UNTIL:
        allowed = [it for it in allowed if not any(min(o.values()) <= it for o in open_ended)]
    if not allowed:
        assert choice is None
        return
    fitting = [it for it in allowed if count(rows, it) <= rows_max]
    assert choice is not None
    assert choice.tick == (fitting[-1] if fitting else allowed[0])
    assert choice.rows == count(rows, choice.tick)
    assert choice.bytes == 10 * choice.rows


@given(rows_of_channels, copies_of, st.integers(1, 40), st.integers(2, 9), st.integers(0, 200))
def test_told_of_coarse_steps_it_goes_on_and_is_over_the_limits_only_without_another_choice(
    rows: Rows, copies: list[dict[str, int]], rows_max: int, grain: int, bytes_max: int
) -> None:
    measured = measured_of(rows, grain, copies)
    choice = choose(measured, rows_max, bytes_max)
    assert choice is not None, "the end of the span splits nothing"
    assert AFTER < choice.tick <= UNTIL
    assert not splits(choice.tick, copies)
    assert count(rows, choice.tick) <= choice.rows
    if choice.rows > rows_max or 0 < bytes_max < choice.bytes:
        ends = {step.tick for it in measured.channels.values() for step in it.steps}
        assert choice.tick == min(it for it in {*ends, UNTIL} if not splits(it, copies))


@given(rows_of_channels, copies_of, st.integers(6, UNTIL - 1), st.integers(0, 40))
def test_looking_on_from_where_a_look_ended_is_as_looking_once(
    rows: Rows, copies: list[dict[str, int]], exact: int, rows_max: int
) -> None:
    more = measured_of(rows, 1, copies, UNTIL, exact)
    both = extended(measured_of(rows, 1, copies, exact), more)
    once = measured_of(rows, 1, copies)
    assert both.exact == once.exact == UNTIL
    assert both.channels == once.channels
    assert choose(both, rows_max, 0) == choose(once, rows_max, 0)


def test_a_repeated_copy_forbids_nothing_that_the_first_ones_do_not() -> None:
    first, again = TimeTick(10), TimeTick(30)
    copies = (
        AtomicMember(BroadcastId(1), "a", first, 2),
        AtomicMember(BroadcastId(1), "b", TimeTick(20), 2),
        AtomicMember(BroadcastId(1), "a", again, 2),
        AtomicMember(BroadcastId(2), "b", TimeTick(40), 2),
    )
    nothing = MeasuredChannel((), TimeTick(UNTIL))
    whole = MeasuredSpan(TimeTick(5), TimeTick(UNTIL), {"a": nothing, "b": nothing}, copies)
    assert splitting(whole) == [(10, 20), (40, 40)]
    early = MeasuredChannel((), TimeTick(50))
    part = MeasuredSpan(TimeTick(5), TimeTick(UNTIL), {"a": early, "b": nothing}, copies)
    assert splitting(part) == [(10, 20), (40, UNTIL + 1)]


@given(st.lists(st.integers(1, 5), max_size=20), st.integers(1, 8), st.integers(0, 30))
def test_a_channel_is_parted_where_steps_end_and_into_about_equal_shares(
    sizes: list[int], parts: int, after: int
) -> None:
    steps, rows = [], 0
    for number, size in enumerate(sizes):
        rows += size
        steps.append(SpanStep(TimeTick(3 * number + 2), TimeTick(3 * number + 3), rows, rows))
    span = (TimeTick(after), TimeTick(70))
    found = split(MeasuredChannel(tuple(steps), TimeTick(70)), span, parts)
    assert (found[0][0], found[-1][1]) == span
    assert all(a[1] == b[0] for a, b in pairwise(found))
    assert len(found) <= parts
    ends = {step.tick for step in steps}
    assert all(a < b for a, b in found)
    assert all(a in ends for a, _ in found[1:])
    inside = [b - a for a, b in pairwise([0, *(it.rows for it in steps)])]
    shares = [
        sum(own for step, own in zip(steps, inside, strict=True) if a < step.tick <= b)
        for a, b in found
    ]
    if after == 0:
        assert sum(shares) == sum(sizes)
        assert max(shares) <= sum(sizes) / parts + 2 * max([*sizes, 0])
