"""What is counted from heads, against counting every message by itself."""

from hypothesis import given
from hypothesis import strategies as st

from broker.core.time.span_count import SpanCount, SpanLimit, StepSize
from broker.model.ids import TimeTick
from broker.model.measured import MeasuredChannel, RecordHead
from tests.broker.core.time.measured_logs import PCHANNEL, SHARDS, Part, Row, log_of, parts, seen

CHANNELS = (*SHARDS[:2], PCHANNEL)
ALL = SpanLimit()
grains = st.builds(StepSize, st.integers(1, 40), st.integers(0, 60), st.integers(4, 40))


def walk(
    heads: list[RecordHead], span: tuple[int, int], grain: StepSize, enough: SpanLimit = ALL
) -> tuple[dict[str, MeasuredChannel], int]:
    """What was counted, and how many heads it took."""
    ticks = (TimeTick(span[0]), TimeTick(span[1]))
    measuring = SpanCount(CHANNELS, ticks, grain, enough, PCHANNEL)
    for taken, head in enumerate(heads, 1):
        if not measuring.take(head):
            return measuring.channels(), taken
    measuring.finish()
    return measuring.channels(), len(heads)


def up_to(rows: list[Row], channel: str, after: int, tick: int) -> tuple[int, int]:
    sizes = [it.size for it in seen(rows, channel) if after < it.tick <= tick]
    return len(sizes), sum(sizes)


@given(parts, st.integers(0, 80), st.integers(1, 200), grains)
def test_at_the_end_of_each_step_there_is_exactly_what_one_counts_and_nothing_between_steps(
    happened: list[Part], after: int, length: int, grain: StepSize
) -> None:
    heads, rows = log_of(happened)
    found, _ = walk(heads, (after, after + length), grain)
    for channel, measured in found.items():
        assert measured.exact == after + length
        assert len(measured.steps) <= grain.steps_max
        last = after
        for step in measured.steps:
            assert last < step.first_tick <= step.tick <= measured.exact
            before = up_to(rows, channel, after, last)
            assert up_to(rows, channel, after, step.first_tick - 1) == before
            assert (step.rows, step.bytes) == up_to(rows, channel, after, step.tick)
            last = step.tick
        assert up_to(rows, channel, after, last) == up_to(rows, channel, after, measured.exact)


def test_too_many_steps_become_half_as_many_of_twice_the_size() -> None:
    heads, rows = log_of([("plain", 0, 10, 7)])
    found, _ = walk(heads, (0, 10_000), StepSize(1, 0, steps_max=4))
    steps = found[SHARDS[0]].steps
    assert [step.rows for step in steps] == [4, 8, 10]
    assert [step.rows for step in steps] == [up_to(rows, SHARDS[0], 0, it.tick)[0] for it in steps]


@given(parts, st.integers(1, 9), st.integers(0, 40))
def test_a_step_is_no_larger_than_its_grain_but_for_one_record_at_one_tick(
    happened: list[Part], grain_rows: int, grain_bytes: int
) -> None:
    heads, rows = log_of(happened)
    found, _ = walk(heads, (0, 10_000), StepSize(grain_rows, grain_bytes))
    for channel, measured in found.items():
        before = (0, 0)
        for step in measured.steps:
            own_rows, own_bytes = step.rows - before[0], step.bytes - before[1]
            before = (step.rows, step.bytes)
            at_end = [it for it in seen(rows, channel) if it.tick == step.tick]
            assert own_rows - len(at_end) < grain_rows
            if grain_bytes:
                assert own_bytes - sum(it.size for it in at_end) <= grain_bytes


@given(parts, st.integers(0, 40), st.integers(1, 30), st.integers(0, 100))
def test_a_walk_stops_once_there_is_enough_and_says_how_far_it_is_exact(
    happened: list[Part], after: int, rows_max: int, bytes_max: int
) -> None:
    heads, rows = log_of(happened)
    until = 300
    found, taken = walk(heads, (after, until), StepSize(1), SpanLimit(rows_max, bytes_max))
    exact = found[PCHANNEL].exact
    counted, size = up_to(rows, PCHANNEL, after, exact)
    assert (found[PCHANNEL].steps[-1].rows if found[PCHANNEL].steps else 0) == counted
    if exact == until:
        return
    assert counted > rows_max or 0 < bytes_max < size
    assert exact == heads[taken - 1].last_tick
    earlier, earlier_size = up_to(rows, PCHANNEL, after, heads[taken - 1].base_tick - 1)
    assert earlier <= rows_max
    assert bytes_max in (0, bytes_max if earlier_size <= bytes_max else -1)


