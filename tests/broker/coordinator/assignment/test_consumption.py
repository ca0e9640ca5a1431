"""Consumption that is paused for the whole cluster: recorded, told, and learnt by newcomers."""

import pytest

from actors import System
from actors.testing import VirtualClock
from broker.coordinator.assignment.consumption import consumption_paused
from broker.coordinator.assignment.live_nodes import LiveNodes
from broker.coordinator.assignment.messages import PauseConsumers
from broker.meta.memory_store import MemoryMetaStore
from broker.model.failure import Refused
from tests.broker.coordinator.assignment.following import seeded
from tests.broker.coordinator.fakes import ShakyStore
from tests.broker.coordinator.leases.registered import World

CONSUMPTION = "/coordinator/consumption"


async def pause(system: System, *, paused: bool) -> None:
    await system.find(CONSUMPTION).ask(PauseConsumers(paused), deadline_s=5.0)


def test_one_call_reaches_every_node_and_who_comes_later_learns_it_with_the_lease() -> None:
    async def scenario(clock: VirtualClock) -> None:
        world = World(clock, MemoryMetaStore(), count=3)
        async with await world.start(lease_s=60.0) as system:
            leases = [await world.register(system, node) for node in (1, 2)]
            assert not any(lease.consumption_paused for lease in leases)
            world.nodes[1].down = True
            await pause(system, paused=True)
            assert [node.paused for node in world.nodes] == [True, False, False]
            assert (await world.renew(system, 2, leases[1])).consumption_paused
            assert (await world.register(system, 3)).consumption_paused
            world.nodes[1].down = False
            await pause(system, paused=False)
            assert not any(node.paused for node in world.nodes)
            assert not (await world.renew(system, 2, leases[1])).consumption_paused

    seeded(81, scenario)


def test_it_survives_restarts_of_the_actor_and_of_the_coordinator_until_it_is_resumed() -> None:
    async def scenario(clock: VirtualClock) -> None:
        world = World(clock, MemoryMetaStore())
        async with await world.start(lease_s=60.0) as system:
            await pause(system, paused=True)
            system.kill(CONSUMPTION)
            await clock.sleep(1.0)
            assert (await world.register(system, 1)).consumption_paused
        world.live = LiveNodes()
        async with await world.start(lease_s=60.0) as system:
            assert (await world.register(system, 2)).consumption_paused
            await pause(system, paused=False)
        world.live = LiveNodes()
        async with await world.start(lease_s=60.0) as system:
            assert not (await world.register(system, 1)).consumption_paused
        world.live = LiveNodes()
        async with await world.start(lease_s=60.0, pause_consumption=True) as system:
            assert (await world.register(system, 1)).consumption_paused
        assert not await consumption_paused(world.store)

    seeded(82, scenario)


def test_what_cannot_be_recorded_changes_nothing() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = ShakyStore(MemoryMetaStore(), clock)
        world = World(clock, store)
        async with await world.start(lease_s=60.0) as system:
            lease = await world.register(system, 1)
            store.broken = True
            with pytest.raises(Refused, match="disk full"):
                await pause(system, paused=True)
            assert not world.nodes[0].paused
            assert not (await world.renew(system, 1, lease)).consumption_paused
            store.broken = False

    seeded(83, scenario)
