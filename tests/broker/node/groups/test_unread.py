"""A group at the end of the log reads nothing until a message of its vchannel comes."""

import asyncio

from actors.statistics import ActorStatistics
from actors.testing import run_seeded
from broker.model.message import NewMessage
from broker.node.groups.waiting_members import TAKE_S
from tests.broker.node.groups.test_group_leases import (
    BEGIN,
    KEY,
    Worker,
    bodies,
    create,
    fill,
    join,
)
from tests.broker.node.world import PCHANNEL, World, appended, message, running_node


def running(world: World) -> list[ActorStatistics]:
    """The Group and its Scanner."""
    return [it for it in world.system.statistics() if f"/{KEY.name}@" in it.path]


def handled(world: World) -> list[int]:
    """How many messages each of them has handled."""
    return [it.handled for it in running(world)]


def scanned_to(world: World) -> int:
    """Up to which id the Scanner was asked to read; it holds the log from there."""
    (found,) = [it for it in running(world) if "/scanners/" in it.path]
    return int(found.extra["next_id"])


async def waiting_member(world: World) -> Worker:
    """Of a group that has read and acknowledged everything."""
    await world.assign()
    await create(world)
    await fill(world, ["a"])
    ann = await join(world)
    lease = await ann.take()
    assert await ann.ack(lease.lease) is None
    return ann


async def fill_another(world: World, count: int) -> None:
    for _ in range(count):
        appended(await world.append(NewMessage(f"{PCHANNEL}_8v0", 2, b"other", 5)))


def test_a_group_that_has_read_all_does_nothing_with_each_tick_nor_for_other_vchannels() -> None:
    async def scenario() -> None:
        async with running_node() as world, asyncio.TaskGroup() as tasks:
            ann = await waiting_member(world)
            taking = tasks.create_task(ann.take())
            await world.clock.sleep(1)
            before = handled(world)
            await world.clock.sleep(2)
            await fill_another(world, 100)
            assert handled(world) == before
            await fill(world, ["b", "c"])
            came = bodies(await taking)
            if came == ["b"]:  # it was there first
                came += bodies(await ann.take())
            assert came == ["b", "c"]

    run_seeded(1, scenario)


def test_what_comes_while_a_group_looks_for_more_is_not_missed() -> None:
    async def scenario() -> None:
        async with running_node() as world, asyncio.TaskGroup() as tasks:
            ann = await waiting_member(world)
            for number in range(50):
                taking = tasks.create_task(ann.take())
                await world.clock.sleep(number * 0.01)
                await fill_another(world, 1)
                await fill(world, [str(number)])
                lease = await taking
                assert bodies(lease) == [str(number)]
                assert await ann.ack(lease.lease) is None

    for seed in range(5):
        run_seeded(seed, scenario)


def test_a_group_that_waits_lets_go_of_what_came_for_others() -> None:
    async def scenario() -> None:
        async with running_node() as world, asyncio.TaskGroup() as tasks:
            ann = await waiting_member(world)
            taking = tasks.create_task(ann.take())
            await fill_another(world, 100)
            assert scanned_to(world) < 100
            await world.clock.sleep(TAKE_S + 1)
            assert bodies(await taking) == []
            taking = tasks.create_task(ann.take())
            await world.clock.sleep(1)
            assert scanned_to(world) > 100
            await fill(world, ["b"])
            assert bodies(await taking) == ["b"]

    run_seeded(1, scenario)


def test_a_transaction_that_is_open_where_a_group_waits_is_delivered_at_its_commit() -> None:
    async def scenario() -> None:
        async with running_node() as world, asyncio.TaskGroup() as tasks:
            ann = await waiting_member(world)
            (begun,) = await world.append(message("begin", 0, 900, txn=BEGIN))
            txn = begun.txn  # type: ignore[union-attr]
            appended(await world.append(message("x", txn=txn)))
            taking = tasks.create_task(ann.take())
            await world.clock.sleep(0.5)
            await fill_another(world, 50)
            await world.clock.sleep(0.5)
            appended(await world.append(message("y", txn=txn), message("commit", 0, 901, txn=txn)))
            assert bodies(await taking)[1:3] == ["x", "y"]

    run_seeded(1, scenario)
