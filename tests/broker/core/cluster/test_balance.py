"""Balance: the cost by hand, each guard, and rounds that end, against naive walks."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.cluster.balance import (
    BalanceRules,
    BalanceWeights,
    ChannelMove,
    PlacedChannel,
    best_node,
    cost,
    layout_of,
    may_move,
    move_interval_over,
    rebalance,
)
from broker.model.ids import CollectionId, NodeId, PChannelName, TimeTick

A, B, C = NodeId(1), NodeId(2), NodeId(3)
RULES = BalanceRules(min_interval_ms=0)
COUNT = replace(RULES, count_fair=True)


def on(node: int, *names: str, vchannels: int = 0, movable: bool = True) -> list[PlacedChannel]:
    return [
        PlacedChannel(PChannelName(name), NodeId(node), vchannels, movable=movable)
        for name in names
    ]


def applied(layout: list[PlacedChannel], moves: tuple[ChannelMove, ...]) -> list[PlacedChannel]:
    to = {move.name: move.to for move in moves}
    return [replace(it, node=to.get(it.name, it.node)) for it in layout]


def test_the_cost_is_the_sum_of_what_nodes_are_off_and_of_like_pairs() -> None:
    one, two = CollectionId(1), CollectionId(2)
    layout = [
        PlacedChannel(PChannelName("a"), A, 2, frozenset({one, two})),
        PlacedChannel(PChannelName("b"), A, 1, frozenset({one})),
        PlacedChannel(PChannelName("c"), B, 1, frozenset({two})),
    ]
    pchannels = (0.5 / 1.5) ** 2 * 2
    vchannels = (1 / 2) ** 2 * 2
    assert cost(layout, [A, B], BalanceWeights()) == pytest.approx(
        0.4 * pchannels + 0.3 * vchannels + 0.01 * 0.5
    )


def test_nothing_costs_nothing() -> None:
    assert cost([], [A, B], BalanceWeights()) == 0.0


@pytest.mark.parametrize(
    ("moved_ms", "lag_ms", "allowed", "moves"),
    [
        (0, 0, True, True),
        (0, 1000, True, True),
        (1, 0, True, False),
        (0, 1001, True, False),
        (0, 0, False, False),
    ],
)
def test_a_channel_that_just_moved_or_lags_or_must_not_stays(
    moved_ms: int, lag_ms: int, allowed: bool, moves: bool
) -> None:
    rules = BalanceRules(allow_rebalance=allowed)
    mvcc = TimeTick((5000 + lag_ms) << 18)
    assert may_move(moved_ms, 300_000, mvcc, TimeTick(5000 << 18), rules) is moves


def test_a_newcomer_goes_where_it_costs_least_and_ties_to_the_smaller_id() -> None:
    assert best_node(PChannelName("x"), [], [B, A], RULES) == A
    assert best_node(PChannelName("x"), on(1, "a"), [B, A], RULES) == B
    assert best_node(PChannelName("x"), on(1, "a"), [B, A], COUNT) == B
    assert best_node(PChannelName("x"), on(1, "x", "a"), [B, A], RULES) == B
    assert best_node(PChannelName("x"), on(3, "a", "b"), [B, A], RULES) == A
    assert best_node(PChannelName("x"), [], [], RULES) is None


@pytest.mark.parametrize("rules", [RULES, COUNT])
def test_a_new_node_gets_its_share_within_some_rounds(rules: BalanceRules) -> None:
    layout = on(1, "a", "b", "c") + on(2, "d", "e", "f")
    for _ in range(4):
        layout = applied(layout, rebalance(layout, [A, B, C], rules))
    assert sorted([it.node for it in layout]) == [A, A, B, B, C, C]
    assert rebalance(layout, [A, B, C], rules) == ()


def test_heavy_channels_are_swapped_when_no_single_move_helps() -> None:
    layout = on(1, "a", "b", vchannels=6) + on(2, "c", "d", vchannels=0)
    layout = applied(layout, rebalance(layout, [A, B], RULES))
    for node in (A, B):
        held = [it.vchannels for it in layout if it.node == node]
        assert sorted(held) == [0, 6]


@pytest.mark.parametrize("rules", [RULES, COUNT])
@pytest.mark.parametrize(
    ("nodes", "changes"),
    [([A, B], {"allow_rebalance": False}), ([A], {})],
)
def test_nothing_moves_where_it_may_not_or_has_nowhere_to_go(
    nodes: list[NodeId], changes: dict[str, bool], rules: BalanceRules
) -> None:
    assert rebalance(on(1, "a", "b", "c"), nodes, replace(rules, **changes)) == ()  # type: ignore[arg-type]


@pytest.mark.parametrize("rules", [RULES, COUNT])
def test_what_is_not_movable_stays(rules: BalanceRules) -> None:
    assert rebalance(on(1, "a", "b", "c", movable=False), [A, B], rules) == ()


def test_a_layout_too_large_for_a_wide_search_is_balanced_all_the_same() -> None:
    layout = on(1, *[f"p{number:02d}" for number in range(60)])
    nodes = [NodeId(number) for number in range(1, 40)]
    moves = rebalance(layout, nodes, RULES)
    assert len(moves) == RULES.weights.steps_max
    assert len({move.to for move in moves}) == len(moves)


def test_the_layout_is_joined_of_owners_and_vchannels() -> None:
    a, b, gone = PChannelName("a"), PChannelName("b"), PChannelName("gone")
    one = CollectionId(1)
    layout = layout_of({b: B, a: A}, [(a, one), (a, one), (gone, one)], [b])
    assert layout == (
        PlacedChannel(a, A, 2, frozenset({one}), movable=False),
        PlacedChannel(b, B, 0, frozenset(), movable=True),
    )


layouts = st.lists(
    st.builds(
        lambda node, vchannels, collections, movable: (node, vchannels, collections, movable),
        st.integers(1, 4),
        st.integers(0, 5),
        st.frozensets(st.integers(1, 4).map(CollectionId), max_size=3),
        st.booleans(),
    ),
    max_size=7,
).map(
    lambda rows: [
        PlacedChannel(PChannelName(f"p{index}"), NodeId(node), vchannels, collections, movable)
        for index, (node, vchannels, collections, movable) in enumerate(rows)
    ]
)


@settings(max_examples=30, deadline=None)
@given(layouts, st.sampled_from([RULES, COUNT]))
def test_rounds_end_at_a_layout_that_no_round_changes(
    layout: list[PlacedChannel], rules: BalanceRules
) -> None:
    nodes = [A, B, C]
    for _ in range(60):
        moves = rebalance(layout, nodes, rules)
        fixed = {it.name for it in layout if not it.movable or it.node not in nodes}
        assert not fixed & {move.name for move in moves}
        assert all(move.to in nodes for move in moves)
        if not moves:
            break
        there = [it for it in layout if it.node in nodes]
        after = [it for it in applied(layout, moves) if it.node in nodes]
        if rules is RULES:
            gain = cost(there, nodes, BalanceWeights()) - cost(after, nodes, BalanceWeights())
            assert gain > BalanceWeights().tolerance
        layout = applied(layout, moves)
    assert rebalance(layout, nodes, rules) == ()


@settings(max_examples=30, deadline=None)
@given(layouts)
def test_a_settled_layout_has_no_single_move_that_gains(layout: list[PlacedChannel]) -> None:
    nodes = [A, B, C]
    there = [it for it in layout if it.node in nodes]
    if rebalance(there, nodes, RULES):
        return
    now = cost(there, nodes, BalanceWeights())
    for each, node in product([it for it in there if it.movable], nodes):
        moved = applied(there, (ChannelMove(each.name, node),))
        assert now - cost(moved, nodes, BalanceWeights()) <= BalanceWeights().tolerance + 1e-9


@given(layouts)
def test_fair_counts_differ_by_one_at_most_when_everything_may_move(
    layout: list[PlacedChannel],
) -> None:
    nodes = [A, B, C, NodeId(4)]
    free = [replace(it, movable=True) for it in layout]
    after = applied(free, rebalance(free, nodes, COUNT))
    counts = [sum([it.node == node for it in after]) for node in nodes]
    assert max(counts) - min(counts) <= 1


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 200)), max_size=12),
    st.sampled_from([BalanceRules(), BalanceRules(count_fair=True)]),
)
def test_nodes_that_come_and_go_move_a_channel_once_in_its_interval_and_rounds_end(
    changes: list[tuple[int, int]], rules: BalanceRules
) -> None:
    """Each change takes a node away, or brings it back; its channels go to others at once."""
    here, now_ms = {A, B, C}, 1_000_000_000
    homes = {PChannelName(f"p{number}"): [A, B, C][number % 3] for number in range(7)}
    moved = dict.fromkeys(homes, 0)

    def layout() -> list[PlacedChannel]:
        return [
            PlacedChannel(name, node, movable=move_interval_over(moved[name], now_ms, rules))
            for name, node in homes.items()
        ]

    for node, pause_s in changes:
        now_ms += pause_s * 1000
        here ^= {NodeId(node)}
        for name in [it for it, home in homes.items() if home not in here and here]:
            chosen = best_node(name, layout(), here, rules)
            assert chosen is not None
            homes[name] = chosen
        rounds = 0
        while moves := rebalance(layout(), here, rules):
            rounds += 1
            for move in moves:
                assert now_ms - moved[move.name] >= rules.min_interval_ms
                homes[move.name], moved[move.name] = move.to, now_ms
        assert rounds <= len(homes)
        rested = [it for it in layout() if it.movable and it.node in here]
        counts = {it: list(homes.values()).count(it) for it in here}
        if len(here) > 1 and min(counts.values()) == 0:
            assert not [it for it in rested if counts[it.node] > 1], "an empty node gets something"
