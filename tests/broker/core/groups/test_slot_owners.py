"""Slots move to others when nothing is outstanding of them, and only what must move."""

import pytest

from broker.core.groups.key_lanes import SLOTS, WHOLE
from broker.core.groups.slot_owners import CLAIM_S, NOBODY, KeyOwners, SlotOwners, VChannelOwner


def test_slots_of_keys_are_balanced_and_move_when_nothing_is_outstanding() -> None:
    owners = KeyOwners()
    owners.joined(1, "ann")
    assert owners.owned(1) == SLOTS
    owners.took([0, SLOTS - 1, 2 * SLOTS - 1], 1)
    owners.joined(2, "bob")
    assert (owners.owned(1), owners.owned(2)) == (SLOTS // 2, SLOTS // 2 - 1)
    assert owners.owner(0) == 1
    assert owners.owner(SLOTS - 1) == NOBODY, "it is about to move, and something is outstanding"
    owners.took([SLOTS - 1], -1)
    assert owners.owner(SLOTS - 1) == NOBODY
    owners.took([SLOTS - 1], -1)
    assert owners.owner(SLOTS - 1) == 2
    before = [owners.owner(it) for it in range(SLOTS)]
    owners.joined(3, "cid")
    after = [owners.owner(it) for it in range(SLOTS)]
    moved = [it for it in range(SLOTS) if before[it] != after[it]]
    assert {after[it] for it in moved} == {3}
    assert len(moved) == SLOTS // 3
    owners.left(3)
    owners.left(3)
    assert {owners.owner(it) for it in moved} == {1, 2}
    assert owners.ownership().members == ("ann", "bob")
    owners.give(1, "bob")
    assert owners.look(0.0) is None


def test_what_a_leaver_was_to_get_stays_where_it_is() -> None:
    owners = KeyOwners()
    owners.joined(1, "ann")
    assert owners.owner(SLOTS - 1) == 1
    owners.took([SLOTS - 1], 1)
    owners.joined(2, "bob")
    owners.left(2)
    assert owners.owned(1) == SLOTS
    owners.left(1)
    assert owners.owner(0) == NOBODY
    assert owners.owner(SLOTS - 1) == NOBODY


def test_a_vchannel_stays_with_its_owner_until_that_gives_it() -> None:
    owner = VChannelOwner("v")
    owner.joined(1, "ann")
    owner.joined(2, "bob")
    assert owner.owner(WHOLE) == 1
    changes = owner.ownership().changes
    owner.give(2, "bob")  # it is not his to give
    owner.give(1, "nobody")
    owner.give(1, "ann")
    assert owner.ownership().changes == changes
    owner.took([WHOLE], 1)
    owner.give(1, "bob")
    assert owner.ownership().owner == "bob"
    assert owner.owner(WHOLE) == NOBODY
    owner.took([WHOLE], -1)
    assert owner.owner(WHOLE) == 2
    assert (owner.owned(1), owner.owned(2)) == (0, 1)


def test_after_a_death_the_first_claim_counts_and_without_any_one_is_chosen() -> None:
    owner = VChannelOwner("v")
    for number, identity in enumerate(("ann", "bob", "cid"), 1):
        owner.joined(number, identity)
    owner.left(1)
    assert owner.owner(WHOLE) == NOBODY
    assert owner.look(5.0) == 5.0 + CLAIM_S
    owner.give(3, "cid")
    owner.give(2, "bob")
    assert owner.owner(WHOLE) == 3
    assert owner.look(5.1) is None
    owner.joined(4, "dan")
    owner.left(3)
    assert owner.look(6.0) == 6.0 + CLAIM_S
    assert owner.look(6.1) == 6.0 + CLAIM_S
    assert owner.look(6.0 + CLAIM_S) is None
    assert owner.owner(WHOLE) in (2, 4)
    other = VChannelOwner("v")
    for number, identity in ((1, "ann"), (7, "dan"), (9, "bob")):
        other.joined(number, identity)
    other.left(1)
    other.look(0.0)
    other.look(CLAIM_S)
    assert other.ownership().owner == owner.ownership().owner, "whoever chooses chooses the same"


def test_the_only_member_owns_and_one_that_comes_back_is_known_by_its_newest_place() -> None:
    owner = VChannelOwner("v")
    for number, identity in ((1, "ann"), (2, "bob"), (3, "bob")):
        owner.joined(number, identity)
    owner.give(1, "bob")
    assert owner.owner(WHOLE) == 3
    owner.left(3)
    owner.left(1)
    assert owner.owner(WHOLE) == 2
    owner.left(2)
    assert owner.look(0.0) is None
    assert owner.owner(WHOLE) == NOBODY


def test_a_plan_is_made_by_a_kind_of_owners() -> None:
    with pytest.raises(TypeError, match="abstract"):
        SlotOwners(1)  # type: ignore[abstract]
