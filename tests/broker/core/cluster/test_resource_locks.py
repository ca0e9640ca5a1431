"""Locks against the naive rule: who conflicts with nobody before it has its keys."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.cluster.resource_locks import (
    ANY_OF_CLUSTER,
    LockTicket,
    ResourceLocks,
    locked_keys,
)
from broker.model.broadcast import ResourceDomain, ResourceKey

KEYS = st.builds(
    ResourceKey,
    st.sampled_from(list(ResourceDomain)),
    st.sampled_from(["", "a", "b"]),
    st.booleans(),
)
KEY_SETS = st.lists(KEYS, max_size=4)
STEPS = st.lists(st.one_of(KEY_SETS, st.integers(0, 30)), max_size=40)
"""A request for keys, or the release of one of those that are there, held or not."""

A, B = ResourceKey.collection("a"), ResourceKey.collection("b")
SHARED_A = ResourceKey.collection("a", shared=True)


def conflict(one: tuple[ResourceKey, ...], other: tuple[ResourceKey, ...]) -> bool:
    return any(
        (a.domain, a.key) == (b.domain, b.key) and not (a.shared and b.shared)
        for a in one
        for b in other
    )


def naively_held(present: dict[LockTicket, tuple[ResourceKey, ...]]) -> set[LockTicket]:
    """Nobody who came before, and is still there, is in the way."""
    return {
        ticket
        for ticket, keys in present.items()
        if not any(conflict(keys, other) for each, other in present.items() if each < ticket)
    }


@given(STEPS)
def test_those_hold_their_keys_who_conflict_with_nobody_before_them(
    steps: list[list[ResourceKey] | int],
) -> None:
    """P26, P27 and P31: order by arrival, no needless waiting, somebody can always go on."""
    locks = ResourceLocks()
    present: dict[LockTicket, tuple[ResourceKey, ...]] = {}
    for step in steps:
        before = naively_held(present)
        if isinstance(step, list):
            ticket = locks.request(step)
            assert not present or ticket > max(present)
            present[ticket] = locked_keys(step)
        elif present:
            gone = list(present)[step % len(present)]
            granted = locks.release(gone)
            del present[gone]
            assert set(granted) == naively_held(present) - before
            assert list(granted) == sorted(granted)
            assert locks.release(gone) == ()
        held = {ticket for ticket in present if locks.holds(ticket)}
        assert held == naively_held(present)
        assert bool(held) == bool(present), "somebody can always go on"
        assert [it.ticket for it in locks.requests()] == sorted(present)
        assert len(locks) == len(present)


@given(KEY_SETS)
def test_keys_are_locked_once_each_in_one_order_with_a_share_of_the_cluster(
    keys: list[ResourceKey],
) -> None:
    locked = locked_keys(keys)
    names = [(key.domain, key.key) for key in locked]
    assert names == sorted(set(names))
    assert all(one < other for one, other in pairwise(locked))
    for key in locked:
        asked = [it for it in keys if (it.domain, it.key) == (key.domain, key.key)]
        assert key.shared == all(it.shared for it in asked)
        assert asked or key == ANY_OF_CLUSTER
    assert any(key.domain is ResourceDomain.CLUSTER for key in locked)


def test_one_who_waits_is_not_overtaken_by_one_that_it_conflicts_with() -> None:
    locks = ResourceLocks()
    reader, writer, late = (locks.request([key]) for key in (SHARED_A, A, SHARED_A))
    assert [locks.holds(it) for it in (reader, writer, late)] == [True, False, False]
    assert locks.release(writer) == (late,)


def test_a_share_of_two_keys_blocks_who_comes_later_for_one_of_them() -> None:
    """The hazard of callbacks: B alone must not overtake one that waits for A and B."""
    locks = ResourceLocks()
    first, both, second = (locks.request(keys) for keys in ([A], [A, B], [B]))
    assert [locks.holds(it) for it in (first, both, second)] == [True, False, False]
    assert locks.release(first) == (both,)
    assert locks.release(both) == (second,)


def test_one_who_wants_the_whole_cluster_waits_for_everybody_and_holds_everybody_up() -> None:
    locks = ResourceLocks()
    one, whole, other = (locks.request(keys) for keys in ([A], [ResourceKey.cluster()], [B]))
    assert [locks.holds(it) for it in (one, whole, other)] == [True, False, False]
    assert locks.release(one) == (whole,)
    assert locks.release(whole) == (other,)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (ResourceKey.collection("f", shared=True), "collection_name default:f (shared)"),
        (ResourceKey.database("d"), "db_name d"),
        (ResourceKey.snapshot("s"), "snapshot_name s"),
        (ResourceKey(ResourceDomain.PRIVILEGE, "", shared=False), "privilege"),
        (ANY_OF_CLUSTER, "cluster (shared)"),
    ],
)
def test_a_key_can_be_read_by_people(key: ResourceKey, text: str) -> None:
    assert str(key) == text
