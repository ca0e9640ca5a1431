"""Who may release a hold of broadcasts, and how many one caller may ask for."""

import pytest

from broker.core.cluster.hold_takers import KNOWN_MAX, WAITING_MAX, HoldTakers
from broker.model.failure import Refused


def test_only_who_took_a_hold_releases_it_and_once() -> None:
    takers = HoldTakers()
    takers.took(7, "ann")
    assert not takers.released(7, "eve")
    assert takers.released(7, "ann")
    assert not takers.released(7, "ann")
    assert not takers.released(8, "ann")


def test_one_caller_cannot_ask_for_all_holds_at_once() -> None:
    takers = HoldTakers()
    waiting = [takers.waiting("eve") for _ in range(WAITING_MAX)]
    for each in waiting:
        each.__enter__()
    with pytest.raises(Refused, match="asks for 64 holds"), takers.waiting("eve"):
        pass
    with takers.waiting("ann"):
        pass
    waiting[0].__exit__(None, None, None)
    with takers.waiting("eve"):
        pass


def test_holds_that_nobody_released_are_forgotten_the_oldest_first() -> None:
    takers = HoldTakers()
    for hold in range(KNOWN_MAX + 1):
        takers.took(hold, "ann")
    assert not takers.released(0, "ann")
    assert takers.released(KNOWN_MAX, "ann")
