"""Removal of segments against a model that looks at each segment and each holder by itself."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from broker.core.space.removal import expired, removal
from broker.model.ids import TICK_LOGICAL_BITS, MessageId, TimeTick
from broker.model.retention.holders import (
    Hold,
    HolderKind,
    PassCause,
    Removal,
)
from broker.model.retention.policy import Retention

NOW_MS = 1_000_000


@dataclass(frozen=True)
class Segment:
    first_id: int
    next_id: MessageId
    last_tick: TimeTick
    size_bytes: int


def log(sizes: list[int], first_id: int = 1) -> list[Segment]:
    """Segments of ten ids each; the tick of an id is the id, in milliseconds."""
    found = []
    for at, size in enumerate(sizes):
        begin = first_id + 10 * at
        last = TimeTick((begin + 9) << TICK_LOGICAL_BITS)
        found.append(Segment(begin, MessageId(begin + 10), last, size))
    return found


SIZES = st.lists(st.integers(1, 100), max_size=12)
HOLDS = st.lists(
    st.builds(
        lambda number, from_id, bytes_max, until: Hold(
            HolderKind.CURSOR, str(number), TimeTick(0), MessageId(from_id), bytes_max, until
        ),
        st.integers(0, 99),
        st.integers(0, 140),
        st.none() | st.integers(1, 600),
        st.none() | st.sampled_from([NOW_MS - 1, NOW_MS, NOW_MS + 1]),
    ),
    max_size=6,
    unique_by=lambda it: it.name,
)


def needed(hold: Hold, due: list[Segment]) -> list[Segment]:
    return [it for it in due if any(id >= hold.from_id for id in range(it.first_id, it.next_id))]


def over(hold: Hold, due: list[Segment]) -> set[PassCause]:
    found = set()
    if hold.until_ms is not None and hold.until_ms <= NOW_MS:
        found.add(PassCause.TIME)
    if hold.bytes_max is not None and sum(it.size_bytes for it in needed(hold, due)) > (
        hold.bytes_max
    ):
        found.add(PassCause.BYTES)
    return found


@given(SIZES, HOLDS, st.none() | st.integers(0, 600))
def test_what_a_holder_within_its_limits_needs_stays_and_each_who_loses_is_named(
    sizes: list[int], holds: list[Hold], unasked_bytes: int | None
) -> None:
    due = log(sizes)
    found = removal(due, MessageId(1), holds, NOW_MS, unasked_bytes)
    gone = [it for it in due if it.next_id <= found.first_id]
    kept = [it for it in due if it not in gone]
    assert due[: len(gone)] == gone, "only from the front"
    assert found.bytes == sum(it.size_bytes for it in gone)
    assert found.tick == (gone[-1].last_tick if gone else 0)
    for hold in holds:
        if not over(hold, due):
            assert not set(needed(hold, due)) & set(gone), "what it needs is kept"
    losers = {it.name for it in holds if over(it, due) and set(needed(it, due)) & set(gone)}
    assert {it.name for it in found.passed} == losers
    assert all(it.cause in over(hold_of(it.name, holds), due) for it in found.passed)
    assert all(it.removed_tick == found.tick for it in found.passed)
    if unasked_bytes is None:
        # Nothing is kept without a holder that keeps its first segment.
        keepers = [it for it in holds if not over(it, due)]
        assert not kept or any(needed(it, due)[:1] == kept[:1] for it in keepers)
    else:
        without_its_last = found.bytes - (gone[-1].size_bytes if gone else 0)
        assert not gone or sum(sizes) - without_its_last > unasked_bytes, "no more than it must"
    named = {it.name: it.bytes for it in found.holders}
    assert named == {
        it.name: sum(s.size_bytes for s in needed(it, due))
        for it in holds
        if not over(it, due) and needed(it, due)
    }
    assert [*named.values()] == sorted(named.values(), reverse=True)


def hold_of(name: str, holds: list[Hold]) -> Hold:
    return next(it for it in holds if it.name == name)


@given(SIZES, st.integers(0, 100), st.integers(0, 800), st.integers(0, 300), st.integers(0, 400))
def test_retention_wants_the_oldest_segments_beyond_its_bytes_or_its_age(
    sizes: list[int], active: int, bytes_max: int, age_ms_max: int, now_ms: int
) -> None:
    segments, retention = log(sizes), Retention(bytes_max, age_ms_max)
    count = expired(segments, active, retention, now_ms)
    for at, segment in enumerate(segments):
        left = active + sum(it.size_bytes for it in segments[at:])
        wanted = 0 < bytes_max < left or 0 < age_ms_max < now_ms - (segment.last_tick >> 18)
        if at < count:
            assert wanted
        elif at == count:
            assert not wanted


def test_the_disk_holds_what_retention_keeps_and_the_largest_limit() -> None:
    due = log([100] * 10)
    slow = Hold(HolderKind.CURSOR, "slow", from_id=MessageId(51), bytes_max=500)
    slower = Hold(HolderKind.CURSOR, "slower", from_id=MessageId(41), bytes_max=500)
    found = removal(due, MessageId(1), [slow, slower], NOW_MS)
    assert (found.first_id, found.bytes) == (51, 500)
    assert [(it.name, it.bytes) for it in found.holders] == [("slow", 500)]
    (passed,) = found.passed
    assert (passed.name, passed.cause, passed.bytes, passed.limit) == ("slower", "bytes", 600, 500)


def test_a_holder_beyond_its_limit_whom_another_protects_loses_nothing() -> None:
    due = log([100] * 4)
    forgotten = Hold(HolderKind.CURSOR, "forgotten", from_id=MessageId(11), until_ms=NOW_MS)
    backup = Hold(HolderKind.BACKUP, "nightly")
    found = removal(due, MessageId(1), [forgotten, backup], NOW_MS)
    assert found.passed == ()
    assert found == Removal(MessageId(1), holders=found.holders)
    assert [it.name for it in found.holders] == ["nightly"]
