"""What the allocator holds without use is returned to the system, but not under load."""

from actors.testing import run_seeded
from broker.node.state.node_limits import NodeLimits
from tests.broker.node.world import running_node

LIMITS = NodeLimits(memory_look_s=5.0)


def test_memory_that_stays_unused_is_returned_once() -> None:
    async def scenario() -> None:
        async with running_node(limits=LIMITS) as world:
            await world.clock.sleep(7)
            world.memory.unused = 100 << 20
            await world.clock.sleep(5)
            assert world.memory.trims == 0, "it may be used again at once"
            await world.clock.sleep(60)
            assert world.memory.trims == 1
            world.memory.unused = 10 << 20
            await world.clock.sleep(10)
            world.memory.unused = 90 << 20
            await world.clock.sleep(60)
            assert world.memory.trims == 2, "it was used, and is unused again"

    run_seeded(1, scenario)


def test_memory_that_is_used_again_and_a_little_of_it_are_kept() -> None:
    async def scenario() -> None:
        async with running_node(limits=LIMITS) as world:
            await world.clock.sleep(7)
            for unused in (100 << 20, 1 << 20) * 5:
                world.memory.unused = unused
                await world.clock.sleep(5)
            world.memory.unused = 10 << 20
            await world.clock.sleep(30)
            assert world.memory.trims == 0

    run_seeded(2, scenario)
