"""Which pchannel moves to which node: Milvus's two balance policies.

`vchannelFair` minimises a cost: the squared deviation of each node from the average, in pchannels
and in vchannels, plus a small penalty for pairs of pchannels on one node that carry the same
collections. A round searches up to `steps_max` moves depth-first along the most promising ones, and
takes them only if they save more than `tolerance`. Each round lowers the cost by at least that
much, so balancing terminates. `pchannel_count_fair` evens out the number of pchannels only.

Only channels marked `movable` are moved; the caller decides that with `may_move`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from broker.model.ids import TICK_LOGICAL_BITS, CollectionId, NodeId, PChannelName, TimeTick

BEAM_WIDTH = 6
"""Number of moves that the search follows at each step."""
EXHAUSTIVE_MAX = 64
"""Up to this many possible moves, all are weighed, collection pairs included. Above it the search
considers only moves off the fullest node, ignores pairs and follows the best move, so that a round
still takes milliseconds."""


@dataclass(frozen=True, slots=True)
class PlacedChannel:
    """A pchannel on its node, and what it carries."""

    name: PChannelName
    node: NodeId
    vchannels: int = 0
    collections: frozenset[CollectionId] = frozenset()
    movable: bool = True


@dataclass(frozen=True, slots=True)
class BalanceWeights:
    """Weights of the cost; the defaults are Milvus's."""

    pchannel: float = 0.4
    vchannel: float = 0.3
    anti_affinity: float = 0.01
    tolerance: float = 0.01
    steps_max: int = 3


@dataclass(frozen=True, slots=True)
class BalanceRules:
    """When the balancer may move a channel. `count_fair`: consider only how many each node has."""

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
    """Whether the balancer may move a channel: not moved recently, and quick to recover.

    `recovered` is the tick that a new owner would replay from, `mvcc` the newest one.
    """
    lag_ms = (mvcc - recovered) >> TICK_LOGICAL_BITS
    return move_interval_over(moved_ms, now_ms, rules) and lag_ms <= rules.lag_ms_max


def move_interval_over(moved_ms: int, now_ms: int, rules: BalanceRules) -> bool:
    """Whether `min_interval_ms` passed since the balancer last moved the channel, at `moved_ms`.

    Why not since it was last assigned: a channel that is where it is because its node was lost, or
    because there was only one node, was never moved by the balancer. A node that joins must not
    stay empty that long because of it. A node that joins and leaves repeatedly still gets each
    channel at most once per interval.
    """
    return rules.allow_rebalance and now_ms - moved_ms >= rules.min_interval_ms


def cost(
    layout: Iterable[PlacedChannel], nodes: Iterable[NodeId], weights: BalanceWeights
) -> float:
    """The cost of a layout over these nodes, those without a channel included."""
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
    """The cheapest node for an unassigned channel; ties go to the smaller id. None without nodes.

    If `layout` has the channel, its load counts, on whatever node it was. Channels on nodes that
    are not among `nodes` are ignored.
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
    """The moves of one round among these nodes; none if the layout is good enough."""
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
    """The lowest cost reachable in `steps` moves, and those moves."""
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
    # Ties are broken by name and node, so that equal layouts give equal moves.
    for _, move, moved in sorted(scored, key=lambda it: (it[0], it[1].name, it[1].to))[:beam]:
        # A channel moves once per round: a second move would only replace its first.
        still = tuple([replace(it, movable=it.movable and it.name != move.name) for it in moved])
        reached, more = _search(still, nodes, weights, steps - 1)
        if reached < best[0]:
            best = (reached, (move, *more))
    return best


def _fullest(layout: Sequence[PlacedChannel], nodes: Sequence[NodeId]) -> tuple[NodeId, ...]:
    """The node with the most pchannels and vchannels, among those with a movable channel."""
    load = dict.fromkeys(nodes, 0)
    for each in layout:
        load[each.node] += 1 + each.vchannels
    giving = sorted({each.node for each in layout if each.movable})
    return tuple(sorted(giving, key=lambda node: -load[node])[:1])


def _even_out(layout: Sequence[PlacedChannel], nodes: Sequence[NodeId]) -> tuple[ChannelMove, ...]:
    """Moves from the fullest node with a movable channel to the emptiest, until nearly even."""
    count = {node: sum([it.node == node for it in layout]) for node in nodes}
    movable = {
        node: sorted([it.name for it in layout if it.node == node and it.movable]) for node in nodes
    }
    moves: list[ChannelMove] = []
    while True:
        givers = [node for node in nodes if movable[node]]
        fullest = max(givers, key=lambda node: (count[node], -node), default=None)
        emptiest = min(nodes, key=lambda node: (count[node], node))
        # With a difference of 1, a move would only make the other node the fullest.
        if fullest is None or count[fullest] - count[emptiest] < 2:
            return tuple(moves)
        moves.append(ChannelMove(movable[fullest].pop(), emptiest))
        count[fullest] -= 1
        count[emptiest] += 1


def _unevenness(numbers: Sequence[int]) -> float:
    average = sum(numbers) / len(numbers)
    if not average:
        return 0.0
    # Relative to the average, so that the weights hold for any number of channels.
    return sum([((number - average) / average) ** 2 for number in numbers])


def _likeness(one: PlacedChannel, other: PlacedChannel) -> float:
    """The Jaccard index of their collections; 0 if neither carries any."""
    distinct = one.collections | other.collections
    if not distinct:
        return 0.0
    return len(one.collections & other.collections) / len(distinct)


def layout_of(
    owners: Mapping[PChannelName, NodeId],
    vchannels: Iterable[tuple[PChannelName, CollectionId]],
    movable: Iterable[PChannelName],
) -> tuple[PlacedChannel, ...]:
    """The layout, from owners of pchannels and the pchannel and collection of each vchannel."""
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
