"""Groups of dropped collections end, members or not, so that they hold nothing."""

import pytest

from actors import ActorError
from actors.testing import run_seeded
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import TimeTick
from broker.node.group_messages import (
    CreateGroup,
    ListGroups,
    OpenGroup,
    OpenSchedule,
    RejectMessages,
    TakeMessages,
)
from tests.broker.node.groups.test_dead_letters import LEASE_MS, create
from tests.broker.node.groups.test_group_leases import KEY, VCHANNEL, join, keeper
from tests.broker.node.rows_of_collections import batch, create_collection, drop_collection
from tests.broker.node.world import PCHANNEL, World, appended, running_node


async def until_gone(world: World) -> None:
    opened = world.node.open_channels.find(PCHANNEL)
    assert opened is not None
    while opened.groups.table.groups:
        await world.clock.sleep(1)


def test_a_drop_ends_the_group_its_members_and_its_schedule() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            appended(await world.append(create_collection()))
            await create(world)
            door = await keeper(world)
            assert await door.ask(OpenSchedule(VCHANNEL), deadline_s=60) is None
            appended(await world.append(batch(3)))
            worker = await join(world)
            leased = await worker.take()
            assert leased.lease
            reject = RejectMessages(worker.joined.member, leased.lease, (), "bad")
            assert await worker.group.ask(reject, deadline_s=60) is None
            appended(await world.append(drop_collection()))
            await until_gone(world)
            with pytest.raises(ActorError):
                await worker.group.ask(TakeMessages(worker.joined.member, 10), deadline_s=60)
            assert not [it for it in world.system.statistics() if "/groups/" in it.path]
            assert await door.ask(ListGroups((), ""), deadline_s=60) == ()
            gone = await door.ask(OpenGroup(KEY), deadline_s=60)
            assert isinstance(gone, Refusal)
            again = CreateGroup(KEY, LEASE_MS, TimeTick(0), exist_ok=True)
            refusal = await door.ask(again, deadline_s=60)
            assert isinstance(refusal, Refusal)
            assert refusal.code is StreamingCode.INVALID_ARGUMENT
            assert "was dropped" in refusal.cause

    run_seeded(1, scenario)


def test_a_drop_before_a_move_is_known_to_the_new_owner() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            appended(await world.append(create_collection()))
            await create(world)
            appended(await world.append(drop_collection()))
            assert await world.remove(term=5) is None
            assert await world.assign(term=6) is None
            await world.locate()
            await until_gone(world)

    run_seeded(1, scenario)
