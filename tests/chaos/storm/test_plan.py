"""The plan of faults is the same for a seed, and holds what was asked for."""

from itertools import pairwise

import pytest

from tests.chaos.storm.plan import LASTING_S, ON_HOSTS, make_plan


def test_a_seed_gives_one_plan_and_another_seed_another() -> None:
    assert make_plan(1, 60.0) == make_plan(1, 60.0)
    assert make_plan(1, 60.0) != make_plan(2, 60.0)


def test_half_an_hour_has_every_kind_and_nothing_lasts_longer() -> None:
    plan = make_plan(7, 1800.0)
    assert {it.kind for it in plan} == set(LASTING_S)
    assert all(it.at_s > 0 and it.at_s + it.lasts_s <= 1800.0 for it in plan)
    overlapping = [a for a, b in pairwise(plan) if a.at_s + a.lasts_s > b.at_s]
    assert overlapping


def test_hosts_have_faults_of_their_own() -> None:
    plan = make_plan(7, 1800.0, deck=ON_HOSTS)
    assert {it.kind for it in plan} == set(ON_HOSTS.lasting_s)
    with pytest.raises(ValueError, match="quota"):
        make_plan(7, 300.0, ["quota"], ON_HOSTS)


def test_only_the_kinds_that_are_asked_for_come() -> None:
    plan = make_plan(7, 300.0, ["cut", "quota"])
    assert {it.kind for it in plan} == {"cut", "quota"}


def test_a_kind_that_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="earthquake"):
        make_plan(7, 300.0, ["earthquake"])
