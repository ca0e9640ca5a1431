"""The start of a cluster: the first node that comes does not get everything."""

from actors.testing import VirtualClock
from broker.coordinator.assignment.live_nodes import LiveNodes
from broker.coordinator.assignment.reconciler_timing import ReconcilerTiming
from broker.core.cluster.balance import BalanceRules
from broker.core.cluster.node_leases import StartupGrace
from broker.meta.memory_store import MemoryMetaStore
from broker.model.ids import NodeId
from tests.broker.coordinator.assignment.following import (
    all_assigned,
    follow_until,
    seeded,
    terms_in,
)
from tests.broker.coordinator.fakes import NAMES
from tests.broker.coordinator.leases.registered import LEASE_S, World

GRACE = StartupGrace(grace_s=2.0)


def shares(world: World) -> list[int]:
    return [len(node.served) for node in world.nodes]


def test_a_node_that_comes_shortly_after_the_first_gets_its_share_from_the_start() -> None:
    async def scenario(clock: VirtualClock) -> None:
        world = World(clock, MemoryMetaStore())
        async with await world.start(startup_grace=GRACE, lease_s=60.0) as system:
            await clock.sleep(30.0)
            await world.register(system, 1)
            await clock.sleep(1.5)
            assert shares(world) == [0, 0]
            await world.register(system, 2)
            table = await follow_until(system, all_assigned)
            assert shares(world) == [2, 2]
            assert terms_in(table) == dict.fromkeys(NAMES, 2)
            assert clock.monotonic_s() < 30.0 + GRACE.grace_s + 0.5

    seeded(71, scenario)


def test_a_single_node_gets_everything_when_the_grace_is_over() -> None:
    async def scenario(clock: VirtualClock) -> None:
        world = World(clock, MemoryMetaStore())
        async with await world.start(startup_grace=GRACE, lease_s=60.0) as system:
            await world.register(system, 1)
            await follow_until(system, all_assigned)
            assert 2.0 <= clock.monotonic_s() < 2.5

    seeded(72, scenario)


def test_as_many_as_are_expected_are_waited_for_a_minute() -> None:
    async def scenario(clock: VirtualClock) -> None:
        world = World(clock, MemoryMetaStore())
        async with await world.start(
            startup_grace=StartupGrace(expected=2), lease_s=99.0
        ) as system:
            await world.register(system, 1)
            await clock.sleep(59.0)
            assert shares(world) == [0, 0]
            await follow_until(system, all_assigned)
            assert 60.0 <= clock.monotonic_s() < 61.0

    seeded(73, scenario)


def test_a_cluster_that_starts_again_waits_for_those_who_owned_channels_and_no_longer() -> None:
    async def scenario(clock: VirtualClock) -> None:
        world = World(clock, MemoryMetaStore())
        async with await world.start(startup_grace=GRACE, lease_s=60.0) as system:
            await world.register(system, 1)
            await world.register(system, 2)
            before = await follow_until(system, all_assigned)
        await world.store.write({}, deletes=["node/1", "node/2"])
        world.live = LiveNodes()
        for node in world.nodes:
            node.served.clear()
        async with await world.start(startup_grace=GRACE, lease_s=60.0) as system:
            await world.register(system, 1)
            await clock.sleep(1.0)
            assert shares(world) == [0, 0]
            await world.register(system, 2)
            began_s = clock.monotonic_s()
            after = await follow_until(system, all_assigned)
            assert clock.monotonic_s() < began_s + 0.5
            homes = [{it.name for it in row.channels} for row in before.nodes]
            assert [{it.name for it in row.channels} for row in after.nodes] == homes

    seeded(74, scenario)


def test_when_only_the_coordinator_starts_again_a_lost_nodes_channels_do_not_wait() -> None:
    async def scenario(clock: VirtualClock) -> None:
        world = World(clock, MemoryMetaStore())
        slow = StartupGrace(grace_s=50.0)
        async with await world.start(startup_grace=GRACE, lease_s=60.0) as system:
            await world.register(system, 1)
            await world.register(system, 2)
            await follow_until(system, all_assigned)
        await world.store.write({}, deletes=["node/2"])
        world.live = LiveNodes()
        async with await world.start(startup_grace=slow, lease_s=60.0) as system:
            began_s = clock.monotonic_s()
            await follow_until(system, all_assigned)
            assert clock.monotonic_s() < began_s + 6.0
            assert shares(world)[0] == len(NAMES)

    seeded(75, scenario)


def test_an_owner_that_vanished_has_its_grace_to_come_back() -> None:
    async def scenario(clock: VirtualClock) -> None:
        world = World(clock, MemoryMetaStore())
        timing = ReconcilerTiming(node_lost_grace_s=30.0)
        async with await world.start(
            timing=timing, rules=BalanceRules(allow_rebalance=False)
        ) as system:
            lease = await world.register(system, 1)
            before = await follow_until(system, all_assigned)
            other = await world.register(system, 2)
            lost_s = clock.monotonic_s() + LEASE_S
            await world.keep(system, 2, other, lost_s + 20.0)
            assert world.nodes[1].served == {}
            world.nodes[0].served.clear()
            assert (await world.register(system, 1, pid=7)).session > lease.session
            after = await follow_until(
                system, lambda it: all_assigned(it) and it.version > before.version
            )
            assert clock.monotonic_s() < lost_s + 22.0
            assert len(after.nodes[0].channels) >= 2, "the best place for them is the node itself"
            lost_s = clock.monotonic_s() + LEASE_S
            await world.keep(system, 2, other, lost_s + 40.0)
            assert len(world.nodes[1].served) == len(NAMES)
            assert world.live.find(NodeId(1)) is None

    seeded(76, scenario)
