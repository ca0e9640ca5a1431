"""The process stays within its limit: freed memory is returned, and the tails get their share."""

from actors.testing import run_seeded
from broker.core.log.resident_memory import FREED_BYTES_MAX, OTHER_BYTES
from broker.node.state.node_limits import NodeLimits
from tests.broker.node.world import World, message, running_node

MIB = 1 << 20
TAILS = 64 * MIB
LIMITS = NodeLimits(memory_look_s=2.0, tail_total_bytes_max=TAILS)


async def next_look(world: World) -> None:
    seen = world.memory.used_asked
    while world.memory.used_asked == seen:
        await world.clock.sleep(0.1)


def test_freed_memory_that_stays_free_is_returned_once() -> None:
    async def scenario() -> None:
        async with running_node(limits=LIMITS) as world:
            world.memory.process, world.memory.used = 60 * MIB, 20 * MIB
            await world.clock.sleep(3)
            world.memory.freed = 50 * MIB
            await world.clock.sleep(3)
            assert world.memory.trims == 0, "it may be used again at once"
            await world.clock.sleep(60)
            assert world.memory.trims == 1
            world.memory.freed = 50 * MIB
            await world.clock.sleep(60)
            assert world.memory.trims == 2, "it was used, and is free again"

    run_seeded(1, scenario)


def test_freed_memory_that_is_used_again_and_a_little_of_it_are_kept() -> None:
    async def scenario() -> None:
        async with running_node(limits=LIMITS) as world:
            world.memory.process, world.memory.used = 60 * MIB, 20 * MIB
            await world.clock.sleep(3)
            for freed in (50 * MIB, MIB) * 5:
                world.memory.freed = freed
                await world.clock.sleep(2)
            world.memory.freed = 10 * MIB
            await world.clock.sleep(30)
            assert world.memory.trims == 0

    run_seeded(2, scenario)


def test_the_tails_get_less_while_the_rest_of_the_process_takes_much() -> None:
    async def scenario() -> None:
        async with running_node(limits=LIMITS) as world:
            tails = world.node.open_channels.memory
            await world.assign()
            for _ in range(60):
                await world.append(message("x" * MIB))
            held = tails.size_bytes
            assert held > 60 * MIB
            others = OTHER_BYTES - FREED_BYTES_MAX + 20 * MIB
            world.memory.process, world.memory.used = others + held, held + 20 * MIB
            await next_look(world)
            assert abs(tails.bytes_max - (TAILS - 20 * MIB)) < 10_000, "ticks were stored meanwhile"
            assert 40 * MIB < tails.size_bytes <= tails.bytes_max
            others = OTHER_BYTES - FREED_BYTES_MAX
            world.memory.process = others + tails.size_bytes
            await next_look(world)
            assert tails.bytes_max == TAILS

    run_seeded(3, scenario)
