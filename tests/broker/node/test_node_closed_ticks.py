"""Ticks closed on request, and what time synchronisation sees of them."""

import pytest

from actors.testing import run_seeded
from broker.model.failure import Refusal, Refused
from broker.model.ids import PChannelName
from broker.node.appender_messages import CloseTick
from broker.node.node_closed_ticks import LocalClosedTicks
from broker.wal.memory_wal import Fault, MemoryWal
from tests.broker.node.world import (
    DIRECTORY,
    OTHER,
    PCHANNEL,
    Reader,
    World,
    appended,
    message,
    running_node,
)


async def close(world: World) -> object:
    located = await world.locate()
    return await located.appender.ask(CloseTick(), deadline_s=5.0)


def test_a_requested_tick_is_closed_now_and_stored_only_after_data() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            before = await world.offsets()
            began_s = world.clock.monotonic_s()
            tick = await close(world)
            after = await world.offsets()
            assert world.clock.monotonic_s() == began_s, "nobody waited for the interval"
            assert tick == after.closed_tick > before.closed_tick
            assert after.next_id == before.next_id, "an idle pchannel writes nothing"
            (landed,) = appended(await world.append(message("x")))
            second = await close(world)
            assert isinstance(second, int)
            assert second > landed.tick
            reader = Reader(world)
            await reader.read_until(landed.id + 1)
            assert [it.tick for it in reader.ticks if it.persisted][-1] == second

    run_seeded(1, scenario)


def test_an_appender_that_refuses_writes_reports_it() -> None:
    async def scenario() -> None:
        full = False
        wal = MemoryWal(
            fault_of=lambda *_: Fault.LOST if full else None, is_writable=lambda: not full
        )
        async with running_node(wal) as world:
            await world.assign()
            full = True
            await world.append(message("x"))
            assert isinstance(await close(world), Refusal)

    run_seeded(2, scenario)


def test_a_tick_that_cannot_be_closed_is_answered_with_the_last_one() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await world.clock.sleep(1)
            world.oracle.broken = True
            await world.clock.sleep(1)
            assert await close(world) == (await world.offsets()).closed_tick

    run_seeded(3, scenario)


def test_only_channels_that_serve_are_reported() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign(PCHANNEL)
            names = (PCHANNEL, OTHER, PChannelName("nowhere_0"))
            source = LocalClosedTicks(names, lambda: world.system.find(DIRECTORY))
            found = await source.closed_ticks()
            assert found == {PCHANNEL: (await world.offsets()).closed_tick}
            await world.system.stop_child(DIRECTORY)
            with pytest.raises(Refused, match="does not report closed ticks"):
                await source.closed_ticks()

    run_seeded(4, scenario)
