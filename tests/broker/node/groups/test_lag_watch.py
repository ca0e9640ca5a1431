"""What groups have left, as lists and metrics show it."""

import pytest

from actors.testing import run_seeded
from broker.model.groups.consumer_group import GroupLag
from broker.model.ids import TimeTick
from broker.model.message import NewMessage
from broker.node.group_messages import CreateGroup, DropGroup, SeekGroup
from broker.node.groups import lag_watch
from broker.node.groups.lag_watch import LOOK_S
from tests.broker.node.groups.test_group_leases import KEY, create, fill, join, keeper, shown
from tests.broker.node.world import PCHANNEL, World, appended, running_node


async def lag(world: World) -> GroupLag | None:
    await world.clock.sleep(2 * LOOK_S)
    return (await shown(world)).lag


def test_what_is_left_is_counted_as_it_comes_and_is_acknowledged() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await create(world)
            assert (await shown(world)).lag is None
            assert await lag(world) == GroupLag(0, 0, 0)
            await fill(world, ["a", "bb"])
            appended(await world.append(NewMessage(f"{PCHANNEL}_8v0", 2, b"other", 5)))
            found = await lag(world)
            assert found is not None
            assert (found.messages, found.bytes) == (2, 3)
            assert found.ms >= 5000
            ann = await join(world)
            assert await ann.ack((await ann.take()).lease) is None
            while (left := await lag(world)) != GroupLag(0, 0, 0):
                assert await ann.ack((await ann.take()).lease) is None, left

    run_seeded(1, scenario)


def test_a_seek_back_has_all_counted_again() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await fill(world, ["a", "b"])
            request = CreateGroup(KEY, 30_000, None, exist_ok=False)
            await (await keeper(world)).ask(request, deadline_s=60)
            assert await lag(world) == GroupLag(0, 0, 0)
            await (await keeper(world)).ask(SeekGroup(KEY, TimeTick(0)), deadline_s=60)
            found = await lag(world)
            assert found is not None
            assert found.messages == 2

    run_seeded(1, scenario)


def test_what_is_far_behind_is_counted_over_several_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag_watch, "HEADS_MAX", 5)

    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await fill(world, [f"{it}" for it in range(40)])
            await create(world)
            assert await lag(world) is None
            await world.clock.sleep(40 * LOOK_S)
            found = await lag(world)
            assert found is not None
            assert found.messages == 40

    run_seeded(1, scenario)


def test_a_new_group_has_no_count_of_an_old_one_of_its_name() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await create(world)
            await fill(world, ["a"])
            assert await lag(world) is not None
            await (await keeper(world)).ask(DropGroup(KEY), deadline_s=60)
            await create(world)
            assert (await shown(world)).lag is None

    run_seeded(1, scenario)