@given(parts, st.integers(1, 60))
def test_what_is_missing_of_a_transactions_begin_is_estimated_and_its_rows_are_exact(
    happened: list[Part], after: int
) -> None:
    heads, rows = log_of(happened)
    later = [head for head in heads if head.last_tick > after]
    found, _ = walk(later, (after, 10_000), StepSize(1))
    for channel, measured in found.items():
        last = measured.steps[-1].rows if measured.steps else 0
        assert last == up_to(rows, channel, after, 10_000)[0]


def test_the_bytes_of_a_transaction_that_began_before_the_walk_are_estimated_from_those_seen() -> (
    None
):
    happened: list[Part] = [
        ("begin", 0, 1, 0),
        ("body", 0, 3, 9),
        ("body", 0, 1, 5),
        ("commit", 0, 1, 0),
    ]
    heads, _ = log_of(happened)
    found, _ = walk(heads[2:], (0, 10_000), StepSize(1))
    (step,) = found[SHARDS[0]].steps
    assert (step.rows, step.bytes) == (4, 4 * 5)


def test_what_lies_on_another_vchannel_is_passed_over() -> None:
    heads, _ = log_of([("plain", 1, 3, 7), ("plain", 0, 2, 7)])
    some = SpanCount(SHARDS[:1], (TimeTick(0), TimeTick(10_000)), StepSize(1), SpanLimit())
    assert [some.take(it) for it in heads] == [True, True]
    assert [it.rows for it in some.channels()[SHARDS[0]].steps] == [1, 2]


def test_only_what_is_measured_is_wanted() -> None:
    span = (TimeTick(0), TimeTick(9))
    some = SpanCount(SHARDS[:1], span, StepSize(1), SpanLimit())
    assert [some.wants(it) for it in ("", *SHARDS[:2])] == [True, True, False]
    assert SpanCount([PCHANNEL], span, StepSize(1), SpanLimit(), PCHANNEL).wants(SHARDS[1])


def test_a_transaction_whose_first_bodies_were_not_read_is_estimated_from_the_others() -> None:
    heads, rows = log_of([("begin", 0, 1, 0), *[("body", 0, 4, 10)] * 2, ("commit", 0, 1, 0)])
    whole, _ = walk(heads, (0, 10_000), StepSize(1, 0, steps_max=4))
    without_first_bodies = heads[2:]
    partly, _ = walk(without_first_bodies, (0, 10_000), StepSize(1, 0, steps_max=4))
    assert whole[SHARDS[0]].steps == partly[SHARDS[0]].steps
    assert sum(it.size for it in rows) == whole[SHARDS[0]].steps[-1].bytes == 80


def test_the_span_is_what_it_was_made_with() -> None:
    ticks = (TimeTick(3), TimeTick(9))
    assert SpanCount(CHANNELS, ticks, StepSize(1, 0, steps_max=4), ALL, PCHANNEL).span == ticks


@given(parts, st.integers(0, 40), st.lists(st.integers(0, 120), min_size=3, max_size=3))
def test_of_a_purged_vchannel_only_what_lies_above_is_counted(
    happened: list[Part], after: int, floors: list[int]
) -> None:
    heads, rows = log_of(happened)
    purged = dict(zip(SHARDS, map(TimeTick, floors), strict=True))
    left = [it for it in rows if it.tick > purged.get(it.vchannel, 0)]
    ticks = TimeTick(after), TimeTick(10_000)
    measuring = SpanCount(CHANNELS, ticks, StepSize(1), ALL, PCHANNEL, purged)
    assert all(measuring.take(it) for it in heads)
    measuring.finish()
    for channel, measured in measuring.channels().items():
        last = measured.steps[-1] if measured.steps else None
        assert ((last.rows, last.bytes) if last else (0, 0)) == up_to(left, channel, after, 10_000)


def test_a_batch_across_a_purge_and_a_transaction_behind_it_are_counted_above_it() -> None:
    heads, rows = log_of(
        [("plain", 0, 4, 3), ("begin", 0, 1, 0), ("body", 0, 2, 5), ("commit", 0, 1, 0)]
    )
    ticks = TimeTick(0), TimeTick(10_000)
    for floor, expected in ((rows[1].tick, (4, 16)), (rows[-1].tick, (0, 0))):
        purged = {SHARDS[0]: TimeTick(floor)}
        measuring = SpanCount(SHARDS[:1], ticks, StepSize(1), ALL, "", purged)
        assert all(measuring.take(it) for it in heads)
        steps = measuring.channels()[SHARDS[0]].steps
        assert ((steps[-1].rows, steps[-1].bytes) if steps else (0, 0)) == expected


def test_of_a_transaction_whose_bodies_lie_before_the_walk_the_commit_tells_the_rows() -> None:
    heads, _ = log_of([("begin", 0, 1, 0), ("body", 0, 2, 5), ("commit", 0, 1, 0)])
    found, _ = walk([heads[-1]], (0, 10_000), StepSize(1))
    (step,) = found[SHARDS[0]].steps
    assert (step.rows, step.bytes) == (2, 0)
