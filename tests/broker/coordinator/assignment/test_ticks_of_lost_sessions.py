"""As `test_handed_over_ticks`, where nodes have leases: networks break, and records stay.

No report of a node arrives, so the coordinator knows only what it asks.
"""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import anyio
import pytest

from actors import ActorError, ChildSpec, Request, System
from actors.clock import deadline
from actors.testing import VirtualClock
from broker.app.settings_in_force import SettingsInForce
from broker.coordinator.assignment.founding import found_cluster
from broker.coordinator.assignment.live_nodes import LiveNodes
from broker.coordinator.leases.messages import LeaveCluster, RegisterNode, RenewLease
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.ids import NodeId
from broker.model.message import NewMessage
from broker.node.append.intake import append
from broker.node.appender_messages import CloseTick
from broker.node.control import LocalNode
from broker.node.directory_messages import Locate
from broker.node.membership.cluster_join import ClusterJoin
from broker.node.membership.leased import Leased
from broker.node.membership.membership import Membership
from broker.ports.nodes import NodeControl, NodeLease
from broker.ports.ticks import TickSource
from broker.process_settings import Settings
from tests.broker.coordinator.assignment.asking_hosts import AskedTicks, StandingClock
from tests.broker.coordinator.assignment.following import follow_until, seeded, terms_in
from tests.broker.coordinator.assignment.two_hosts import (
    NAME,
    RECONCILER,
    VICTIMS,
    Cluster,
    Host,
    begin,
    cluster,
    kill,
)
from tests.broker.coordinator.fakes import ShakyStore, run_coordinator
from tests.broker.coordinator.leases.registered import LEASE_S, REGISTRAR
from tests.broker.node.world import DIRECTORY, OracleFake

MEMBERSHIP = "/root/membership"
R = TypeVar("R")


@dataclass
class Network:
    """Between a node and whichever coordinator runs; `cut`: nothing arrives."""

    host: Host
    cluster_id: str
    clock: VirtualClock
    coordinator: System | None = None
    cut: bool = False
    absent: Callable[[], None] = field(default=lambda: None)
    """Has the coordinator find that nothing listens at the node's address."""

    async def pass_on(self, limit_s: float) -> None:
        """Return unless it is cut: then raise Refused when nobody waits any more."""
        if self.cut:
            await self.clock.sleep(limit_s)
            raise Refused(StreamingCode.INNER, "no answer")


class DistantNode(LocalNode):
    """As the coordinator reaches it: a call ends when the node is dropped."""

    def __init__(self, network: Network) -> None:
        find, node = network.host.system.find, network.host.node.node_id
        super().__init__(node, f"host-{node}:1", lambda: find(DIRECTORY))
        self._network = network
        self._released = anyio.Event()

    def release(self) -> None:
        self._released.set()

    async def _ask(self, request: Request[R | Refusal], deadline_s: float) -> R:
        answers: list[R] = []
        refused = Refused(StreamingCode.INNER, "the node was dropped")
        async with anyio.create_task_group() as calls:
            calls.start_soon(self._end_when_released, calls.cancel_scope)
            try:
                await self._network.pass_on(deadline_s)
                answers.append(await super()._ask(request, deadline_s))
                await self._network.pass_on(deadline_s)
            except Refused as error:
                answers, refused = [], error
            calls.cancel_scope.cancel()
        if not answers:
            raise refused
        return answers[0]

    async def _end_when_released(self, calls: anyio.CancelScope) -> None:
        await self._released.wait()
        calls.cancel()


