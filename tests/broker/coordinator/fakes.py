"""Fakes of the coordinator's ports, with the failures a test asks for."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio

from actors import Clock, System
from actors.testing import VirtualClock
from broker.coordinator.assignment.assigner_notifier import AssignerNotifier
from broker.coordinator.assignment.live_nodes import LiveNodes
from broker.coordinator.assignment.stored_terms import StoredTerms
from broker.coordinator.tree import CoordinatorParts, coordinator_tree
from broker.core.naming import pchannel_names
from broker.model.channel import ChannelOffsets, ChannelTicks, PChannel
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.ids import MessageId, NodeId, PChannelName, Term, TimeTick
from broker.model.master.reservation import SegmentOrders
from broker.model.message import Appended, NewMessage
from broker.ports.meta import Conflict, MetaEntry, MetaError, MetaStore, WriteUnconfirmed

ROOT = "/coordinator"
NAMES = pchannel_names("by-dev", 4)


class ShakyStore:
    """A MetaStore in front of another: slow, refusing while `broken`, losing races to come.

    `failure`: what a call raises while `broken`. `deletes` False refuses writes that delete
    something.
    """

    def __init__(self, store: MetaStore, clock: Clock | None = None) -> None:
        self.inner = store
        self.broken = False
        self.failure = MetaError("disk full")
        self.deletes = True
        self.lost_races = 0
        self.writes = 0
        self.delay_s = 0.0
        self._clock = clock

    async def get(self, key: str) -> MetaEntry | None:
        await self._pass()
        return await self.inner.get(key)

    async def list(
        self, prefix: str, *, limit: int, after: str = ""
    ) -> Sequence[tuple[str, MetaEntry]]:
        await self._pass()
        return await self.inner.list(prefix, limit=limit, after=after)

    async def write(
        self,
        puts: Mapping[str, bytes],
        *,
        deletes: Sequence[str] = (),
        expect: Mapping[str, int] | None = None,
    ) -> int:
        await self._pass()
        if deletes and not self.deletes:
            raise MetaError("nothing can be deleted")
        if self.lost_races:
            self.lost_races -= 1
            raise Conflict("somebody", 1, 2)
        self.writes += 1
        return await self.inner.write(puts, deletes=deletes, expect=expect)

    async def close(self) -> None:
        await self.inner.close()

    async def _pass(self) -> None:
        if self._clock is not None:
            await self._clock.sleep(self.delay_s)
        if self.broken:
            raise self.failure


class LosingStore(ShakyStore):
    """Loses the answer of one write: of the next that has a key with the prefix `loses`.

    `applies`: whether that write took effect. After it the store is `broken` if it `breaks`, and
    `delay_s` is long if it `hangs`.
    """

    def __init__(self, store: MetaStore, clock: Clock | None = None) -> None:
        super().__init__(store, clock)
        self.loses = ""
        self.applies = True
        self.breaks = self.hangs = False

    async def write(
        self,
        puts: Mapping[str, bytes],
        *,
        deletes: Sequence[str] = (),
        expect: Mapping[str, int] | None = None,
    ) -> int:
        lost = self.loses and any(key.startswith(self.loses) for key in [*puts, *deletes])
        if not lost:
            return await super().write(puts, deletes=deletes, expect=expect)
        self.loses = ""
        if self.applies:
            await super().write(puts, deletes=deletes, expect=expect)
        self.broken = self.breaks
        if self.hangs:
            self.delay_s = 1e6
        raise WriteUnconfirmed("no answer; the write may have taken effect")


@dataclass
class FakeNode:
    """A node that keeps its promises: claims a term before it serves, never serves two.

    `refusals` are raised, one for each coming call of assign; `hangs` makes assign never answer,
    `keeps` makes remove fail, `down` everything.
    """

    node_id: NodeId
    terms: StoredTerms
    clock: Clock
    address: str = "127.0.0.1:1"
    served: dict[PChannelName, Term] = field(default_factory=dict)
    history: list[PChannel] = field(default_factory=list)
    removed: list[tuple[PChannelName, Term]] = field(default_factory=list)
    refusals: list[StreamingCode] = field(default_factory=list)
    hangs: bool = False
    down: bool = False
    silent: bool = False
    keeps: bool = False
    released: bool = False
    lag_ms: int = 0
    paused: bool = False
    refreshed: list[int] = field(default_factory=list)
    news: AssignerNotifier | None = None
    orders: list[tuple[PChannelName, SegmentOrders]] = field(default_factory=list)

    async def assign(self, channel: PChannel) -> None:
        self._check_up()
        if self.hangs:
            await anyio.sleep_forever()
        await self.clock.sleep(0.01)
        if self.refusals:
            raise Refused(self.refusals.pop(), "refused on purpose")
        await self.terms.claim(channel)
        self._serve(channel)

    async def remove(self, name: PChannelName, term: Term) -> None:
        self._check_up()
        if self.keeps:
            raise Refused(StreamingCode.INNER, "not letting go")
        self.removed.append((name, term))
        self.served.pop(name, None)

    async def status(self) -> Sequence[ChannelTicks]:
        self._check_up()
        if self.silent:
            await anyio.sleep_forever()
        mvcc, recovered = TimeTick(self.lag_ms << 18), TimeTick(0)
        return [
            ChannelTicks(PChannel(name, term), mvcc, recovered)
            for name, term in self.served.items()
        ]

    async def order_segments(self, name: PChannelName, orders: SegmentOrders) -> None:
        self._check_up()
        self.orders.append((name, orders))

    async def describe(
        self, names: Sequence[PChannelName]
    ) -> Mapping[PChannelName, ChannelOffsets]:
        self._check_up()
        zero, tick = MessageId(0), TimeTick(0)
        return {
            name: ChannelOffsets(name, self.served[name], zero, zero, tick, 0)
            for name in names
            if name in self.served
        }

    async def append(
        self, name: PChannelName, messages: Sequence[NewMessage]
    ) -> Sequence[Appended | Refusal]:
        raise Refused(StreamingCode.UNKNOWN, "a fake stores nothing")

    async def pause_consumption(self, *, paused: bool) -> None:
        self._check_up()
        self.paused = paused

    async def refresh_settings(self, revision: int) -> int:
        self._check_up()
        if self.silent:
            await anyio.sleep_forever()
        self.refreshed.append(revision)
        return revision

    def release(self) -> None:
        self.released = True

    async def restart_channel(self, name: PChannelName, opens_s: float = 0.02) -> None:
        """What a node does itself when a channel of it has crashed; recovery takes `opens_s`."""
        term = self.served.pop(name)
        self._describe(lambda news: news.closed(self.node_id, name, term, reopens=True))
        await self.clock.sleep(0.02)
        channel = PChannel(name, await self.terms.acquire(name, term))
        await self.clock.sleep(opens_s)
        if self.terms_newer(channel):
            return
        self._serve(channel)
        self._describe(lambda news: news.opened(self.node_id, channel))

    def give_up_channel(self, name: PChannelName) -> None:
        """The channel is gone, and this node will not open it again by itself."""
        term = self.served.pop(name)
        self._describe(lambda news: news.closed(self.node_id, name, term, reopens=True))

    def release_channel(self, name: PChannelName) -> None:
        """Somebody had the channel closed here."""
        term = self.served.pop(name)
        self._describe(lambda news: news.closed(self.node_id, name, term, reopens=False))

    def terms_newer(self, channel: PChannel) -> bool:
        """Whether it was assigned a later term while it opened this one."""
        return self.served.get(channel.name, 0) > channel.term

    def _serve(self, channel: PChannel) -> None:
        self.served[channel.name] = channel.term
        self.history.append(channel)

    def _describe(self, tell: Callable[[AssignerNotifier], None]) -> None:
        if self.news is not None:
            tell(self.news)

    def _check_up(self) -> None:
        if self.down:
            raise Refused(StreamingCode.ON_SHUTDOWN, "the node is down")


def make_nodes(store: MetaStore, clock: Clock, count: int = 1) -> list[FakeNode]:
    return [
        FakeNode(NodeId(number), StoredTerms(store, NodeId(number)), clock, f"127.0.0.1:{number}")
        for number in range(1, count + 1)
    ]


def run_coordinator(
    store: MetaStore,
    nodes: Sequence[FakeNode],
    clock: VirtualClock,
    pchannels: Sequence[PChannelName] = NAMES,
    **more: Any,
) -> System:
    """The coordinator as the root of a tree of its own; the nodes tell it their news."""
    live = more.pop("live", None) or LiveNodes(nodes)
    parts = CoordinatorParts(store, live, pchannels, **more)
    system = System(coordinator_tree(parts, ""), clock=clock)
    for node in nodes:
        node.news = AssignerNotifier(system.find, f"{ROOT}/assigner")
    return system
