"""When a pass is worth it, and what it leaves behind."""

from broker.core.compaction.compaction_due import (
    CompactionShares,
    SegmentShare,
    after_pass,
    dirty_bytes,
    is_due,
    tombstones_due,
)
from broker.model.ids import TimeTick
from broker.model.retention.compaction import Compacted, Compaction

SHARES = CompactionShares(bytes_min=100, dirty_percent=50)
T = TimeTick


def test_what_lies_behind_the_clean_tick_is_dirty_by_whole_segments() -> None:
    parts = [SegmentShare(T(10), 5), SegmentShare(T(20), 7), SegmentShare(T(30), 9)]
    assert [dirty_bytes(parts, T(it)) for it in (0, 10, 15, 20, 30)] == [21, 16, 16, 9, 0]


def test_a_pass_is_due_from_a_number_of_bytes_and_a_share_on() -> None:
    assert is_due(100, 200, SHARES)
    assert not is_due(99, 99, SHARES)
    assert not is_due(100, 201, SHARES)
    assert not is_due(0, 0, CompactionShares(bytes_min=0, dirty_percent=1))


def test_each_byte_is_rewritten_a_few_times_however_much_comes() -> None:
    total, dirty, copied = 0, 0, 0
    for _ in range(10_000):
        total, dirty = total + 100, dirty + 100
        if is_due(dirty, total, SHARES):
            copied, dirty = copied + total, 0
    assert copied <= 2 * total + 200


def test_tombstones_wait_from_the_pass_that_has_removed_what_they_delete() -> None:
    policy = Compaction(tombstone_ms=1000)
    first = after_pass(Compacted("v"), T(50), 3, now_ms=5000, gone=False)
    assert first == Compacted("v", T(50), T(50), T(50), 5000, 3)
    assert not tombstones_due(first, policy, 5999)
    assert tombstones_due(first, policy, 6000)
    second = after_pass(first, T(70), 4, now_ms=5500, gone=False)
    assert (second.horizon, second.horizon_ms) == (50, 5000), "those of the first wait on"
    third = after_pass(second, T(90), 1, now_ms=6000, gone=True)
    assert (third.horizon, third.horizon_ms, third.tombstones) == (90, 6000, 1)
    last = after_pass(third, T(95), 0, now_ms=9000, gone=True)
    assert (last.horizon, last.horizon_ms) == (0, 0)
    assert not tombstones_due(last, policy, 10**9)


def test_tombstones_that_have_to_stay_are_not_due_before_a_pass_covers_more() -> None:
    policy = Compaction(tombstone_ms=0)
    first = after_pass(Compacted("v"), T(50), 3, now_ms=5000, gone=False)
    some = after_pass(first, T(50), 2, now_ms=5000, gone=True)
    assert tombstones_due(some, policy, 5000), "more may go"
    none = after_pass(some, T(50), 2, now_ms=5000, gone=True)
    assert (none.horizon, none.horizon_ms, none.tombstones) == (0, 0, 2)
    assert not tombstones_due(none, policy, 10**9)
    later = after_pass(none, T(60), 2, now_ms=7000, gone=False)
    assert tombstones_due(later, policy, 7000)
