"""Who may release a hold of broadcasts, and how many one caller may have."""

import pytest

from broker.core.cluster.hold_takers import HOLDS_EACH_MAX, HoldTakers
from broker.model.failure import Refused

LEASE_S, HELD_BACK_S = 2.0, 5.0


class World:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.takers = HoldTakers(lambda: self.now_s, HELD_BACK_S)

    def take(self, caller: str, id: int) -> None:
        with self.takers.taking(caller) as hold:
            self.takers.granted(hold, id, LEASE_S)

    def cancelled(self, caller: str) -> None:
        with pytest.raises(KeyError), self.takers.taking(caller):
            raise KeyError

    def is_refused(self, caller: str) -> bool:
        try:
            self.take(caller, 1)
        except Refused:
            return True
        return False


def test_only_who_took_a_hold_releases_it_and_once() -> None:
    world = World()
    world.take("ann", 7)
    assert not world.takers.released(7, "eve")
    assert not world.takers.released(8, "ann")
    assert not world.takers.released(0, "ann")
    assert world.takers.released(7, "ann")
    assert not world.takers.released(7, "ann")


def test_a_hold_that_is_over_is_released_by_nobody_any_more() -> None:
    world = World()
    world.take("ann", 7)
    world.now_s += LEASE_S
    world.take("ann", 8)
    assert not world.takers.released(7, "ann")
    assert world.takers.released(8, "ann")


@pytest.mark.parametrize("cancels", [False, True])
def test_one_caller_cannot_have_all_holds_at_once_however_it_takes_them(cancels: bool) -> None:
    world = World()
    for number in range(HOLDS_EACH_MAX):
        if cancels:
            world.cancelled("eve")
        else:
            world.take("eve", number + 1)
    assert world.is_refused("eve")
    assert not world.is_refused("ann")
    world.now_s += HELD_BACK_S if cancels else LEASE_S
    assert not world.is_refused("eve")


def test_a_released_hold_makes_room_for_the_next() -> None:
    world = World()
    for number in range(10 * HOLDS_EACH_MAX):
        world.take("ann", number + 1)
        assert world.takers.released(number + 1, "ann")


def test_who_waits_for_holds_counts_as_having_them() -> None:
    world = World()
    waiting = [world.takers.taking("eve") for _ in range(HOLDS_EACH_MAX)]
    for each in waiting:
        each.__enter__()
    world.now_s += 1000.0
    assert world.is_refused("eve")
    waiting[0].__exit__(None, None, None)
    world.now_s += HELD_BACK_S
    assert not world.is_refused("eve")
