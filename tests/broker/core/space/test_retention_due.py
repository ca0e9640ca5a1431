"""Up to which tick retention removes: against what a list of messages says."""

from collections.abc import Sequence

from hypothesis import example, given
from hypothesis import strategies as st

from broker.core.space.retention_due import (
    HEAD_BYTES,
    AgeBound,
    OldestRecords,
    aged_tick,
    due_by_age,
    excess,
    step_bytes,
)
from broker.model.ids import TICK_LOGICAL_BITS, MessageId, TimeTick
from broker.model.measured import RecordHead
from broker.model.message import MessageType
from broker.model.retention.dead import VChannelPart
from broker.model.retention.policy import Retention

V, OTHER = "p_1v0", "p_1v1"
NEVER = TimeTick(0)
MS = 1 << TICK_LOGICAL_BITS


def tick(ms: int) -> TimeTick:
    return TimeTick(ms * MS)


def bound(now_ms: int, closed_ms: int | None = None, period_ms: int = 10) -> AgeBound:
    return AgeBound(now_ms, period_ms, tick(now_ms if closed_ms is None else closed_ms))


@given(st.integers(1, 10**6), st.integers(0, 10**6), st.integers(0, 10**12))
def test_the_aged_tick_is_the_largest_one_of_an_older_millisecond_by_both_clocks(
    age_ms: int, now_ms: int, closed: int
) -> None:
    found = aged_tick(age_ms, now_ms, TimeTick(closed))
    assert found <= closed
    by_both_ms = min(now_ms, closed >> TICK_LOGICAL_BITS)
    assert found == 0 or by_both_ms - (found >> TICK_LOGICAL_BITS) > age_ms
    assert by_both_ms - (found + 1 >> TICK_LOGICAL_BITS) <= age_ms


def test_nothing_is_due_without_a_limit_and_without_data() -> None:
    by_size, by_age = Retention(bytes_max=5), Retention(age_ms_max=1000)
    assert due_by_age(by_size, NEVER, tick(1), bound(10**6)) == 0
    assert due_by_age(by_age, NEVER, TimeTick(0), bound(10**6)) == 0


def test_what_is_too_old_is_due_in_steps_of_a_sixteenth() -> None:
    limits = Retention(age_ms_max=1600)
    first = due_by_age(limits, NEVER, tick(9000), bound(10_000))
    assert first == tick(8400) - 1
    assert due_by_age(limits, first, tick(11_000), bound(10_099)) == 0, "less than a step"
    assert due_by_age(limits, first, tick(11_000), bound(10_101)) == tick(8501) - 1
    assert due_by_age(limits, first, tick(11_000), bound(10_101, period_ms=200)) == 0


@given(st.lists(st.integers(0, 5000), min_size=1), st.integers(1, 2000), st.integers(1, 500))
def test_however_data_comes_a_vchannel_is_purged_until_it_is_empty_and_then_left_alone(
    gaps_ms: Sequence[int], age_ms: int, period_ms: int
) -> None:
    limits, purged, data_ms, now_ms = Retention(age_ms_max=age_ms), NEVER, 0, 10_000
    for gap_ms in (*gaps_ms, *[period_ms] * (2 + age_ms // period_ms)):
        now_ms += gap_ms
        data_ms = now_ms if gap_ms > period_ms else data_ms
        at = bound(now_ms, period_ms=period_ms)
        purged = due_by_age(limits, purged, tick(data_ms), at) or purged
        assert not data_ms or now_ms - data_ms > age_ms or purged < tick(data_ms)
    for _ in range(3):
        now_ms += max(age_ms, period_ms)
        at = bound(now_ms, period_ms=period_ms)
        purged = due_by_age(limits, purged, tick(data_ms), at) or purged
    assert purged >= tick(data_ms)
    assert due_by_age(limits, purged, tick(data_ms), bound(2 * now_ms)) == 0


sizes = st.lists(st.integers(1, 1000), max_size=20)


@given(sizes, st.integers(1, 5000))
def test_the_newer_parts_keep_as_many_bytes_as_the_limit_says(found: list[int], limit: int) -> None:
    parts = [VChannelPart(it, MessageId(at), MessageId(at + 1)) for at, it in enumerate(found)]
    over = excess(parts, limit)
    left = found[over.whole :]
    assert over.whole == 0 or sum(left) >= limit
    assert not left or sum(left[1:]) < limit
    assert over.spare == (max(sum(left) - limit, 0) if left else 0)


records = st.lists(st.tuples(st.booleans(), st.integers(0, 500), st.integers(1, 3)), max_size=40)


def heads(found: Sequence[tuple[bool, int, int]]) -> list[RecordHead]:
    made, at = list[RecordHead](), 1
    for mine, size, count in found:
        name = V if mine else OTHER
        id, first = MessageId(at), TimeTick(at * 10)
        made.append(RecordHead(id, first, id, count, MessageType.INSERT, name, size))
        at += count
    return made


@example([(True, 0, 1), (True, 0, 1)], 156, 1, 78)
@given(records, st.integers(0, 5000), st.integers(1, 10_000), st.integers(1, 300))
def test_the_oldest_records_go_as_long_as_the_limit_is_kept(
    found: Sequence[tuple[bool, int, int]], newer: int, limit: int, grain: int
) -> None:
    newer %= limit  # with as many bytes behind it, a part goes whole
    oldest = OldestRecords(V, grain)
    for head in heads(found):
        oldest.show(head)
    mine = [it for it in heads(found) if it.vchannel == V]
    each = [it.size_bytes + len(V) + 4 * it.messages + HEAD_BYTES for it in mine]
    upto = oldest.upto(newer, limit)
    assert oldest.bytes == sum(each)
    kept = sum(size for it, size in zip(mine, each, strict=True) if it.last_tick > upto)
    assert upto == 0 or kept + newer >= limit
    # What is kept beyond the limit is less than a grain and a record.
    possible = [
        it.last_tick
        for at, it in enumerate(mine)
        if sum(each[at + 1 :]) + newer >= limit + grain + max(each)
    ]
    assert upto >= max(possible, default=0)


def test_a_step_is_a_sixteenth_and_worth_a_rewriting() -> None:
    assert step_bytes(64 * 1024) == 16 * 1024
    assert step_bytes(1 << 30) == 1 << 26
