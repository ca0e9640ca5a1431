"""Decisions that messages die, which are stored when the Group that made them has ended."""

import asyncio

import pytest

from actors import ActorError
from actors.testing import run_seeded
from broker.codec.letters import letters_of
from broker.core.groups.group_changes import MessagesAcked, MessagesTried
from broker.model.failure import Refusal
from broker.model.groups.consumer_group import GroupKey, GroupView, TickSpan
from broker.model.groups.group_mode import GroupMode
from broker.model.ids import TimeTick
from broker.node.group_messages import (
    CreateGroup,
    GroupJoined,
    JoinGroup,
    OpenGroup,
    RejectMessages,
    StartSchedules,
)
from broker.node.groups.group_keeper import GROUP_KEEPER
from broker.node.groups.group_leases import IDLE_S
from broker.node.groups.group_writer import GroupWriter
from tests.broker.node.groups.test_dead_letters import LIMIT, dead, rows
from tests.broker.node.groups.test_group_leases import KEY, VCHANNEL, Worker, join, keeper, shown
from tests.broker.node.groups.test_group_writer import LONG_S, Disk, node_with
from tests.broker.node.world import PCHANNEL, World, appended

LEASE_MS = 60_000
MODES = [GroupMode.SHARED, GroupMode.BY_KEY, GroupMode.BY_VCHANNEL]


async def rejecting(world: World, disk: Disk, mode: GroupMode) -> tuple[Worker, asyncio.Task]:  # type: ignore[type-arg]
    """A member that has rejected a message, whose death is not stored."""
    request = CreateGroup(KEY, LEASE_MS, TimeTick(0), exist_ok=False, limit=LIMIT, mode=mode)
    answer = await (await keeper(world)).ask(request, deadline_s=60)
    assert isinstance(answer, GroupView), answer
    appended(await world.append(rows("a")))
    worker = await join(world)
    leased = await worker.take()
    disk.goes_on.clear()
    reject = RejectMessages(worker.joined.member, leased.lease, (), "bad")
    asked = worker.group.ask(reject, deadline_s=LONG_S)
    answered = asyncio.get_running_loop().create_task(asked)
    await world.clock.sleep(1)
    return worker, answered


async def next_texts(world: World) -> list[str]:
    """What a member gets that comes as soon as it may."""
    while True:
        group = await (await keeper(world)).ask(OpenGroup(KEY), deadline_s=60)
        try:
            if not isinstance(group, Refusal):
                joined = await group.ask(JoinGroup("bob"), deadline_s=60)
                break
        except ActorError:
            pass  # it is starting
        await world.clock.sleep(0.1)
    assert isinstance(joined, GroupJoined)
    leased = await Worker(group, joined, world.clock).take()
    return [it.payload.decode() for it in letters_of(leased.items)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("comes", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_what_dies_while_its_group_begins_anew_goes_to_nobody_and_is_copied(
    mode: GroupMode, comes: bool, seed: int
) -> None:
    async def scenario() -> None:
        disk = Disk()
        async with node_with(disk) as world:
            _, answered = await rejecting(world, disk, mode)
            world.system.kill(world.path(f"groups/{KEY.name}@{VCHANNEL}"))
            with pytest.raises(ActorError):
                await answered
            async with asyncio.TaskGroup() as tasks:
                coming = tasks.create_task(next_texts(world)) if comes else None
                await world.clock.sleep(10)
                disk.goes_on.set()
                await world.clock.sleep(10)
                assert not (await shown(world)).group.dying
                assert [it.payload for it in await dead(world)] == [b"a"]
                appended(await world.append(rows("b")))
                if coming is not None:
                    assert await coming == ["b"]

    run_seeded(seed, scenario)


@pytest.mark.parametrize("mode", MODES)
def test_a_group_without_members_ends_when_what_it_decided_is_stored(mode: GroupMode) -> None:
    async def scenario() -> None:
        disk = Disk()
        async with node_with(disk) as world:
            worker, answered = await rejecting(world, disk, mode)
            worker.leave()
            await world.clock.sleep(3 * IDLE_S)
            disk.goes_on.set()
            assert await answered is None
            await world.clock.sleep(10)
            assert [it.payload for it in await dead(world)] == [b"a"]
            await world.clock.sleep(2 * IDLE_S)
            assert not [it for it in world.system.statistics() if KEY.name in it.path]

    run_seeded(1, scenario)


def test_a_group_that_may_not_begin_yet_is_refused_and_the_keeper_serves_others() -> None:
    async def scenario() -> None:
        disk = Disk()
        async with node_with(disk) as world:
            await world.assign()
            door = await keeper(world)
            other = GroupKey(KEY.vchannel, "others")
            for key in (KEY, other):
                request = CreateGroup(key, LEASE_MS, TimeTick(0), exist_ok=False)
                assert isinstance(await door.ask(request, deadline_s=60), GroupView)
            opened = world.node.open_channels.find(PCHANNEL)
            assert opened is not None
            # As what raises idle floors writes: no actor of the group is there.
            disk.goes_on.clear()
            change = MessagesAcked(KEY.name, (TickSpan(TimeTick(0), TimeTick(1)),))
            writer = GroupWriter(opened, world.node, world.clock)
            writer.write_then(KEY.vchannel, change, lambda _: None)
            for _ in range(3):
                refused = await door.ask(OpenGroup(KEY), deadline_s=60)
                assert isinstance(refused, Refusal)
                assert "begins when that is known" in refused.cause
            assert not isinstance(await door.ask(OpenGroup(other), deadline_s=60), Refusal)
            disk.goes_on.set()
            await world.clock.sleep(1)
            while isinstance(await door.ask(OpenGroup(KEY), deadline_s=60), Refusal):
                await world.clock.sleep(0.1)

    run_seeded(1, scenario)


def test_groups_that_may_not_begin_yet_are_looked_at_together_once_in_a_while() -> None:
    """One timer for each of them would multiply: each has all of them looked at."""

    async def scenario() -> None:
        disk = Disk()
        async with node_with(disk) as world:
            await world.assign()
            door = await keeper(world)
            opened = world.node.open_channels.find(PCHANNEL)
            assert opened is not None
            writer = GroupWriter(opened, world.node, world.clock)
            span = TickSpan(TimeTick(0), TimeTick(1))
            keys = [GroupKey(KEY.vchannel, f"workers{it}") for it in range(3)]
            for key in keys:
                request = CreateGroup(key, LEASE_MS, TimeTick(0), exist_ok=False, limit=LIMIT)
                assert isinstance(await door.ask(request, deadline_s=60), GroupView)
                tried = MessagesTried(key.name, (span,), LIMIT.deliveries_max + 1)
                assert await writer.write(key.vchannel, tried) is None
            disk.goes_on.clear()
            for key in keys:
                change = MessagesAcked(key.name, (span,))
                writer.write_then(key.vchannel, change, lambda _: None)
            door.tell(StartSchedules())
            await world.clock.sleep(60)
            (keeping,) = [it for it in world.system.statistics() if it.path.endswith(GROUP_KEEPER)]
            assert keeping.handled > 10
            assert keeping.mailbox_depth <= 2, "one of each kind of timer"
            disk.goes_on.set()
            for key in keys:
                while isinstance(await door.ask(OpenGroup(key), deadline_s=60), Refusal):
                    await world.clock.sleep(0.1)

    run_seeded(1, scenario)
