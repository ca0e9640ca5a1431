"""A member's place in a Group: given up whenever its stream ends, so that no group is stuck."""

import asyncio

import pytest

from actors import MailboxFull, Ref
from actors.testing import run_seeded
from broker.edge.groups.member_place import JOIN_TRIES, LEAVE_AGAIN_S, MemberPlace
from broker.model.failure import Refusal, Refused
from broker.model.groups.consumer_group import GroupKey
from broker.node.group_messages import GroupMessage, LeaveGroup, OpenGroup
from tests.broker.node.groups.test_group_leases import KEY, create, keeper, shown
from tests.broker.node.world import World, running_node


async def opened(world: World) -> Ref[GroupMessage]:
    group = await (await keeper(world)).ask(OpenGroup(KEY), deadline_s=60)
    assert not isinstance(group, Refusal), group
    return group  # type: ignore[no-any-return]


def place_of(world: World) -> MemberPlace:
    async def find(_: GroupKey) -> Ref[GroupMessage]:
        return await opened(world)

    return MemberPlace(find, KEY, "ann")


def fill_mailbox(group: Ref[GroupMessage]) -> None:
    try:
        while True:
            group.tell(LeaveGroup(0))
    except MailboxFull:
        return


def test_a_join_that_is_cancelled_at_any_step_leaves_no_member() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await create(world)
            seen = set()
            for steps in range(40):
                place = place_of(world)
                async with asyncio.TaskGroup() as tasks:
                    joining = tasks.create_task(place.join())
                    for _ in range(steps):
                        await asyncio.sleep(0)
                    joining.cancel()
                seen.add(joining.cancelled())
                place.leave()
                place.leave()
                await world.clock.sleep(1)
                assert (await shown(world)).members == ()
            assert seen == {True, False}

    run_seeded(1, scenario)


def test_a_group_with_a_full_mailbox_hears_of_the_end_all_the_same() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await create(world)
            place = place_of(world)
            group, joined = await place.join()
            assert [it.number for it in (await shown(world)).members] == [joined.member]
            fill_mailbox(group)
            place.leave()
            await world.clock.sleep(2 * LEAVE_AGAIN_S)
            assert (await shown(world)).members == ()

    run_seeded(1, scenario)


def test_a_group_that_is_gone_each_time_is_given_up() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await create(world)
            dead = await opened(world)
            world.system.kill(world.path(f"groups/{KEY.name}@{KEY.vchannel}"))
            tries = 0

            async def find(_: GroupKey) -> Ref[GroupMessage]:
                nonlocal tries
                tries += 1
                return dead

            place = MemberPlace(find, KEY, "ann")
            with pytest.raises(Refused, match="starts and ends again"):
                await place.join()
            place.leave()
            assert tries == JOIN_TRIES

    run_seeded(1, scenario)