class Enrolment:
    """A `NodeRegistration` over a network."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._node = network.host.node.node_id

    async def register(self, deadline_s: float, settings_revision: int) -> NodeLease:
        node, cluster_id = self._node, self._network.cluster_id
        return await self._ask(
            RegisterNode(node, f"host-{node}:1", 100 + node, "first", cluster_id), deadline_s
        )

    async def renew(
        self, session: int, deadline_s: float, settings_revision: int, *, stopping: bool
    ) -> NodeLease:
        return await self._ask(RenewLease(self._node, session, stopping), deadline_s)

    async def leave(self, session: int, deadline_s: float) -> None:
        await self._ask(LeaveCluster(self._node, session), deadline_s)

    async def _ask(self, message: Request[R], deadline_s: float) -> R:
        network = self._network
        await network.pass_on(deadline_s)
        try:
            if network.coordinator is None:
                raise Refused(StreamingCode.INNER, "no coordinator runs")
            answer = await network.coordinator.find(REGISTRAR).ask(message, deadline_s=deadline_s)
        except ActorError as error:
            raise Refused(StreamingCode.INNER, str(error)) from error
        await network.pass_on(deadline_s)
        return answer


async def enrol(network: Network) -> None:
    host = network.host
    leased = Leased(host.node.write_lease, host.node.pause, SettingsInForce(Settings()))

    def membership() -> Membership:
        find = host.system.find
        join = ClusterJoin(LEASE_S, 20.0)
        return Membership(
            host.node.node_id, Enrolment(network), leased, join, lambda: find(DIRECTORY)
        )

    await host.system.start_child("/root", ChildSpec("membership", membership))


@asynccontextmanager
async def coordinator(
    world: Cluster, store: ShakyStore, networks: list[Network]
) -> AsyncIterator[System]:
    """One that has just started, so that it knows what the store has."""
    world.live = LiveNodes()

    def connect(node: NodeId, _address: str, absent: Callable[[], None]) -> NodeControl:
        networks[node - 1].absent = absent
        return DistantNode(networks[node - 1])

    async with run_coordinator(
        store,
        [],
        world.clock,
        pchannels=(NAME,),
        live=world.live,
        connect=connect,
        lease_s=LEASE_S,
    ) as system:
        for network in networks:
            network.coordinator = system
        yield system
        for network in networks:
            network.coordinator = None


async def strike(
    world: Cluster,
    chance: random.Random,
    system: System,
    store: ShakyStore,
    networks: list[Network],
) -> None:
    await world.pass_time(chance.uniform(0.0, 2.0))
    for host in world.hosts:
        if chance.random() < 0.3:
            await host.say(begin())
        if chance.random() < 0.5:
            await host.say(NewMessage(f"{NAME}_7v0", 2, b"row", 3))
    if chance.random() < 0.5:
        chance.choice(networks).cut = True
    if chance.random() < 0.5:
        world.drain(chance.choice(world.hosts), system)
    store.deletes = chance.random() < 0.7
    await world.pass_time(chance.choice((0.0, 0.02, 0.1, 0.5, 1.2)) * LEASE_S)
    for network in networks:
        network.cut = network.cut and chance.random() < 0.3
    if chance.random() < 0.5:
        kill(chance.choice(world.hosts).system, chance.choice((*VICTIMS, MEMBERSHIP)))
    for path in (RECONCILER, REGISTRAR):
        if chance.random() < 0.3:
            kill(system, path)


@pytest.mark.parametrize("seed", range(12))
def test_no_tick_is_closed_twice_and_all_is_served_when_the_network_is_back(seed: int) -> None:
    async def scenario(clock: VirtualClock) -> None:
        chance = random.Random(seed)
        async with cluster(clock, seed) as world:
            identity = (await found_cluster(world.store, (NAME,))).identity
            store = ShakyStore(world.store, clock)
            networks = [Network(host, identity, clock) for host in world.hosts]
            for network in networks:
                await enrol(network)
            for _ in range(5):
                async with coordinator(world, store, networks) as system:
                    for _ in range(4):
                        await strike(world, chance, system, store, networks)
            store.deletes = True
            for network in networks:
                network.cut = False
            async with coordinator(world, store, networks) as system:
                await follow_until(system, lambda table: bool(terms_in(table)))
                with deadline(clock, 30.0) as limit:
                    await world.pass_time(6.0)
                    while not any(it.serving for it in world.hosts):
                        await world.pass_time(0.5)
                assert not limit.cancelled_caught, "nobody serves the channel"
                assert await world.broken_promises() == []

    seeded(seed, scenario)


@asynccontextmanager
async def asking(
    clock: VirtualClock, seed: int, clocks: tuple[VirtualClock, VirtualClock]
) -> AsyncIterator[tuple[Cluster, list[Network], Host]]:
    """Two nodes that ask the coordinator for ticks, and the one of them that serves the channel."""
    sources: list[AskedTicks] = []

    def source(node: NodeId, oracle: OracleFake) -> TickSource:
        sources.append(AskedTicks(node, oracle))
        return sources[-1]

    async with cluster(clock, seed, source, clocks) as world:
        for each in sources:
            each.world = world
        identity = (await found_cluster(world.store, (NAME,))).identity
        networks = [Network(host, identity, clock) for host in world.hosts]
        for network in networks:
            await enrol(network)
        async with coordinator(world, ShakyStore(world.store, clock), networks) as system:
            await follow_until(system, lambda table: bool(terms_in(table)))
            await world.pass_time(0.5)
            yield world, networks, next(it for it in world.hosts if it.serving)


async def until_other_than(former: Host, world: Cluster) -> None:
    """Until another host serves, too."""
    other = next(it for it in world.hosts if it is not former)
    for _ in range(5000):
        if other.serving:
            return
        await world.pass_time(0.001)
    raise AssertionError("nobody else took the channel over")


async def speak_beside_the_new_owner(former: Host, world: Cluster, clock: VirtualClock) -> None:
    """Nothing comes of it, although the lease holds by the clock of the former owner."""
    serving, lease = former.serving, former.node.write_lease
    assert serving is not None
    session, before = lease.session, serving.tail.closed.tick
    await world.pass_time(0.02)  # the ticks that its node has reserved are too old after that
    assert lease.holds(session, clock.monotonic_s()), "its lease is over: this shows nothing"
    await serving.appender.ask(CloseTick(), deadline_s=1.0)
    assert serving.tail.closed.tick == before
    located = await former.system.find(DIRECTORY).ask(Locate(NAME, None), deadline_s=1.0)
    assert not isinstance(located, Refusal)
    (outcome,) = await append(located, (begin(),), deadline_s=1.0)
    assert isinstance(outcome, Refusal)
    assert outcome.code is StreamingCode.ON_SHUTDOWN, "its clients look for the new owner"
    await world.pass_time(3 * LEASE_S)
    assert lease.session > session, "it has joined again"
    assert lease.holds(lease.session, clock.monotonic_s())
    assert await world.broken_promises() == []


@pytest.mark.parametrize("seed", range(4))
def test_a_node_that_only_seems_gone_closes_no_tick_beside_the_new_owner(seed: int) -> None:
    """Nothing listens at its address, as a firewall may say, too; its heartbeats pass."""

    async def scenario(clock: VirtualClock) -> None:
        async with asking(clock, seed, (clock, clock)) as (world, networks, former):
            networks[former.node.node_id - 1].absent()
            await until_other_than(former, world)
            await speak_beside_the_new_owner(former, world, clock)

    seeded(seed, scenario)


@pytest.mark.parametrize("seed", range(4))
def test_a_node_whose_clock_stood_still_closes_no_tick_beside_the_new_owner(seed: int) -> None:
    """A machine was paused for two leases; by its own clock no time has passed."""

    async def scenario(clock: VirtualClock) -> None:
        clocks = StandingClock(), StandingClock()
        async with asking(clock, seed, clocks) as (world, networks, former):
            number = former.node.node_id - 1
            networks[number].cut = True
            clocks[number].stand()
            await world.pass_time(2 * LEASE_S)
            await until_other_than(former, world)
            networks[number].cut = False
            clocks[number].go_on()
            await speak_beside_the_new_owner(former, world, clocks[number])

    seeded(seed, scenario)
