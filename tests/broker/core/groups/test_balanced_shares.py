"""Shares are even, and as little moves as can move."""

from collections import Counter
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from broker.core.groups.balanced_shares import balanced

MEMBERS = st.sets(st.sampled_from("abcdefgh"), min_size=1)
OWNERS = st.dictionaries(st.integers(0, 63), st.none() | st.sampled_from("abcdefghxyz"))


def moves(owners: dict[int, str | None], plan: dict[int, str]) -> int:
    return sum([owners[it] != plan[it] for it in owners])


@given(OWNERS, MEMBERS)
def test_everything_goes_to_members_in_shares_that_differ_by_one_at_most(
    owners: dict[int, str | None], members: set[str]
) -> None:
    plan = balanced(owners, members)
    assert plan.keys() == owners.keys()
    assert set(plan.values()) <= members
    shares = Counter(dict.fromkeys(members, 0)) + Counter(plan.values())
    sizes = [shares[it] for it in members]
    assert max(sizes) - min(sizes) <= 1
    assert balanced(plan, members) == plan, "a balanced plan stays"
    assert balanced(dict(reversed(owners.items())), sorted(members)[::-1]) == plan


@given(OWNERS, MEMBERS, st.sampled_from("ijk"))
def test_a_join_moves_parts_to_the_new_one_and_a_death_those_of_the_dead_one(
    owners: dict[int, str | None], members: set[str], new: str
) -> None:
    before = balanced(owners, members)
    after = balanced(before, members | {new})
    assert {after[it] for it in before if after[it] != before[it]} <= {new}
    again = balanced(after, members)
    assert {it for it in after if after[it] != again[it]} == {
        it for it in after if after[it] == new
    }


@given(OWNERS, MEMBERS, st.sets(st.integers(0, 63)))
def test_a_plan_that_is_carried_out_in_part_leads_to_the_same_plan(
    owners: dict[int, str | None], members: set[str], done: set[int]
) -> None:
    plan = balanced(owners, members)
    amid = {it: plan[it] if it in done else owner for it, owner in owners.items()}
    assert balanced(amid, members) == plan


@given(
    st.dictionaries(st.integers(0, 5), st.none() | st.sampled_from("abx"), max_size=6),
    st.sampled_from([{"a"}, {"a", "b"}, {"a", "b", "c"}]),
)
def test_no_plan_with_even_shares_moves_fewer(
    owners: dict[int, str | None], members: set[str]
) -> None:
    parts = sorted(owners)
    fewest = len(parts)
    for choice in product(sorted(members), repeat=len(parts)):
        sizes = [choice.count(it) for it in members]
        if max(sizes) - min(sizes) <= 1:
            fewest = min(fewest, moves(owners, dict(zip(parts, choice, strict=True))))
    assert moves(owners, balanced(owners, members)) == fewest


def test_without_members_nobody_owns_anything() -> None:
    assert balanced({1: "a", 2: None}, []) == {}
