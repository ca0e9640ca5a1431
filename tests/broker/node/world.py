"""A node on fakes of its ports: what tests run, and how they speak to it."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from actors import ActorError, Clock, Strategy, SupervisorSpec, System
from actors.testing import VirtualClock
from broker.codec.stored_headers import StoredHeaders
from broker.meta.memory_store import MemoryMetaStore
from broker.meta.stored_recovery import StoredRecovery
from broker.model.channel import ChannelOffsets, PChannel
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.ids import MessageId, NodeId, PChannelName, Term, TimeTick
from broker.model.message import Appended, ClosedTick, Delivered, NewMessage
from broker.model.position import DeliverFilter, DeliverPolicy, FromAll, ReadPosition
from broker.node.append.intake import append
from broker.node.appender_messages import AppendOutcome
from broker.node.directory_messages import (
    AssignChannel,
    FindScanner,
    Locate,
    Located,
    OpenScanner,
    RemoveChannel,
    ScannerOpened,
)
from broker.node.scanner_messages import Delivery, Pull
from broker.node.state.node_limits import NodeLimits
from broker.node.state.node_runtime import NodePorts, NodeRuntime, node_runtime
from broker.node.tree import node_spec
from broker.ports.holds import Holds, NoHolds
from broker.ports.recovery_store import RecoveryStore
from broker.ports.row_schemas import NoRowSchemas, RowSchemas
from broker.ports.space.collection_retentions import CollectionRetentions, NoRetentions
from broker.ports.space.collection_sizes import CollectionSizes, NoSizes
from broker.ports.space.disk_room import DiskRoom, EnoughRoom
from broker.ports.ticks import TickRange
from broker.ports.wal import Wal
from broker.wal.memory_wal import MemoryWal
from tests.broker.core.log.singly import each_of

PCHANNEL = PChannelName("by-dev-rootcoord-dml_0")
OTHER = PChannelName("by-dev-rootcoord-dml_1")
NODE = NodeId(1)
DIRECTORY = "/root/node/directory"


class OracleFake:
    """A `TickSource`: hybrid time over a clock, with a pause where a trip would be."""

    def __init__(self, clock: Clock, pause_s: Callable[[], float] = lambda: 0.0) -> None:
        self._clock = clock
        self._pause_s = pause_s
        self.next = 1
        self.origin_ms = 0
        self.broken = False
        self.reservations = 0

    async def reserve(self, count: int) -> TickRange:
        self.reservations += 1
        await asyncio.sleep(self._pause_s())
        if self.broken:
            raise Refused(StreamingCode.INNER, "the oracle is away")
        first = max(self.next, (self.origin_ms + self._clock.wall_ms()) << 18)
        self.next = first + count
        return TickRange(TimeTick(first), count)


class TermsFake:
    """A `Terms` in a dict; `owned` False plays a channel that was given to another node."""

    def __init__(self) -> None:
        self.newest: dict[PChannelName, int] = {}
        self.owned = True

    async def acquire(self, channel: PChannelName, after: Term) -> Term:
        if not self.owned or self.newest.get(channel, 0) > after:
            raise Refused(StreamingCode.IGNORED_OPERATION, f"{channel} has another owner")
        self.newest[channel] = self.newest.get(channel, 0) + 1
        return Term(self.newest[channel])

    async def claim(self, channel: PChannel) -> None:
        newest = self.newest.get(channel.name, 0)
        if newest > channel.term:
            cause = f"{channel.name} is at term {newest}"
            raise Refused(StreamingCode.IGNORED_OPERATION, cause)
        self.newest[channel.name] = channel.term


@dataclass
class ObserverFake:
    """A `ChannelObserver` that remembers."""

    events: list[tuple[str, PChannelName, int]] = field(default_factory=list)

    def opened(self, node: NodeId, channel: PChannel) -> None:
        self.events.append(("opened", channel.name, channel.term))

    def closed(self, node: NodeId, name: PChannelName, term: Term, *, reopens: bool) -> None:
        self.events.append(("closed" if reopens else "released", name, term))


@dataclass
class MemoryFake:
    """A `Memory` of a machine whose process takes what a test says."""

    total: int = 1 << 30
    process: int = 0
    used: int = 0
    freed: int = 0
    """Pages without use, beside `process`."""
    used_asked: int = 0
    trims: int = 0

    def used_bytes(self) -> int:
        self.used_asked += 1
        return self.used

    async def trim(self) -> None:
        self.trims += 1
        self.freed = 0

    def total_bytes(self) -> int:
        return self.total

    def process_bytes(self) -> int:
        return self.process + self.freed


@dataclass
class World:
    """A running node and its fakes."""

    system: System
    node: NodeRuntime
    wal: Wal
    terms: TermsFake
    observer: ObserverFake
    oracle: OracleFake
    clock: Clock
    memory: MemoryFake

    async def ask(self, request, deadline_s: float = 60.0):  # type: ignore[no-untyped-def]
        """The Directory's answer."""
        return await self.system.find(DIRECTORY).ask(request, deadline_s=deadline_s)

    async def assign(self, name: PChannelName = PCHANNEL, term: int = 1) -> Refusal | None:
        answer: Refusal | None = await self.ask(AssignChannel(PChannel(name, Term(term))))
        return answer

    async def remove(self, name: PChannelName = PCHANNEL, term: int = 1) -> Refusal | None:
        answer: Refusal | None = await self.ask(RemoveChannel(name, Term(term)))
        return answer

    async def locate(self, name: PChannelName = PCHANNEL, term: int | None = None) -> Located:
        """Where it serves, waiting until it does."""
        while True:
            try:
                found: Located | Refusal = await self.ask(
                    Locate(name, None if term is None else Term(term))
                )
            except ActorError:
                found = Refusal(StreamingCode.INNER, "")
            if isinstance(found, Located):
                return found
            await self.clock.sleep(0.01)

    async def append(
        self, *messages: NewMessage, name: PChannelName = PCHANNEL
    ) -> tuple[AppendOutcome, ...]:
        return await append(await self.locate(name), messages, deadline_s=30.0)

    async def offsets(self, name: PChannelName = PCHANNEL) -> ChannelOffsets:
        return (await self.locate(name)).view.offsets()

    async def open_scanner(
        self,
        vchannel: str = "",
        policy: DeliverPolicy | None = None,
        filters: tuple[DeliverFilter, ...] = (),
        name: PChannelName = PCHANNEL,
    ) -> ScannerOpened | Refusal:
        opened: ScannerOpened | Refusal = await self.ask(
            OpenScanner(name, None, vchannel, policy or FromAll(), filters)
        )
        return opened

    def path(self, actor: str, name: PChannelName = PCHANNEL) -> str:
        if actor == "time_tick":  # one for all pchannels
            return "/root/node/time_tick"
        return f"/root/node/channels/{name}/log/{actor}"


