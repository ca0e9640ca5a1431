"""Leases: admission, renewal and expiry, case by case and against a naive calendar."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.cluster.node_leases import (
    NodeMember,
    StartupGrace,
    admit,
    expired,
    must_wait_for_nodes,
    renewed,
)
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import NodeId

HOLDER = NodeMember(NodeId(2), "127.0.0.1:7", pid=70, incarnation="aa", session=5, until_s=10.0)


def newcomer(**changes: object) -> NodeMember:
    return replace(HOLDER, session=0, until_s=99.0, **changes)  # type: ignore[arg-type]


def test_the_first_to_come_is_the_node() -> None:
    assert admit(None, newcomer(), now_s=0.0) == newcomer()


def test_the_same_process_asking_again_keeps_its_session() -> None:
    assert admit(HOLDER, newcomer(), now_s=1.0) == replace(HOLDER, until_s=99.0)


@pytest.mark.parametrize(
    "changes", [{"pid": 71}, {"address": "127.0.0.1:8"}, {"incarnation": "bb"}]
)
def test_another_process_even_with_the_same_pid_is_refused_until_the_lease_is_over(
    changes: dict[str, object],
) -> None:
    refusal = admit(HOLDER, newcomer(**changes), now_s=9.9)
    assert isinstance(refusal, Refusal)
    assert refusal.code is StreamingCode.RESOURCE_ACQUIRED
    assert "process 70 at 127.0.0.1:7" in refusal.cause
    assert admit(HOLDER, newcomer(**changes), now_s=10.0) == newcomer(**changes)


@pytest.mark.parametrize("holder", [None, replace(HOLDER, session=6)])
def test_a_session_that_is_over_is_not_renewed(holder: NodeMember | None) -> None:
    refusal = renewed(holder, 5, 20.0, stopping=False)
    assert isinstance(refusal, Refusal)
    assert refusal.code is StreamingCode.IGNORED_OPERATION


def test_a_node_that_is_stopping_stays_so() -> None:
    stopping = renewed(HOLDER, 5, 20.0, stopping=True)
    assert stopping == replace(HOLDER, until_s=20.0, stopping=True)
    assert isinstance(stopping, NodeMember)
    assert renewed(stopping, 5, 21.0, stopping=False) == replace(stopping, until_s=21.0)


@given(st.lists(st.integers(0, 20), max_size=8), st.integers(0, 20))
def test_overdue_are_exactly_those_whose_time_has_come(ends: list[int], now: int) -> None:
    members = [replace(HOLDER, node=NodeId(i + 1), until_s=end) for i, end in enumerate(ends)]
    assert [it.until_s for it in expired(members, now)] == [end for end in ends if end <= now]


def ids(*numbers: int) -> frozenset[NodeId]:
    return frozenset(map(NodeId, numbers))


@pytest.mark.parametrize(
    ("patience", "here", "owned", "started_s", "first_s", "waits"),
    [
        (StartupGrace(), ids(), ids(), 99.0, 0.0, True),
        (StartupGrace(), ids(1), ids(), 0.0, 0.0, False),
        (StartupGrace(grace_s=2.0), ids(1), ids(), 50.0, 1.9, True),
        (StartupGrace(grace_s=2.0), ids(1), ids(), 50.0, 2.0, False),
        (StartupGrace(grace_s=2.0), ids(1, 2), ids(1, 2), 0.0, 0.0, False),
        (StartupGrace(grace_s=2.0), ids(1, 3), ids(1, 2), 0.0, 0.0, True),
        (StartupGrace(expected=2, grace_s=2.0), ids(1), ids(1), 59.0, 59.0, True),
        (StartupGrace(expected=2, grace_s=2.0), ids(1), ids(1), 60.0, 3.0, False),
        (StartupGrace(expected=2, grace_s=2.0), ids(1, 2), ids(), 0.0, 0.0, False),
    ],
)
def test_a_cluster_that_starts_waits_for_those_it_expects_or_knows_and_no_longer(
    patience: StartupGrace,
    here: frozenset[NodeId],
    owned: frozenset[NodeId],
    started_s: float,
    first_s: float,
    waits: bool,
) -> None:
    assert must_wait_for_nodes(patience, here, owned, started_s, first_s) is waits
