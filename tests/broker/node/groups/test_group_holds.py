"""What a group has not acknowledged holds back retention, within the limit of holders."""

from dataclasses import replace

from actors.testing import run_seeded
from broker.model.retention.holders import HolderKind
from tests.broker.node.groups.test_group_leases import KEY, bodies, create, join, shown
from tests.broker.node.test_truncation import LIMITS, HoldsFake, fill, retaining


def test_a_group_holds_what_it_has_not_acknowledged_and_lets_go_of_it() -> None:
    async def scenario() -> None:
        holds = HoldsFake()
        async with retaining(holds, replace(LIMITS, hold_bytes_max=1 << 30)) as world:
            await world.assign()
            await create(world)
            await fill(world)
            assert (await world.offsets()).first_id == 1
            (holding,) = holds.removals[-1].holders
            assert (holding.kind, holding.name) == (
                HolderKind.GROUP,
                f"{KEY.name} on {KEY.vchannel}",
            )
            ann = await join(world)
            lease = await ann.take()
            while lease.lease:
                assert await ann.ack(lease.lease) is None
                lease = await ann.take()
            await world.clock.sleep(5)
            assert (await world.offsets()).first_id > 30

    run_seeded(1, scenario)


def test_a_group_that_is_passed_goes_on_at_the_first_message_left() -> None:
    async def scenario() -> None:
        holds = HoldsFake()
        async with retaining(holds) as world:
            await world.assign()
            await create(world)
            ann = await join(world)
            await fill(world, 4)
            kept = await ann.take(1)
            assert bodies(kept)
            await fill(world)
            first_id = (await world.offsets()).first_id
            assert first_id > 10
            assert HolderKind.GROUP in {it.kind for each in holds.removals for it in each.passed}
            # What it has on lease is gone from the log: when that ends, it is settled.
            await world.clock.sleep(40)
            found = 0
            lease = await ann.take()
            while lease.lease:
                found += len(bodies(lease))
                assert await ann.ack(lease.lease) is None
                lease = await ann.take()
            assert 0 < found < 30
            view = await shown(world)
            assert view.group.acked == ()
            assert view.group.floor > kept.span.upto

    run_seeded(1, scenario)