class Reader:
    """A consumer that survives the death of its Scanner, as the edge and a client together do."""

    def __init__(
        self, world: World, vchannel: str = "", filters: tuple[DeliverFilter, ...] = ()
    ) -> None:
        self._world, self._vchannel, self._filters = world, vchannel, filters
        self._opened: ScannerOpened | None = None
        self.cursor = ReadPosition(MessageId(1))
        self.messages: list[Delivered] = []
        self.ticks: list[ClosedTick] = []
        self.events: list[Delivered | ClosedTick] = []

    async def pull(self, bytes_max: int = 1 << 20) -> Delivery | Refusal:
        while True:
            if self._opened is None:
                opened = await self._world.open_scanner(self._vchannel, None, self._filters)
                if isinstance(opened, Refusal):
                    await self._world.clock.sleep(0.05)
                    continue
                self._opened = opened
            try:
                request = Pull(self.cursor, bytes_max)
                answer: Delivery | Refusal = await self._opened.scanner.ask(
                    request, deadline_s=10.0
                )
            except ActorError:
                await self._find_again()
                continue
            if isinstance(answer, Delivery):
                self._take(answer)
            return answer

    async def read_until(self, last_id: int, bytes_max: int = 1 << 20) -> None:
        while self.cursor.next_id <= last_id:
            answer = await self.pull(bytes_max)
            assert isinstance(answer, Delivery), answer

    async def _find_again(self) -> None:
        assert self._opened is not None
        try:
            found = await self._world.ask(FindScanner(self._opened.scanner.path))
        except ActorError:
            found = Refusal(StreamingCode.INNER, "")
        if not isinstance(found, Refusal):
            self._opened = ScannerOpened(found, self.cursor)
        elif found.code is StreamingCode.CHANNEL_NOT_EXIST:
            self._opened = None
        else:
            await self._world.clock.sleep(0.01)

    def _take(self, delivery: Delivery) -> None:
        self.cursor = delivery.cursor
        for item in (*delivery.items, *((delivery.tick,) if delivery.tick else ())):
            for event in each_of((item,)):
                self.events.append(event)
                if isinstance(event, Delivered):
                    self.messages.append(event)
                else:
                    self.ticks.append(event)


@asynccontextmanager
async def running_node(  # noqa: PLR0913 - one for each thing a test may replace
    wal: Wal | None = None,
    limits: NodeLimits | None = None,
    *,
    clock: Clock | None = None,
    seed: int = 0,
    oracle_pause_s: Callable[[], float] = lambda: 0.0,
    recovery: RecoveryStore | None = None,
    holds: Holds | None = None,
    catalog: RowSchemas | None = None,
    retentions: CollectionRetentions | None = None,
    sizes: CollectionSizes | None = None,
    room: DiskRoom | None = None,
) -> AsyncIterator[World]:
    """A node on virtual time, unless a clock is given; stopped in order at the end."""
    clock = clock or VirtualClock()
    wal = wal or MemoryWal()
    memory = MemoryFake()
    terms, observer, oracle = TermsFake(), ObserverFake(), OracleFake(clock, oracle_pause_s)
    ports = NodePorts(
        wal=wal,
        terms=terms,
        ticks=oracle,
        observer=observer,
        headers=StoredHeaders(),
        recovery=recovery or StoredRecovery(MemoryMetaStore()),
        memory=memory,
        holds=holds or NoHolds(),
        catalog=catalog or NoRowSchemas(),
        retentions=retentions or NoRetentions(),
        sizes=sizes or NoSizes(),
        room=room or EnoughRoom(),
    )
    node = node_runtime(NODE, ports, limits)
    root = SupervisorSpec("root", Strategy.ONE_FOR_ONE, (node_spec(node),))
    async with System(root, clock=clock, random=random.Random(seed)) as system:
        yield World(system, node, wal, terms, observer, oracle, clock, memory)


def message(text: str = "", shard: int = 0, kind: int = 2, **fields: object) -> NewMessage:
    """A message whose body is its text."""
    body = text.encode()
    return NewMessage(f"{PCHANNEL}_7v{shard}", kind, body, len(body), **fields)  # type: ignore[arg-type]


def appended(outcomes: Sequence[AppendOutcome]) -> list[Appended]:
    """The outcomes, all of which must be good."""
    good = [outcome for outcome in outcomes if isinstance(outcome, Appended)]
    assert len(good) == len(outcomes), outcomes
    return good
