"""The keeper of a pchannel's groups: what it changes while a Group is busy, or comes back."""

from collections.abc import Sequence

from actors import Actor, ChildSpec, Context, Envelope, Restart
from actors.testing import run_seeded
from broker.model.failure import Refusal, StreamingCode
from broker.model.groups.consumer_group import GroupView
from broker.model.ids import TimeTick
from broker.node.group_messages import DropGroup, GroupMessage, SeekGroup
from broker.node.groups.group_keeper import STOP_S
from tests.broker.node.groups.test_group_leases import KEY, bodies, create, fill, join, keeper
from tests.broker.node.groups.test_group_leases import shown as shown_group
from tests.broker.node.world import running_node


class BusyGroup(Actor[GroupMessage]):
    """Takes long for its first request, as a Group does whose log is read from a slow disk."""

    async def started(self, context: Context[GroupMessage]) -> None:
        self._context = context

    async def receive(self, batch: Sequence[Envelope[GroupMessage]]) -> None:
        await self._context.clock.sleep(STOP_S + 1)
        for envelope in batch:
            envelope.reply(None)


def test_a_group_that_does_not_answer_in_time_may_have_members_and_is_not_changed() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            before = await create(world)
            name = f"{KEY.name}@{KEY.vchannel}"
            spec = ChildSpec(name=name, build=BusyGroup, restart=Restart.TRANSIENT)
            await world.system.start_child(world.path("groups"), spec)
            door = await keeper(world)
            for change in (DropGroup(KEY), SeekGroup(KEY, TimeTick(0))):
                refusal = await door.ask(change, deadline_s=60)
                assert isinstance(refusal, Refusal)
                assert refusal.code is StreamingCode.INNER
                assert "busy" in refusal.cause
                await world.clock.sleep(STOP_S)
            assert (await shown_group(world)).group == before.group

    run_seeded(1, scenario)


def test_a_group_that_was_killed_is_sought_and_goes_on_from_there() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await create(world)
            await fill(world, ["a", "b"])
            ann = await join(world)
            lease = await ann.take()
            assert await ann.ack(lease.lease) is None
            world.system.kill(world.path(f"groups/{KEY.name}@{KEY.vchannel}"))
            sought = await (await keeper(world)).ask(SeekGroup(KEY, TimeTick(0)), deadline_s=60)
            assert isinstance(sought, GroupView), sought
            assert bodies(await (await join(world)).take()) == ["a", "b"]

    run_seeded(1, scenario)
