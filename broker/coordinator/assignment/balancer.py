"""Moves pchannels between nodes for balance, in rounds.

The rules are in `broker/core/cluster/balance.py`; the moves are made by the reconcilers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

import anyio
import structlog
from anyio import to_thread

from actors import Actor, ActorError, Context, Envelope, Ref, Timer
from broker.coordinator.assignment.live_nodes import LiveNodes
from broker.coordinator.assignment.logged_vchannels import logged_vchannels
from broker.coordinator.assignment.messages import (
    AssignerMessage,
    Balance,
    BalancePolicy,
    BalancerMessage,
    LayoutMeasured,
    ListPChannels,
    MoveChannel,
    NodesChanged,
    UpdatePolicy,
)
from broker.coordinator.catalog.messages import CatalogMessage, ListCollections, all_collections
from broker.core.cluster.assignment import PChannelMeta
from broker.core.cluster.balance import (
    BalanceRules,
    ChannelMove,
    PlacedChannel,
    layout_of,
    may_move,
    move_interval_over,
    rebalance,
)
from broker.core.naming import pchannel_of
from broker.model.channel import ChannelTicks, PChannelState
from broker.model.collection import Collection
from broker.model.failure import Refused
from broker.model.ids import CollectionId, PChannelName, TimeTick
from broker.ports.meta import MetaError, MetaStore
from broker.ports.nodes import NodeControl

ASK_S = 5.0
POLL_S = 2.0
AT_ONCE = 1024
"""Channels times nodes up to which a round takes milliseconds; larger ones run on a thread."""
SETTLE_S = 1.0
"""Pause after a change of nodes: changes come in groups, and lost channels go first."""
LAGGING_S = 5.0
"""Next round when a channel could move but for its lag: a recovery snapshot reduces it."""
FAILED_FIRST_S = 0.01
FAILED_S_MAX = 5.0

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class LiveBalance:
    """The rules of the balancer and the seconds between two rounds; they may change at any time.

    A change counts from the next message on: tell NodesChanged.
    """

    rules: BalanceRules
    period_s: float


class Balancer(Actor[BalancerMessage]):
    """See the module. A round that moved channels is followed by another, until none does."""

    _context: Context[BalancerMessage]

    def __init__(
        self,
        nodes: LiveNodes,
        store: MetaStore,
        catalog_path: str,
        assigner_path: str,
        live: LiveBalance,
    ) -> None:
        self._nodes = nodes
        self._store = store
        self._catalog_path = catalog_path
        self._assigner_path = assigner_path
        self._live = live
        self._given = live.rules
        self._rules = live.rules
        self._planned: Timer | None = None
        self._rounds = self._moves = self._failures = 0

    async def started(self, context: Context[BalancerMessage]) -> None:
        self._context = context
        # A reference may be kept: this actor starts after the Assigner and restarts with it.
        self._assigner: Ref[AssignerMessage] = context.tree.find(self._assigner_path)
        self._plan(SETTLE_S)

    async def receive(self, batch: Sequence[Envelope[BalancerMessage]]) -> None:
        for envelope in batch:
            match envelope.message:
                case UpdatePolicy() as update:
                    self._update(update)
                    envelope.reply(BalancePolicy(self._rules.allow_rebalance, self._nodes.frozen()))
                case NodesChanged():
                    self._adopt_rules()
                    self._plan(SETTLE_S)
                case Balance():
                    self._adopt_rules()
                    await self._round()
                case message:
                    assert_never(message)

    def statistics(self) -> Mapping[str, int | float | str]:
        return {
            "rounds": self._rounds,
            "moves": self._moves,
            "failures": self._failures,
            "frozen": " ".join(map(str, self._nodes.frozen())),
            "allow_rebalance": int(self._rules.allow_rebalance),
        }

    def _adopt_rules(self) -> None:
        """Take changed settings over; a policy that was set by a call stays until then."""
        if self._live.rules != self._given:
            allow = self._rules.allow_rebalance
            if self._live.rules.allow_rebalance != self._given.allow_rebalance:
                allow = self._live.rules.allow_rebalance
            self._given = self._live.rules
            self._rules = replace(self._given, allow_rebalance=allow)

    def _update(self, update: UpdatePolicy) -> None:
        """Unknown nodes cannot be frozen; a frozen node that leaves is forgotten."""
        if update.allow_rebalance is not None:
            self._rules = replace(self._rules, allow_rebalance=update.allow_rebalance)
        self._nodes.freeze(update.freeze, update.defreeze)
        # The news reaches the reconcilers, which move channels off nodes that accept none.
        self._assigner.tell(NodesChanged())
        self._plan(0.0)

    async def _round(self) -> None:
        self._rounds += 1
        self._planned = None
        try:
            moves, pause_s = await self._moves_now()
        except (ActorError, MetaError, Refused) as error:
            self._failures += 1
            log.info("balance round failed", error=str(error))
            self._plan(min(FAILED_FIRST_S * 2.0 ** min(self._failures, 20), FAILED_S_MAX))
            return
        self._failures = 0
        for move in moves:
            log.info("moving for balance", channel=move.name, node=move.to)
            self._assigner.tell(MoveChannel(move.name, move.to))
        self._moves += len(moves)
        self._plan(pause_s)

    async def _moves_now(self) -> tuple[tuple[ChannelMove, ...], float]:
        """The moves of this round, and the pause before the next.

        No moves while a channel has no owner: its assignment comes first and changes the layout.
        """
        known = await self._assigner.ask(ListPChannels(), deadline_s=ASK_S)
        catalog: Ref[CatalogMessage] = self._context.tree.find(self._catalog_path)

        async def ask(page: ListCollections) -> tuple[Collection, ...]:
            return await catalog.ask(page, deadline_s=ASK_S)

        collections = await all_collections(ask)
        # Both: a collection without a schema is in no log, one of Milvus's clients in no catalog.
        carried = {it: each.id for each in collections for it in each.vchannels}
        carried |= await logged_vchannels(self._store)
        vchannels = [(pchannel_of(it), id) for it, id in carried.items()]
        rested, layout = await self._layout(known, vchannels)
        # Also in a round without moves: the choice of a node for a lost channel needs the loads.
        self._assigner.tell(LayoutMeasured(layout, self._rules))
        if len(layout) < len(known):
            return (), min(SETTLE_S, self._live.period_s)
        if moves := await self._weigh(layout):
            return moves, SETTLE_S
        lagging = rested != layout and await self._weigh(rested)
        return (), min(LAGGING_S, self._live.period_s) if lagging else self._live.period_s

    async def _weigh(self, layout: tuple[PlacedChannel, ...]) -> tuple[ChannelMove, ...]:
        rules, nodes = self._rules, self._nodes.accepting() - self._nodes.silent()
        if len(layout) * len(nodes) <= AT_ONCE:
            return rebalance(layout, nodes, rules)
        # A large layout takes long enough to delay other actors of this loop.
        return await to_thread.run_sync(lambda: rebalance(layout, nodes, rules))

    async def _layout(
        self,
        known: Sequence[PChannelMeta],
        vchannels: Sequence[tuple[PChannelName, CollectionId]],
    ) -> tuple[tuple[PlacedChannel, ...], tuple[PlacedChannel, ...]]:
        """The layout twice: movable without regard to lag, and movable now."""
        now_ms = self._context.clock.wall_ms()
        ticks = await self._ticks()
        served = {it.name: it for it in known if it.state is PChannelState.ASSIGNED}
        free = [
            name
            for name, (mvcc, recovered) in ticks.items()
            if name in served
            and may_move(served[name].moved_ms, now_ms, mvcc, recovered, self._rules)
        ]
        rested = [
            name
            for name, it in served.items()
            if move_interval_over(it.moved_ms, now_ms, self._rules)
        ]
        owners = {name: it.node for name, it in served.items() if it.node is not None}
        return layout_of(owners, vchannels, rested), layout_of(owners, vchannels, free)

    async def _ticks(self) -> Mapping[PChannelName, tuple[TimeTick, TimeTick]]:
        """Ticks of each channel; one of a node that does not answer is missing: not movable."""
        found: list[ChannelTicks] = []

        async def poll(node: NodeControl) -> None:
            try:
                found.extend(await node.status())
            except Refused:
                pass

        # One node that hangs must not keep the others' channels where they are.
        with anyio.move_on_after(POLL_S):
            async with anyio.create_task_group() as polls:
                for node in self._nodes.all():
                    polls.start_soon(poll, node)
        return {it.channel.name: (it.mvcc_tick, it.recovery_tick) for it in found}

    def _plan(self, delay_s: float) -> None:
        if self._planned is not None:
            self._planned.cancel()
        self._planned = self._context.after(delay_s, Balance())
