"""When ticks are closed, stored and announced."""

import asyncio

from actors.testing import run_seeded
from broker.model.failure import Refusal
from broker.model.ids import PChannelName
from broker.node.append.time_tick import Heartbeat
from broker.node.state.node_limits import NodeLimits
from tests.broker.node.world import OTHER, PCHANNEL, Reader, World, message, running_node


def test_a_tick_is_stored_only_after_data_and_at_most_once_an_interval() -> None:
    async def scenario() -> None:
        async with running_node(limits=NodeLimits(tick_interval_s=0.2)) as world:
            await world.assign()
            await world.clock.sleep(10)
            assert (await world.offsets()).next_id == 2, "an idle pchannel writes nothing"
            for _ in range(100):
                await world.append(message("x"))
                await world.clock.sleep(0.02)
            await world.clock.sleep(5)
            reader = Reader(world)
            await reader.read_until((await world.offsets()).next_id - 1)
            stored = [tick for tick in reader.ticks if tick.persisted]
            assert 10 <= len(stored) <= 13
            assert len(reader.messages) == 100

    run_seeded(1, scenario)


def test_the_closed_tick_advances_on_an_idle_channel() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await world.clock.sleep(1)
            before = (await world.offsets()).closed_tick
            await world.clock.sleep(1)
            after = (await world.offsets()).closed_tick
            assert 700 <= (after >> 18) - (before >> 18) <= 1300

    run_seeded(2, scenario)


async def next_beat_s(world: World, name: PChannelName) -> float:
    """When the pchannel's closed tick moves next."""
    before = (await world.offsets(name)).closed_tick
    while (await world.offsets(name)).closed_tick == before:
        await world.clock.sleep(0.001)
    return world.clock.monotonic_s()


def test_heartbeats_of_pchannels_are_spread_over_the_interval() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign(PCHANNEL)
            await world.assign(OTHER)
            await world.clock.sleep(1)
            one_s, other_s = await asyncio.gather(
                next_beat_s(world, PCHANNEL), next_beat_s(world, OTHER)
            )
            assert abs(one_s - other_s) > 0.005

    run_seeded(3, scenario)


def test_a_heartbeat_without_an_open_channel_or_for_a_dead_appender_does_nothing() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            beat = world.system.find(world.path("time_tick"))
            opened = world.node.open_channels.find(PCHANNEL)
            assert opened is not None
            world.node.open_channels.withdraw(PCHANNEL, opened.channel.term)
            beat.tell(Heartbeat())
            await world.clock.sleep(0.5)
            world.system.kill(world.path("appender"))
            world.node.open_channels.publish(opened)
            beat.tell(Heartbeat())
            await world.clock.sleep(1)
            assert not isinstance((await world.append(message("x")))[0], Refusal)

    run_seeded(4, scenario)
