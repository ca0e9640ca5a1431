"""The pchannel's life: every transition from every state, and long walks with their invariants."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.cluster.assignment import (
    NodeAddress,
    Owner,
    PChannelMeta,
    access_at,
    assign,
    lost,
    served,
    tabulate,
    taken,
)
from broker.model.channel import (
    AccessMode,
    AssignmentVersion,
    NodeAssignment,
    PChannel,
    PChannelState,
)
from broker.model.ids import NodeId, PChannelName, Term

NAME = PChannelName("by-dev-rootcoord-dml_0")
ONE, TWO = NodeId(1), NodeId(2)
STATES = (
    PChannelState.UNINITIALIZED,
    PChannelState.ASSIGNING,
    PChannelState.ASSIGNED,
    PChannelState.UNAVAILABLE,
)


def meta_in(state: PChannelState) -> PChannelMeta:
    if state is PChannelState.UNINITIALIZED:
        return PChannelMeta(NAME)
    return PChannelMeta(NAME, Term(7), state, ONE, histories=(Owner(TWO, Term(5)),))


def test_the_first_served_term_is_two() -> None:
    meta = served(assign(PChannelMeta(NAME), ONE), ONE, Term(2), 1000)
    assert meta == PChannelMeta(NAME, Term(2), PChannelState.ASSIGNED, ONE, assigned_ms=1000)


@pytest.mark.parametrize("node", [ONE, TWO])
@pytest.mark.parametrize("state", STATES)
def test_assigning_takes_the_next_term_unless_the_node_serves_it_already(
    state: PChannelState, node: NodeId
) -> None:
    before = meta_in(state)
    after = assign(before, node)
    if state is PChannelState.ASSIGNED and node == ONE:
        assert after is before
    else:
        assert (after.state, after.term) == (PChannelState.ASSIGNING, before.term + 1)
        assert after.node == node
        others = {TWO: Term(5), ONE: Term(7)}
        others.pop(node)
        expected = others if before.node else {}
        assert {owner.node: owner.term for owner in after.histories} == expected


def test_another_access_takes_a_new_term_on_the_same_node_and_stays() -> None:
    meta = replace(meta_in(PChannelState.ASSIGNED), access=AccessMode.READ_ONLY)
    assert assign(meta, ONE) is assign(meta, ONE, AccessMode.READ_ONLY) is meta
    writing = assign(meta, ONE, AccessMode.READ_WRITE)
    assert (writing.state, writing.term) == (PChannelState.ASSIGNING, meta.term + 1)
    assert (writing.node, writing.access) == (ONE, AccessMode.READ_WRITE)
    assert assign(meta, TWO).access is AccessMode.READ_ONLY


def test_channels_are_read_only_until_streaming_is_enabled() -> None:
    modes = [access_at(version) for version in range(3)]
    assert modes == [AccessMode.READ_ONLY, AccessMode.READ_WRITE, AccessMode.READ_WRITE]


@pytest.mark.parametrize("node", [ONE, TWO])
@pytest.mark.parametrize("term", [6, 7, 8])
@pytest.mark.parametrize("state", STATES)
def test_only_the_agreed_owner_at_the_agreed_term_is_believed_to_serve(
    state: PChannelState, term: int, node: NodeId
) -> None:
    before = meta_in(state)
    after = served(before, node, Term(term), 5)
    if (state, term, node) == (PChannelState.ASSIGNING, 7, ONE):
        assert after == replace(before, state=PChannelState.ASSIGNED, histories=(), assigned_ms=5)
    else:
        assert after is before


@pytest.mark.parametrize("term", [6, 7, 8])
@pytest.mark.parametrize("state", STATES)
def test_only_a_report_about_the_serving_term_makes_a_channel_unavailable(
    state: PChannelState, term: int
) -> None:
    before = meta_in(state)
    after = lost(before, Term(term))
    if state is PChannelState.ASSIGNED and term == 7:
        assert after == replace(before, state=PChannelState.UNAVAILABLE)
    else:
        assert after is before


@pytest.mark.parametrize("state", STATES)
def test_a_node_that_takes_a_term_does_not_serve_it_yet(state: PChannelState) -> None:
    after = taken(meta_in(state), ONE, Term(9))
    assert (after.term, after.state, after.node) == (9, PChannelState.ASSIGNING, ONE)


def test_a_term_is_never_taken_twice() -> None:
    with pytest.raises(AssertionError):
        taken(meta_in(PChannelState.ASSIGNED), TWO, Term(7))


steps = st.lists(
    st.one_of(
        st.tuples(st.just("assign"), st.sampled_from([ONE, TWO, NodeId(3)])),
        st.tuples(st.just("served"), st.integers(-1, 1)),
        st.tuples(st.just("lost"), st.integers(-1, 1)),
        st.tuples(st.just("taken"), st.sampled_from([ONE, TWO, NodeId(3)])),
    ),
    max_size=40,
)


@given(steps)
def test_terms_only_grow_and_nobody_who_may_hold_a_channel_is_forgotten(
    walk: list[tuple[str, int]],
) -> None:
    meta, holders = PChannelMeta(NAME), dict[NodeId, Term]()
    for step, value in walk:
        before = meta
        if step == "assign":
            meta = assign(meta, NodeId(value))
        elif step == "served" and meta.node is not None:
            meta = served(meta, meta.node, Term(meta.term + value), 1)
        elif step == "lost":
            meta = lost(meta, Term(meta.term + value))
        elif step == "taken":
            meta = taken(meta, NodeId(value), Term(meta.term + 2))
        assert meta.term >= before.term
        assert meta.term > before.term or meta.node == before.node
        assert (meta.node is None) is (meta.state is PChannelState.UNINITIALIZED)
        if meta.node is not None:
            holders[meta.node] = meta.term
            if meta.state is PChannelState.ASSIGNED and before.state is PChannelState.ASSIGNING:
                holders = {meta.node: meta.term}
        known = {owner.node: owner.term for owner in meta.histories}
        assert len(known) == len(meta.histories) <= 2
        assert meta.node not in known
        assert all(node == meta.node or known[node] == term for node, term in holders.items())


def test_the_table_lists_every_live_node_and_only_channels_that_are_served() -> None:
    metas = [
        PChannelMeta(PChannelName("p_2"), Term(3), PChannelState.ASSIGNED, ONE),
        PChannelMeta(PChannelName("p_1"), Term(2), PChannelState.ASSIGNED, ONE),
        PChannelMeta(PChannelName("p_3"), Term(2), PChannelState.ASSIGNING, ONE),
        PChannelMeta(PChannelName("p_4"), Term(2), PChannelState.UNAVAILABLE, TWO),
        PChannelMeta(PChannelName("p_5"), Term(4), PChannelState.ASSIGNED, NodeId(9)),
        PChannelMeta(PChannelName("p_6")),
    ]
    table = tabulate(
        AssignmentVersion(1, 2),
        [NodeAddress(TWO, "b:2"), NodeAddress(ONE, "a:1")],
        metas,
        PChannelName("p_1"),
    )
    assert table.nodes == (
        NodeAssignment(
            ONE,
            "a:1",
            (PChannel(PChannelName("p_1"), Term(2)), PChannel(PChannelName("p_2"), Term(3))),
        ),
        NodeAssignment(TWO, "b:2", ()),
    )
    assert (table.version, table.control_host) == (AssignmentVersion(1, 2), "p_1")
