"""Retention removes whole pages that every group has read, oldest first, and nothing else."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.rocksmq.page_retention import PageRules, swept
from broker.core.rocksmq.queue_channel import QueueChannel, QueuePage, appended, with_position

AT_ONCE = PageRules(page_bytes=100, age_ms_max=0, size_bytes_max=None)


def six_messages() -> QueueChannel:
    """Of 60 bytes each, in pages that are full above 100 bytes."""
    channel = QueueChannel()
    for msg_id in range(1, 7):
        channel = appended(channel, msg_id, [60], AT_ONCE.page_bytes)
    return channel


def test_the_worked_example_removes_the_page_that_the_slowest_group_has_read() -> None:
    channel = six_messages()
    assert channel.pages == (QueuePage(2, 120), QueuePage(4, 120), QueuePage(6, 120))
    assert channel.open_bytes == 0
    channel = with_position(with_position(channel, "g1", 5), "g2", 3)
    after = swept(channel, AT_ONCE, now_ms=1_000)
    assert after.pages == (QueuePage(4, 120), QueuePage(6, 120))
    assert after.begin_id == 3
    assert after.end_id == 7


def test_a_channel_without_groups_keeps_everything() -> None:
    channel = six_messages()
    assert swept(channel, PageRules(100, 0, 0), now_ms=10**15) is channel


def test_the_slowest_group_decides_not_the_fastest() -> None:
    channel = with_position(with_position(six_messages(), "fast", 7), "slow", -1)
    assert swept(channel, PageRules(100, 0, 0), now_ms=1) is channel


def test_age_counts_from_the_sweep_that_found_the_page_read_by_all() -> None:
    rules = PageRules(100, age_ms_max=50, size_bytes_max=None)
    channel = swept(with_position(six_messages(), "g", 3), rules, now_ms=1_000)
    assert channel.pages[0] == QueuePage(2, 120, 1_000)
    assert swept(channel, rules, now_ms=1_049) is channel
    assert swept(channel, rules, now_ms=1_050).begin_id == 3


def test_a_group_that_goes_back_makes_pages_unread_again() -> None:
    rules = PageRules(100, age_ms_max=50, size_bytes_max=None)
    channel = swept(with_position(six_messages(), "g", 5), rules, now_ms=1_000)
    back = swept(with_position(channel, "g", 3), rules, now_ms=2_000)
    assert [page.acked_ms for page in back.pages] == [None, None]
    assert back.begin_id == 3


@pytest.mark.parametrize(
    ("size_bytes_max", "left"),
    [(0, []), (239, [6]), (240, [4, 6]), (359, [4, 6]), (360, [2, 4, 6])],
)
def test_size_counts_all_bytes_of_the_pages_that_all_have_read(
    size_bytes_max: int, left: list[int]
) -> None:
    rules = PageRules(100, age_ms_max=None, size_bytes_max=size_bytes_max)
    channel = swept(with_position(six_messages(), "g", 7), rules, now_ms=1)
    assert [page.end_id for page in channel.pages] == left


def test_pages_that_are_not_read_by_all_do_not_count_for_size() -> None:
    rules = PageRules(100, age_ms_max=None, size_bytes_max=120)
    channel = swept(with_position(six_messages(), "g", 3), rules, now_ms=1)
    assert [page.end_id for page in channel.pages] == [2, 4, 6]


def test_without_rules_nothing_is_removed() -> None:
    rules = PageRules(100, age_ms_max=None, size_bytes_max=None)
    channel = swept(with_position(six_messages(), "g", 7), rules, now_ms=10**15)
    assert channel.begin_id == 1


def test_the_defaults_are_those_of_milvus_with_megabytes_of_2_to_the_20() -> None:
    rules = PageRules()
    assert rules.page_bytes == 64 * 2**20
    assert rules.age_ms_max == 4320 * 60_000
    assert rules.size_bytes_max == 8192 * 2**20


@dataclass
class NaiveRetention:
    """A list of pages, walked message by message."""

    ends: list[tuple[int, int]] = field(default_factory=list)
    acked: dict[int, int] = field(default_factory=dict)

    def sweep(self, positions: dict[str, int], rules: PageRules, now_ms: int) -> None:
        for end, _ in self.ends:
            read = bool(positions) and all(position > end for position in positions.values())
            if not read:
                self.acked.pop(end, None)
            elif end not in self.acked:
                self.acked[end] = now_ms
        while self.ends and self._may_go(rules, now_ms):
            end, _ = self.ends.pop(0)
            del self.acked[end]

    def _may_go(self, rules: PageRules, now_ms: int) -> bool:
        end, _ = self.ends[0]
        if end not in self.acked:
            return False
        if rules.age_ms_max is not None and now_ms - self.acked[end] >= rules.age_ms_max:
            return True
        total = sum(size for it, size in self.ends if it in self.acked)
        return rules.size_bytes_max is not None and total > rules.size_bytes_max


LIMITS = st.none() | st.integers(0, 300)
STEPS = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(-1, 40), st.integers(0, 100)), max_size=12
)


@given(st.lists(st.integers(0, 40), max_size=38), LIMITS, LIMITS, STEPS)
def test_any_sweeps_leave_what_a_naive_walk_leaves_and_no_group_loses_a_message(
    sizes: list[int],
    age_ms_max: int | None,
    size_bytes_max: int | None,
    steps: list[tuple[str, int, int]],
) -> None:
    rules = PageRules(60, age_ms_max, size_bytes_max)
    channel, naive, now_ms = appended(QueueChannel(), 1, sizes, 60), NaiveRetention(), 0
    naive.ends = [(page.end_id, page.size_bytes) for page in channel.pages]
    for group, position, passed_ms in steps:
        now_ms += passed_ms
        # Nobody can go back to what is removed: the next message is the first one left.
        channel = with_position(channel, group, max(position, channel.begin_id))
        before, positions = channel, dict(channel.positions)
        channel = swept(channel, rules, now_ms)
        naive.sweep(positions, rules, now_ms)
        assert [(it.end_id, it.size_bytes) for it in channel.pages] == naive.ends
        assert {it.end_id: it.acked_ms for it in channel.pages if it.acked_ms is not None} == (
            naive.acked
        )
        assert channel.begin_id <= min(positions.values())
        assert replace(channel, begin_id=before.begin_id, pages=before.pages) == before
