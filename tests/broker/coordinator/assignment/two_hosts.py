"""A real coordinator and two real nodes on one log in memory, and the ticks that they close."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from actors import ActorError, Clock, NoSuchActor, Strategy, SupervisorSpec, System
from actors.testing import VirtualClock
from broker.codec.stored_headers import StoredHeaders
from broker.coordinator.assignment.live_nodes import LiveNodes
from broker.coordinator.assignment.messages import NodesChanged
from broker.coordinator.assignment.stored_terms import StoredTerms
from broker.meta.memory_store import MemoryMetaStore
from broker.meta.stored_recovery import StoredRecovery
from broker.model.failure import Refusal, Refused
from broker.model.ids import MessageId, NodeId, TxnId
from broker.model.message import NewMessage
from broker.model.txn import TxnContext
from broker.node.append.intake import append
from broker.node.control import LocalNode
from broker.node.directory_messages import Locate
from broker.node.state.node_runtime import NodePorts, NodeRuntime, node_runtime
from broker.node.state.open_channels import OpenChannel
from broker.node.tree import node_spec
from broker.ports.holds import NoHolds
from broker.ports.row_schemas import NoRowSchemas
from broker.ports.space.collection_retentions import NoRetentions
from broker.ports.space.disk_room import EnoughRoom
from broker.ports.ticks import TickSource
from broker.wal.memory_wal import MemoryWal
from tests.broker.coordinator.assignment.following import ASSIGNER
from tests.broker.coordinator.fakes import NAMES, ROOT, run_coordinator
from tests.broker.node.world import DIRECTORY, MemoryFake, ObserverFake, OracleFake

NAME = NAMES[0]
RECONCILER = f"{ROOT}/reconcilers/{NAME}"
LOOK_S = 0.02
CHANNEL = f"/root/node/channels/{NAME}"
VICTIMS = (f"{CHANNEL}/controller", f"{CHANNEL}/log/appender", f"{CHANNEL}/log/recovery", DIRECTORY)


def begin() -> NewMessage:
    return NewMessage(f"{NAME}_7v0", 900, b"begin", 5, txn=TxnContext(TxnId(0), 0))


@dataclass
class Host:
    """A node of the cluster."""

    node: NodeRuntime
    system: System

    @property
    def serving(self) -> OpenChannel | None:
        return self.node.open_channels.find(NAME)

    def control(self) -> LocalNode:
        find = self.system.find
        return LocalNode(self.node.node_id, f"host-{self.node.node_id}:1", lambda: find(DIRECTORY))

    async def say(self, message: NewMessage) -> None:
        """Append, whether or not that succeeds."""
        try:
            located = await self.system.find(DIRECTORY).ask(Locate(NAME, None), deadline_s=1.0)
            if not isinstance(located, Refusal):
                await append(located, (message,), deadline_s=5.0)
        except (ActorError, Refused):
            pass


@dataclass
class Cluster:
    """`seen`: the channel as it served at each term; its tail keeps the last tick it closed."""

    clock: VirtualClock
    store: MemoryMetaStore
    live: LiveNodes
    hosts: list[Host]
    seen: dict[int, OpenChannel] = field(default_factory=dict)

    @asynccontextmanager
    async def coordinator(self) -> AsyncIterator[System]:
        async with run_coordinator(
            self.store, [], self.clock, pchannels=(NAME,), live=self.live
        ) as system:
            yield system

    async def pass_time(self, seconds: float) -> None:
        """Note who serves meanwhile."""
        end_s = self.clock.monotonic_s() + seconds
        while self.clock.monotonic_s() < end_s:
            for host in self.hosts:
                if (found := host.serving) is not None:
                    self.seen[found.channel.term] = found
            await self.clock.sleep(LOOK_S)

    def drain(self, host: Host, coordinator: System) -> None:
        """Have the channel moved to the other node, if it is here."""
        self.live.freeze([host.node.node_id], [it.node.node_id for it in self.hosts])
        self.live.freeze([host.node.node_id], [])
        coordinator.find(ASSIGNER).tell(NodesChanged())

    async def broken_promises(self) -> list[str]:
        """Of closed ticks: every record of a later term that lies at or below one."""
        records = await self.seen[max(self.seen)].log.read(MessageId(1), 1 << 30)
        return [
            f"term {it.channel.term} closed {it.tail.closed.tick}, term {record.term} wrote"
            f" {record.base_tick}"
            for it in self.seen.values()
            for record in records
            if record.term > it.channel.term and record.base_tick <= it.tail.closed.tick
        ]


def _same(_node: NodeId, oracle: OracleFake) -> TickSource:
    return oracle


@asynccontextmanager
async def cluster(
    clock: VirtualClock,
    seed: int = 0,
    ticks: Callable[[NodeId, OracleFake], TickSource] = _same,
    clocks: tuple[Clock, Clock] | None = None,
) -> AsyncIterator[Cluster]:
    """`ticks`: what a node has of the oracle. `clocks`: of the two hosts."""
    store, wal, oracle = MemoryMetaStore(), MemoryWal(), OracleFake(clock)
    hosts = [
        host_of(number, (store, wal, ticks(NodeId(number), oracle)), its, seed)
        for number, its in zip((1, 2), clocks or (clock, clock), strict=True)
    ]
    async with hosts[0].system, hosts[1].system:
        live = LiveNodes([it.control() for it in hosts])
        yield Cluster(clock, store, live, hosts)


def host_of(
    number: int, shared: tuple[MemoryMetaStore, MemoryWal, TickSource], clock: Clock, seed: int
) -> Host:
    store, wal, ticks = shared
    ports = NodePorts(
        wal=wal,
        terms=StoredTerms(store, NodeId(number)),
        ticks=ticks,
        observer=ObserverFake(),
        headers=StoredHeaders(),
        recovery=StoredRecovery(store),
        memory=MemoryFake(),
        holds=NoHolds(),
        catalog=NoRowSchemas(),
        retentions=NoRetentions(),
        room=EnoughRoom(),
    )
    node = node_runtime(NodeId(number), ports)
    root = SupervisorSpec("root", Strategy.ONE_FOR_ONE, (node_spec(node),))
    return Host(node, System(root, clock=clock, random=random.Random(seed + number)))


def kill(system: System, path: str) -> None:
    try:
        system.kill(path)
    except NoSuchActor:
        pass
