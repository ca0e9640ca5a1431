"""When ticks are closed, stored and announced."""

import asyncio

import anyio
import pytest

from actors.testing import run_seeded
from broker.model.failure import Refusal
from broker.model.ids import MessageId, PChannelName
from broker.node.append.time_tick import READERS_AT_ONCE_MAX, Heartbeat
from broker.node.state.beat_phase import phase_of
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


async def read(world: World) -> None:
    """A reader that waits for more until it is cancelled."""
    await Reader(world).read_until(MessageId(1000))


async def beats_s(world: World, name: PChannelName) -> list[float]:
    """When the closed tick of a pchannel moved, as offsets within the interval."""
    found = set[float]()
    until_s = world.clock.monotonic_s() + 1.0
    before = (await world.offsets(name)).closed_tick
    while world.clock.monotonic_s() < until_s:
        await world.clock.sleep(0.001)
        now = (await world.offsets(name)).closed_tick
        if now != before:
            found.add(round(world.clock.monotonic_s() % 0.2, 2) % 0.2)
        before = now
    return sorted(found)


def test_an_idle_node_closes_all_ticks_at_one_beat_with_one_question_to_the_oracle() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign(PCHANNEL)
            await world.assign(OTHER)
            await world.clock.sleep(1)
            asked = world.oracle.reservations
            one_s, other_s = await asyncio.gather(beats_s(world, PCHANNEL), beats_s(world, OTHER))
            assert one_s == other_s
            assert len(one_s) == 1
            assert 4 <= world.oracle.reservations - asked <= 6, "one for both, five times a second"

    run_seeded(3, scenario)


def test_a_node_with_many_waiting_readers_spreads_its_ticks_over_the_interval() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign(PCHANNEL)
            await world.assign(OTHER)
            assert phase_of(PCHANNEL) != phase_of(OTHER)
            async with asyncio.TaskGroup() as tasks:
                count = READERS_AT_ONCE_MAX + 1
                reading = [tasks.create_task(read(world)) for _ in range(count)]
                await world.clock.sleep(2)
                one_s, other_s = await asyncio.gather(
                    beats_s(world, PCHANNEL), beats_s(world, OTHER)
                )
                assert len(one_s) == len(other_s) == 1
                assert one_s != other_s
                for each in reading:
                    each.cancel()
            await world.clock.sleep(1)
            assert await beats_s(world, PCHANNEL) == await beats_s(world, OTHER)

    run_seeded(3, scenario)


@pytest.mark.parametrize("seed", range(5))
def test_no_pchannel_waits_longer_than_the_interval_when_a_node_becomes_busy_or_idle(
    seed: int,
) -> None:
    async def scenario() -> None:
        names = [PChannelName(f"by-dev-rootcoord-dml_{it}") for it in range(4)]
        async with running_node() as world:
            for name in names:
                await world.assign(name)
            await world.clock.sleep(1)
            moved_s = {name: world.clock.monotonic_s() for name in names}
            newest = {name: (await world.offsets(name)).closed_tick for name in names}

            async def look() -> float:
                """The longest interval that ended now."""
                ended_s = [0.0]
                for name in names:
                    tick = (await world.offsets(name)).closed_tick
                    if tick != newest[name]:
                        now_s, newest[name] = world.clock.monotonic_s(), tick
                        ended_s.append(now_s - moved_s[name])
                        moved_s[name] = now_s
                return max(ended_s)

            async def longest_in(steps: int) -> float:
                found_s = [0.0]
                for _ in range(steps):
                    await world.clock.sleep(0.001)
                    found_s.append(await look())
                return max(found_s)

            assert 0.1 < await longest_in(1030) <= 0.23
            async with anyio.create_task_group() as tasks:
                for _ in range(READERS_AT_ONCE_MAX + 1):
                    tasks.start_soon(read, world)
                assert 0.1 < await longest_in(1570) <= 0.23
                tasks.cancel_scope.cancel()
            assert 0.1 < await longest_in(1500) <= 0.23

    run_seeded(seed, scenario)


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
