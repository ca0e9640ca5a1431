"""Changes of groups that are stored after the caller stopped waiting: the table has them, too."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from actors import ActorError, Request
from actors.testing import run_seeded
from broker.core.groups.group_rules import LEASE_MS
from broker.core.groups.schedule_name import SCHEDULE
from broker.model.failure import Refusal, StreamingCode
from broker.model.groups.consumer_group import DeliveryLimit, GroupKey, GroupSnapshot
from broker.model.ids import TimeTick
from broker.node.group_messages import (
    AckMessages,
    AlterGroup,
    CreateGroup,
    DropGroup,
    OpenGroup,
    OpenSchedule,
    SeekGroup,
)
from broker.node.groups.group_writer import WRITE_S
from broker.wal.memory_wal import MemoryWal
from tests.broker.node.groups.test_group_leases import (
    KEY,
    VCHANNEL,
    bodies,
    create,
    fill,
    join,
    keeper,
    shown,
)
from tests.broker.node.world import World, running_node

CREATE = CreateGroup(KEY, LEASE_MS, TimeTick(0), exist_ok=False)
LONG_S = 4 * WRITE_S
SCHEDULE_KEY = GroupKey(VCHANNEL, SCHEDULE)


class Disk:
    """Syncs at once, or only when it is told to go on."""

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    async def sync(self) -> None:
        await self.goes_on.wait()


@asynccontextmanager
async def node_with(disk: Disk) -> AsyncIterator[World]:
    async with running_node(MemoryWal(pause=disk.sync)) as world:
        await world.assign()
        yield world


async def ask(world: World, request: Request[object]) -> object:
    return await (await keeper(world)).ask(request, deadline_s=LONG_S)


async def told_unknown(world: World, request: Request[object]) -> None:
    """Ask for a change that is not stored in time."""
    refusal = await ask(world, request)
    assert isinstance(refusal, Refusal), refusal
    assert refusal.code is StreamingCode.UNKNOWN
    assert repr(KEY.name) in refusal.cause or repr(SCHEDULE) in refusal.cause


async def goes_on(world: World, disk: Disk) -> None:
    disk.goes_on.set()
    await world.clock.sleep(3)


async def table(world: World) -> dict[GroupKey, GroupSnapshot]:
    groups = (await world.locate()).groups.table.groups
    return {key: state.snapshot() for key, state in groups.items()}


async def same_after_a_replay(world: World) -> None:
    """What the table says is what the log says."""
    before = await table(world)
    term = (await world.locate()).channel.term
    assert await world.remove(term=term) is None
    assert await world.assign(term=term + 1) is None
    assert await table(world) == before


def test_a_drop_that_is_stored_late_ends_the_group() -> None:
    async def scenario() -> None:
        disk = Disk()
        async with node_with(disk) as world:
            await create(world)
            disk.goes_on.clear()
            await told_unknown(world, DropGroup(KEY))
            await goes_on(world, disk)
            assert await table(world) == {}
            gone = await ask(world, OpenGroup(KEY))
            assert isinstance(gone, Refusal)
            assert gone.code is StreamingCode.UNRECOVERABLE
            await create(world)
            await same_after_a_replay(world)

    run_seeded(1, scenario)


def test_until_it_is_known_what_became_of_a_change_nobody_joins_and_nothing_else_changes() -> None:
    async def scenario() -> None:
        disk = Disk()
        async with node_with(disk) as world:
            await create(world)
            disk.goes_on.clear()
            await told_unknown(world, SeekGroup(KEY, TimeTick(0)))
            limit = AlterGroup(KEY, LEASE_MS, None)
            for request in (OpenGroup(KEY), DropGroup(KEY), SeekGroup(KEY, None), CREATE, limit):
                refusal = await ask(world, request)
                assert isinstance(refusal, Refusal)
                assert refusal.code is StreamingCode.INNER
                assert "still being written" in refusal.cause
            await goes_on(world, disk)
            assert not isinstance(await ask(world, OpenGroup(KEY)), Refusal)

    run_seeded(1, scenario)


@pytest.mark.parametrize("seed", range(5))
def test_members_go_on_where_a_seek_that_was_stored_late_has_set_the_group(seed: int) -> None:
    async def scenario() -> None:
        disk = Disk()
        async with node_with(disk) as world:
            await create(world)
            await fill(world, ["a", "b"])
            ann = await join(world)
            lease = await ann.take()
            assert bodies(lease) == ["a", "b"]
            assert await ann.ack(lease.lease) is None
            ann.leave()
            disk.goes_on.clear()
            await told_unknown(world, SeekGroup(KEY, TimeTick(0)))
            await goes_on(world, disk)
            bob = await join(world, "bob")
            again = await bob.take()
            assert bodies(again) == ["a", "b"]
            assert await bob.ack(again.lease) is None
            bob.leave()
            await same_after_a_replay(world)

    run_seeded(seed, scenario)


def test_a_group_that_is_made_late_is_there_once() -> None:
    async def scenario() -> None:
        disk = Disk()
        async with node_with(disk) as world:
            disk.goes_on.clear()
            await told_unknown(world, CREATE)
            await goes_on(world, disk)
            twice = await ask(world, CREATE)
            assert isinstance(twice, Refusal)
            assert twice.code is StreamingCode.IGNORED_OPERATION
            await same_after_a_replay(world)

    run_seeded(1, scenario)


def test_a_limit_that_is_stored_late_holds() -> None:
    async def scenario() -> None:
        disk, limit = Disk(), DeliveryLimit(3, VCHANNEL, "c")
        async with node_with(disk) as world:
            await create(world)
            disk.goes_on.clear()
            await told_unknown(world, AlterGroup(KEY, 5000, limit))
            await goes_on(world, disk)
            group = (await shown(world)).group
            assert (group.lease_ms, group.limit) == (5000, limit)

    run_seeded(1, scenario)


@pytest.mark.parametrize("seed", range(5))
def test_a_change_is_in_the_table_though_its_keeper_died_meanwhile(seed: int) -> None:
    async def scenario() -> None:
        disk = Disk()
        async with node_with(disk) as world:
            await create(world)
            disk.goes_on.clear()
            door = await keeper(world)
            asked = door.ask(DropGroup(KEY), deadline_s=LONG_S)
            dropping = asyncio.get_running_loop().create_task(asked)
            await world.clock.sleep(1)
            world.system.kill(world.path("group_keeper"))
            with pytest.raises(ActorError):
                await dropping
            await world.clock.sleep(1)
            refusal = await ask(world, OpenGroup(KEY))
            assert isinstance(refusal, Refusal)
            assert refusal.code is StreamingCode.INNER
            await goes_on(world, disk)
            assert await table(world) == {}

    run_seeded(seed, scenario)


@pytest.mark.parametrize("seed", range(5))
def test_an_acknowledgement_that_is_stored_late_is_answered_late_and_counts(seed: int) -> None:
    async def scenario() -> None:
        disk = Disk()
        async with node_with(disk) as world:
            await create(world)
            await fill(world, ["a", "b"])
            ann = await join(world)
            first, second = await ann.take(1), await ann.take()
            assert bodies(first) == ["a"]
            disk.goes_on.clear()
            async with asyncio.TaskGroup() as tasks:
                ack = AckMessages(ann.joined.member, first.lease, ())
                acking = tasks.create_task(ann.group.ask(ack, deadline_s=LONG_S))
                await world.clock.sleep(WRITE_S + 10)
                assert not acking.done()
                disk.goes_on.set()
                assert await acking is None
            assert (await shown(world)).group.floor == first.span.upto
            assert bodies(await ann.take()) == bodies(second) == ["b"]

    run_seeded(seed, scenario)


def test_a_schedule_that_is_made_late_runs() -> None:
    async def scenario() -> None:
        disk = Disk()
        async with node_with(disk) as world:
            disk.goes_on.clear()
            await told_unknown(world, OpenSchedule(VCHANNEL))
            again = await ask(world, OpenSchedule(VCHANNEL))
            assert isinstance(again, Refusal)
            assert again.code is StreamingCode.INNER
            await goes_on(world, disk)
            assert SCHEDULE_KEY in await table(world)
            path = world.path(f"groups/{SCHEDULE}@{VCHANNEL}")
            assert world.system.find(path).path == path

    run_seeded(1, scenario)
