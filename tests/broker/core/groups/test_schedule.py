"""Delayed messages come in the order of their times, each once; a sorted list is the model."""

import random

import pytest

from broker.core.groups.schedule import Schedule
from broker.model.groups.delivery_times import ReleasedMessage
from broker.model.ids import TimeTick


def test_a_schedule_without_messages_has_nothing_due() -> None:
    schedule = Schedule()
    assert schedule.due(10**9, 5) == []
    assert schedule.oldest_tick() is None
    schedule.released(ReleasedMessage(5, 5))
    assert len(schedule) == 0


def test_messages_come_by_time_and_those_of_one_time_by_id() -> None:
    schedule = Schedule()
    for at_ms, id in ((2000, 1), (1000, 3), (1000, 2), (1001, 1)):
        schedule.add(ReleasedMessage(at_ms, id), TimeTick(id))
    assert schedule.due(999, 9) == []
    assert schedule.due(1000, 9) == [ReleasedMessage(1000, 2), ReleasedMessage(1000, 3)]
    assert schedule.due(1001, 1) == [ReleasedMessage(1000, 2)]
    schedule.released(ReleasedMessage(1000, 2))
    assert schedule.due(9999, 9) == [ReleasedMessage(1000, 3), ReleasedMessage(1001, 1)]
    schedule.released(ReleasedMessage(1001, 1))
    assert schedule.due(9999, 9) == [ReleasedMessage(2000, 1)]


def test_what_was_released_before_is_forgotten_with_all_that_was_due_before_it() -> None:
    schedule = Schedule()
    for number in range(10):
        schedule.add(ReleasedMessage(number * 5000, number), TimeTick(number + 1))
    schedule.released(ReleasedMessage(7 * 5000, 7))
    assert len(schedule) == 2
    assert schedule.oldest_tick() == 9


@pytest.mark.parametrize("seed", range(30))
def test_any_schedule_gives_what_a_sorted_list_gives(seed: int) -> None:
    chances = random.Random(seed)
    schedule, model = Schedule(), []
    now_ms = ids = 0
    ticks: dict[int, int] = {}
    for _ in range(300):
        if chances.random() < 0.6:
            ids += 1
            at_ms = now_ms + chances.randrange(1, 6000)
            schedule.add(ReleasedMessage(at_ms, ids), TimeTick(ids))
            model.append((at_ms, ids))
            ticks[ids] = ids
        now_ms += chances.randrange(100)
        while due := schedule.due(now_ms, chances.randrange(1, 5)):
            model.sort()
            assert [(it.at_ms, it.id) for it in due] == model[: len(due)]
            kept = chances.randrange(1, len(due) + 1)
            schedule.released(due[kept - 1])
            del model[:kept]
        assert not [it for it in model if it[0] <= now_ms]
        assert len(schedule) == len(model)
        oldest = schedule.oldest_tick()
        assert (oldest is None) == (not model)
        assert oldest is None or oldest <= min(ticks[id] for _, id in model)
