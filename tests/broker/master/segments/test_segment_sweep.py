"""Rounds over segments: reports to owners, drops, flushes that nobody reads."""

from broker.core.naming import vchannel_name
from broker.master.segments.messages import (
    AcknowledgeFlushes,
    CountBinlogs,
    ShowSegments,
    TidySegments,
)
from broker.model.effect import SegmentLevel
from broker.model.ids import (
    PartitionId,
    SegmentId,
    TimeTick,
)
from broker.model.master.reservation import SegmentOrders
from broker.model.master.segment_meta import SegmentMetaState
from broker.model.snapshot import (
    SegmentState,
)
from tests.broker.master.segments.segment_world import (
    COLLECTION,
    KEEPER,
    NAMES,
    READER,
    SWEEP,
    A,
    B,
    World,
    assign,
    flushes,
    logged,
    seeded,
    states,
    vchannel,
)


def test_files_of_writers_are_remembered_and_reported_to_every_owner() -> None:
    async def scenario(world: World) -> None:
        await world.save(logged(1), logged(2, SegmentState.FLUSHED))
        order = (NAMES[0], SegmentOrders(binlogs=((SegmentId(1), 5),)))
        async with world.run() as system:
            (assigned,) = await assign(system)
            counts = ((SegmentId(1), 5), (SegmentId(2), 9), (SegmentId(3), 9))
            report = CountBinlogs(((assigned.segment_id, 32), *counts))
            assert await system.find(KEEPER).ask(report, deadline_s=30.0) == (2, 3)
            assert world.node.orders == [order]
            await system.find(KEEPER).ask(CountBinlogs(((SegmentId(1), 4),)), deadline_s=30.0)
            assert world.node.orders == [order, order], "a late report lowers nothing"
            assert await states(system, assigned.segment_id) == [SegmentMetaState.GROWING]
            more = CountBinlogs(((assigned.segment_id, 33),))
            assert await system.find(KEEPER).ask(more, deadline_s=30.0) == ()
            assert await states(system, assigned.segment_id) == [SegmentMetaState.SEALED]
        world.node.orders.clear()
        async with world.run() as system:
            await world.clock.sleep(61.0)
            assert world.node.orders == [order], "an owner that restarts has forgotten it"
            await world.save(logged(1, SegmentState.FLUSHED))
            await world.clock.sleep(120.0)
            assert world.node.orders == [order, *world.node.orders[1:2]]
            assert [key for key, _ in await world.store.list("segment-binlogs/", limit=9)] == []

    seeded(scenario)


def test_flushes_are_listed_in_their_order_until_they_are_acknowledged() -> None:
    async def scenario(world: World) -> None:
        first = logged(9, SegmentState.FLUSHED, tick=TimeTick(50))
        second = logged(1, SegmentState.FLUSHED, tick=TimeTick(60))
        await world.save(second, first, logged(3))
        async with world.run() as system:
            assert await flushes(system) == [9, 1]
            ids = (SegmentId(9), SegmentId(3), SegmentId(4))
            for _ in range(2):
                refused = await system.find(KEEPER).ask(AcknowledgeFlushes(ids), deadline_s=30.0)
                assert refused == (3, 4)
            assert await flushes(system) == [1]
            assert await states(system, 9) == [SegmentMetaState.FLUSHED]
            await world.clock.sleep(SWEEP.kept_ms / 1000 + 120)
            assert await states(system, 9, 1, 3) == [
                None,
                SegmentMetaState.FLUSHED,
                SegmentMetaState.GROWING,
            ]
            page = await system.find(READER).ask(ShowSegments(COLLECTION), deadline_s=30.0)
            assert [it.id for it in page.segments] == [1, 3]

    seeded(scenario)


def test_of_flushes_that_nobody_reads_the_oldest_are_passed() -> None:
    async def scenario(world: World) -> None:
        await world.save(*[logged(it, SegmentState.FLUSHED) for it in range(1, 6)])
        async with world.run() as system:
            await system.find(KEEPER).ask(TidySegments(), deadline_s=30.0)  # type: ignore[arg-type]
            assert await flushes(system) == [4, 5]
            (row,) = [it for it in system.statistics() if it.path == KEEPER]
            assert row.extra["flushes_passed"] == 3

    seeded(scenario)


def test_segments_of_dropped_partitions_and_collections_are_dropped() -> None:
    async def scenario(world: World) -> None:
        other = vchannel_name(NAMES[1], COLLECTION, 1)
        await world.save(
            vchannel(A, B),
            *[logged(it, partition_id=A if it % 2 else B) for it in range(1, 251)],
            logged(900, SegmentState.FLUSHED),
            logged(901, vchannel=other),
            logged(902, partition_id=PartitionId(-1), level=SegmentLevel.DELETES),
        )
        async with world.run() as system:
            (assigned,) = await assign(system)
            await world.clock.sleep(3.0)
            assert set(await states(system, *range(1, 251))) == {SegmentMetaState.GROWING}
            await world.save(vchannel(B))
            world.partitions = frozenset({B})
            await world.clock.sleep(3.0)
            assert await states(system, 1, 2, 249, 250, 900) == [
                SegmentMetaState.DROPPED,
                SegmentMetaState.GROWING,
                SegmentMetaState.DROPPED,
                SegmentMetaState.GROWING,
                SegmentMetaState.DROPPED,
            ]
            assert await states(system, assigned.segment_id) == [SegmentMetaState.DROPPED]
            assert await flushes(system) == []
            await world.save(vchannel(dropped=True))
            await world.clock.sleep(3.0)
            assert set(await states(system, *range(1, 251), 902)) == {SegmentMetaState.DROPPED}
            assert await states(system, 901) == [SegmentMetaState.GROWING]
            assert await world.store.list("log-vchannel-changed/", limit=9) == []
            assert await world.store.list("log-collection/", limit=9) == []

    seeded(scenario)


def test_an_owner_that_changes_the_vchannel_again_is_looked_at_again() -> None:
    async def scenario(world: World) -> None:
        await world.save(vchannel(A, B), logged(1))
        async with world.run() as system:
            await world.clock.sleep(2.0)
            await world.save(vchannel(dropped=True))
            world.store.lost_races = 3
            await world.clock.sleep(5.0)
            assert await states(system, 1) == [SegmentMetaState.DROPPED]

    seeded(scenario)
