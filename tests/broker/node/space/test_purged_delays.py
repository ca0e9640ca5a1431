"""Delayed messages and purges: what a group has not got refuses, what is purged is not released."""

from actors.testing import run_seeded
from broker.model.failure import Refusal, StreamingCode
from broker.model.groups.delivery_times import ReleasedMessage
from broker.model.ids import TimeTick
from broker.model.message import RELEASED, Appended
from broker.model.retention.dead import Dead
from broker.model.retention.purge import Purge
from broker.node.groups.due_messages import DueMessages
from broker.node.space.purging import PurgeVChannel
from schemas.stored import payload_of
from tests.broker.node.groups.test_group_leases import bodies, create, join
from tests.broker.node.groups.test_scheduler import (
    VCHANNEL,
    delayed,
    open_schedule,
    stored,
    until_released,
)
from tests.broker.node.space.test_held_space import LIMITS
from tests.broker.node.world import PCHANNEL, World, message, running_node

FLOOR_WRITTEN_S = 130.0


async def purge(world: World, upto: int) -> Purge | Refusal:
    answer: Purge | Refusal = await world.system.find("/root/node/purging").ask(
        PurgeVChannel(VCHANNEL, TimeTick(upto)), deadline_s=60.0
    )
    return answer


def test_a_released_message_that_a_group_has_not_got_refuses_the_purge() -> None:
    async def scenario() -> None:
        async with running_node(limits=LIMITS) as world:
            await world.assign()
            await create(world)
            await open_schedule(world)
            await world.append(delayed(["late"], world.clock.wall_ms() + 5000))
            await until_released(world, 1)
            await world.append(message("behind"))
            # Until the schedule says that nothing waits any more: from then on the group decides.
            await world.clock.sleep(FLOOR_WRITTEN_S)
            copy = next(it for it in await stored(world) if it.kind == RELEASED)
            refusal = await purge(world, copy.last_tick)
            assert isinstance(refusal, Refusal), "the group would never get it"
            assert refusal.code is StreamingCode.RESOURCE_ACQUIRED
            assert "group 'workers on" in refusal.cause
            ann = await join(world)
            lease = await ann.take()
            assert len(bodies(lease)) == 2
            assert await ann.ack(lease.lease) is None
            done = await purge(world, copy.last_tick)
            assert isinstance(done, Purge), done
            assert Dead(purged={VCHANNEL: done.whole_id}).covers(copy), "its space comes back"

    run_seeded(1, scenario)


def test_a_delayed_message_that_was_purged_is_not_released() -> None:
    async def scenario() -> None:
        async with running_node(limits=LIMITS) as world:
            await world.assign()
            (gone,) = await world.append(delayed(["gone"], 5000))
            (kept,) = await world.append(delayed(["kept"], 5000))
            assert isinstance(gone, Appended)
            assert isinstance(kept, Appended)
            await world.clock.sleep(1)
            assert isinstance(await purge(world, gone.tick), Purge)
            opened = world.node.open_channels.find(PCHANNEL)
            assert opened is not None
            due = [ReleasedMessage(5000, gone.id), ReleasedMessage(5000, kept.id)]
            last, copies = await DueMessages(opened, world.node.headers).copies(due)
            assert last == due[-1]
            assert [payload_of(it) for it in copies] == [b"kept"]

    run_seeded(2, scenario)
