"""Consumption that is paused for the whole cluster: recorded, told, and learnt by newcomers."""

import pytest

from actors import System
from actors.testing import VirtualClock
from broker.coordinator.assignment.consumption import consumption_paused
from broker.coordinator.assignment.live_nodes import LiveNodes
from broker.coordinator.assignment.messages import PauseConsumers
from broker.coordinator.records import PAUSE_KEY
from broker.meta.memory_store import MemoryMetaStore
from broker.model.failure import Refused, StreamingCode
from tests.broker.coordinator.assignment.following import seeded
from tests.broker.coordinator.fakes import LosingStore, ShakyStore
from tests.broker.coordinator.leases.registered import World

CONSUMPTION = "/coordinator/consumption"


async def pause(system: System, *, paused: bool) -> None:
    await system.find(CONSUMPTION).ask(PauseConsumers(paused), deadline_s=5.0)


async def unconfirmed(system: System, *, paused: bool) -> None:
    with pytest.raises(Refused, match=f"{'pause' if paused else 'resume'} again") as caught:
        await pause(system, paused=paused)
    assert caught.value.refusal.code is StreamingCode.UNKNOWN


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


@pytest.mark.parametrize("applies", [True, False])
def test_a_pause_whose_answer_was_lost_is_in_force_as_it_is_recorded(applies: bool) -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = LosingStore(MemoryMetaStore())
        world = World(clock, store)
        async with await world.start(lease_s=60.0) as system:
            lease = await world.register(system, 1)
            store.loses, store.applies = PAUSE_KEY, applies
            await unconfirmed(system, paused=True)
            await clock.sleep(0.1)
            assert world.nodes[0].paused is applies
            assert (await world.renew(system, 1, lease)).consumption_paused is applies
            # The Registrar stands behind this actor: it would have another term, too.
            assert {row.term for row in system.statistics()} == {1}
        world.live = LiveNodes()
        async with await world.start(lease_s=60.0) as system:
            assert (await world.register(system, 2)).consumption_paused is applies

    seeded(84, scenario)


@pytest.mark.parametrize("applies", [True, False])
@pytest.mark.parametrize("silent", [True, False])
@pytest.mark.parametrize("killed", [True, False])
def test_a_pause_that_cannot_be_read_at_once_is_in_force_when_the_store_answers_again(
    applies: bool, silent: bool, killed: bool
) -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = LosingStore(MemoryMetaStore(), clock)
        world = World(clock, store)
        async with await world.start(lease_s=1e6) as system:
            lease = await world.register(system, 1)
            store.loses, store.applies = PAUSE_KEY, applies
            store.breaks, store.hangs = not silent, silent
            await unconfirmed(system, paused=True)
            await clock.sleep(30.0)
            if killed:
                system.kill(CONSUMPTION)
                await clock.sleep(30.0)
            assert not world.nodes[0].paused
            store.broken, store.delay_s = False, 0.0
            await clock.sleep(11.0)
            assert world.nodes[0].paused is applies
            assert (await world.renew(system, 1, lease)).consumption_paused is applies
            # A later change is not undone by a late read.
            await pause(system, paused=not applies)
            await clock.sleep(30.0)
            assert world.nodes[0].paused is not applies

    seeded(85, scenario)


@pytest.mark.parametrize("applies", [True, False])
def test_a_resume_that_was_lost_ends_a_pause_from_the_start_only_if_it_was_recorded(
    applies: bool,
) -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = LosingStore(MemoryMetaStore())
        world = World(clock, store)
        async with await world.start(lease_s=60.0, pause_consumption=True) as system:
            store.loses, store.applies = PAUSE_KEY, applies
            await unconfirmed(system, paused=False)
            await clock.sleep(0.1)
            assert (await world.register(system, 1)).consumption_paused is not applies
            system.kill(CONSUMPTION)
            await clock.sleep(1.0)
            assert (await world.register(system, 2)).consumption_paused is not applies

    seeded(86, scenario)
