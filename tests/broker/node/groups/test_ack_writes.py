"""Acknowledgements while the log takes none: nothing turns in a circle."""

import asyncio
from itertools import pairwise

from actors.testing import run_seeded
from broker.model.channel import AccessMode, PChannel
from broker.model.groups.consumer_group import TickSpan
from broker.model.ids import Term, TimeTick
from broker.node.directory_messages import AssignChannel
from tests.broker.node.groups.test_group_leases import KEY, bodies, create, fill, join
from tests.broker.node.world import PCHANNEL, World, running_node


def handled(world: World) -> int:
    path = world.path(f"groups/{KEY.name}@{KEY.vchannel}")
    return next(it.handled for it in world.system.statistics() if it.path == path)


def stored(world: World) -> int:
    """How many groups of records were written, each with one sync."""
    path = world.path("appender")
    return next(int(it.extra["groups"]) for it in world.system.statistics() if it.path == path)


def test_each_of_many_acknowledgements_takes_one_write_and_waits_for_no_timer() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await create(world)
            count = 20
            ticks = await fill(world, [f"{number}" for number in range(count)])
            ann = await join(world)
            lease = await ann.take()
            assert [lease.span.after < it <= lease.span.upto for it in ticks] == [True] * count
            began_s, written, steps = world.clock.monotonic_s(), stored(world), handled(world)
            for after, upto in pairwise([lease.span.after, *ticks[:-1], lease.span.upto]):
                assert await ann.ack(lease.lease, TickSpan(after, upto)) is None
            assert stored(world) - written == count
            assert world.clock.monotonic_s() == began_s
            # Nobody waits for messages, so the group does nothing else.
            assert handled(world) - steps == count

    run_seeded(1, scenario)


def test_what_a_group_settles_itself_is_not_tried_as_fast_as_it_is_refused() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await create(world)
            await fill(world, ["a"])
            ann = await join(world)
            lease = await ann.take()
            assert await ann.ack(lease.lease) is None
            await world.clock.sleep(3)
            assert await world.remove() is None
            read_only = PChannel(PCHANNEL, Term(2), AccessMode.READ_ONLY)
            assert await world.ask(AssignChannel(read_only)) is None
            # Ticks without messages lie below something that is acknowledged.
            end = (await world.offsets()).closed_tick
            state = (await world.locate()).groups.table.groups[KEY]
            assert state.floor < end - 1
            state.acknowledge([TickSpan(TimeTick(end - 1), end)])
            ann = await join(world)
            async with asyncio.TaskGroup() as tasks:
                taking = tasks.create_task(ann.take())
                for _ in range(2000):
                    await asyncio.sleep(0)
                assert handled(world) < 20
                taking.cancel()
            assert bodies(lease) == ["a"]

    run_seeded(1, scenario)
