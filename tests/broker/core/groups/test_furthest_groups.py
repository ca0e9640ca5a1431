"""Thousands of groups of the past do not hide the one that still needs the log."""

from dataclasses import dataclass

from broker.core.groups.furthest_groups import FURTHEST_MAX, beyond_limit, furthest_behind
from broker.core.groups.group_state import GroupState
from broker.model.groups.consumer_group import GroupKey, GroupSnapshot
from broker.model.ids import MessageId, TimeTick
from tests.broker.core.groups.made_changes import V


@dataclass(frozen=True)
class Segment:
    next_id: MessageId
    last_tick: TimeTick
    size_bytes: int


SEGMENTS = [Segment(MessageId(10 * it), TimeTick(100 * it), 50) for it in range(1, 5)]


def state(name: str, floor: int) -> GroupState:
    first = TimeTick(1)
    return GroupState(GroupSnapshot(GroupKey(V, name), 1000, TimeTick(floor), (), first, first))


def test_the_limit_is_the_end_of_the_last_segment_that_is_too_much() -> None:
    limits = (0, 49, 50, 100, 199, 200, 1000)
    assert [beyond_limit(SEGMENTS, it) for it in limits] == [400, 400, 300, 200, 100, 0, 0]
    assert beyond_limit([], 0) == 0


def test_the_group_furthest_behind_within_the_limit_is_among_them_however_many_are_beyond() -> None:
    lost = [state(f"lost{it}", it) for it in range(5 * FURTHEST_MAX)]
    near = [state("last", 400), state("first", 300), state("second", 301)]
    states = [it for it in lost if it.floor < 300]
    found = [it.key.name for it in furthest_behind([*near, *states], SEGMENTS, 50)]
    assert found == [*[f"lost{it}" for it in range(FURTHEST_MAX)], "first", "second", "last"]


def test_of_many_groups_within_the_limit_the_first_ones_are_enough() -> None:
    near = [state(f"near{it}", it) for it in range(2 * FURTHEST_MAX)]
    found = furthest_behind(reversed(near), SEGMENTS, 1000)
    assert found == near[:FURTHEST_MAX]
