"""Which pchannel should move to which node: two balance policies, and what they leave alone.

Owns the judgement of a layout. Never moves anything, and never touches a channel that is not
`movable`: whoever asks has looked at its guards (`may_move`).

A layout costs what each node is off the average, in pchannels and in vchannels, and a little for
each pair of pchannels on one node that carry the same collections. Lower is better. A round takes
up to `steps_max` moves, found depth-first among the most promising ones, and only when they gain
more than `tolerance`: so rounds end (each gains something, and there is not much to gain).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from broker.model.ids import TICK_LOGICAL_BITS, CollectionId, NodeId, PChannelName, TimeTick

BEAM_WIDTH = 6
"""Moves that are followed further at each step of the search."""
EXHAUSTIVE_MAX = 64
"""Possible moves up to which all are weighed, pairs included, and several followed; above, only
those of the fullest node, by numbers, and the best one: a round takes milliseconds all the same."""


@dataclass(frozen=True, slots=True)
class PlacedChannel:
    """A pchannel that serves on `node`, and what is on it."""

    name: PChannelName
    node: NodeId
    vchannels: int = 0
    collections: frozenset[CollectionId] = frozenset()
    movable: bool = True


@dataclass(frozen=True, slots=True)
class BalanceWeights:
    """What counts how much (facts, semantics 6.4)."""

    pchannel: float = 0.4
    vchannel: float = 0.3
    anti_affinity: float = 0.01
    tolerance: float = 0.01
    steps_max: int = 3


@dataclass(frozen=True, slots=True)
class BalanceRules:
    """When a channel may be moved for the sake of balance. `count_fair`: by numbers only."""

    allow_rebalance: bool = True
    min_interval_ms: int = 300_000
    lag_ms_max: int = 1_000
    count_fair: bool = False
    weights: BalanceWeights = BalanceWeights()


@dataclass(frozen=True, slots=True)
class ChannelMove:
    """One move."""

    name: PChannelName
    to: NodeId


def may_move(
    moved_ms: int, now_ms: int, mvcc: TimeTick, recovered: TimeTick, rules: BalanceRules
) -> bool:
    """Not one that has just moved, nor one whose next owner would have much to read back."""
    lag_ms = (mvcc - recovered) >> TICK_LOGICAL_BITS
    return move_interval_over(moved_ms, now_ms, rules) and lag_ms <= rules.lag_ms_max


def move_interval_over(moved_ms: int, now_ms: int, rules: BalanceRules) -> bool:
    """Whether balance, which moved it at `moved_ms`, may move it again.

    Why not the time since it was assigned: who came to a node because its own was lost, or there
    was no other, has not been moved for balance, and a node that comes (back) must not stay empty
    for so long. One that comes and goes again and again gets each channel once in that time.
    """
    return rules.allow_rebalance and now_ms - moved_ms >= rules.min_interval_ms


def cost(
    layout: Iterable[PlacedChannel], nodes: Iterable[NodeId], weights: BalanceWeights
) -> float:
    """What the layout costs over these nodes; those without a channel count."""
    on: dict[NodeId, list[PlacedChannel]] = {node: [] for node in nodes}
    for each in layout:
        on[each.node].append(each)
    pchannels = [len(held) for held in on.values()]
    vchannels = [sum([it.vchannels for it in held]) for held in on.values()]
    apart = 0.0
    if weights.anti_affinity:
        apart = sum([_likeness(a, b) for held in on.values() for a, b in combinations(held, 2)])
    return (
        weights.pchannel * _unevenness(pchannels)
        + weights.vchannel * _unevenness(vchannels)
        + weights.anti_affinity * apart
    )


def best_node(
    newcomer: PChannelName,
    layout: Sequence[PlacedChannel],
    nodes: Iterable[NodeId],
    rules: BalanceRules,
) -> NodeId | None:
    """The best node for a channel that has none; ties go to the smaller id. None without nodes.

    `layout` has what the channel carries if it is known, wherever it was; channels on other nodes
    do not count.
    """
    candidates = sorted(nodes)
    known = [it for it in layout if it.name == newcomer]
    there = [it for it in layout if it.name != newcomer and it.node in candidates]

    def price(node: NodeId) -> tuple[float, NodeId]:
        moved = replace(known[0], node=node) if known else PlacedChannel(newcomer, node)
        if rules.count_fair:
            return sum([it.node == node for it in there]), node
        return cost([*there, moved], candidates, rules.weights), node

    return min(candidates, key=price, default=None)


def rebalance(
    layout: Sequence[PlacedChannel], nodes: Iterable[NodeId], rules: BalanceRules
) -> tuple[ChannelMove, ...]:
    """The moves of one round; none when the layout is good enough. Only among these nodes."""
    candidates = sorted(nodes)
    there = [it for it in layout if it.node in candidates]
    if len(candidates) < 2 or not rules.allow_rebalance:
        return ()
    if rules.count_fair:
        return _even_out(there, candidates)
    weights = rules.weights
    if len(there) * len(candidates) > EXHAUSTIVE_MAX:
        weights = replace(weights, anti_affinity=0.0)  # pairs are too many to look at
    before = cost(there, candidates, weights)
    best, moves = _search(tuple(there), candidates, weights, weights.steps_max)
    return moves if before - best > weights.tolerance else ()


def _search(
    layout: tuple[PlacedChannel, ...], nodes: Sequence[NodeId], weights: BalanceWeights, steps: int
) -> tuple[float, tuple[ChannelMove, ...]]:
    """The best cost within so many moves, and the moves."""
    best: tuple[float, tuple[ChannelMove, ...]] = (cost(layout, nodes, weights), ())
    if not steps:
        return best
    large = len(layout) * len(nodes) > EXHAUSTIVE_MAX
    givers = _fullest(layout, nodes) if large else nodes
    scored = [
        (cost(moved, nodes, weights), ChannelMove(each.name, node), moved)
        for index, each in enumerate(layout)
        if each.movable and each.node in givers
        for node in nodes
        if node != each.node
        for moved in [(*layout[:index], replace(each, node=node), *layout[index + 1 :])]
    ]
    beam = 1 if large else BEAM_WIDTH
    for _, move, moved in sorted(scored, key=lambda it: (it[0], it[1].name, it[1].to))[:beam]:
        still = tuple([replace(it, movable=it.movable and it.name != move.name) for it in moved])
        reached, more = _search(still, nodes, weights, steps - 1)
        if reached < best[0]:
            best = (reached, (move, *more))
    return best


def _fullest(layout: Sequence[PlacedChannel], nodes: Sequence[NodeId]) -> tuple[NodeId, ...]:
    """The node with the most of both, of those with something to give."""
    load = dict.fromkeys(nodes, 0)
    for each in layout:
        load[each.node] += 1 + each.vchannels
    giving = sorted({each.node for each in layout if each.movable})
    return tuple(sorted(giving, key=lambda node: -load[node])[:1])


def _even_out(layout: Sequence[PlacedChannel], nodes: Sequence[NodeId]) -> tuple[ChannelMove, ...]:
    """From the fullest node that can give to the emptiest, until they differ by one at most."""
    count = {node: sum([it.node == node for it in layout]) for node in nodes}
    movable = {
        node: sorted([it.name for it in layout if it.node == node and it.movable]) for node in nodes
    }
    moves: list[ChannelMove] = []
    while True:
        givers = [node for node in nodes if movable[node]]
        fullest = max(givers, key=lambda node: (count[node], -node), default=None)
        emptiest = min(nodes, key=lambda node: (count[node], node))
        if fullest is None or count[fullest] - count[emptiest] < 2:
            return tuple(moves)
        moves.append(ChannelMove(movable[fullest].pop(), emptiest))
        count[fullest] -= 1
        count[emptiest] += 1


def _unevenness(numbers: Sequence[int]) -> float:
    average = sum(numbers) / len(numbers)
    if not average:
        return 0.0
    return sum([((number - average) / average) ** 2 for number in numbers])


def _likeness(one: PlacedChannel, other: PlacedChannel) -> float:
    """The share of collections that both carry; 0 when neither carries any."""
    distinct = one.collections | other.collections
    if not distinct:
        return 0.0
    return len(one.collections & other.collections) / len(distinct)


def layout_of(
    owners: Mapping[PChannelName, NodeId],
    vchannels: Iterable[tuple[PChannelName, CollectionId]],
    movable: Iterable[PChannelName],
) -> tuple[PlacedChannel, ...]:
    """The layout: who owns which pchannel, and the pchannel and collection of each vchannel."""
    held: dict[PChannelName, list[CollectionId]] = {name: [] for name in owners}
    for name, collection in vchannels:
        if name in held:
            held[name].append(collection)
    free = frozenset(movable)
    return tuple(
        [
            PlacedChannel(name, owners[name], len(held[name]), frozenset(held[name]), name in free)
            for name in sorted(owners)
        ]
    )
