"""The keeper of segments: what is answered was stored before."""

from dataclasses import replace

import pytest

from broker.master.segments.messages import (
    AcknowledgeFlushes,
    AssignRows,
    CollectionSealed,
    CountBinlogs,
    CountStatistics,
    SealCollection,
    ShowSegments,
    StatisticsCounted,
)
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import (
    CollectionId,
    SegmentId,
    TimeTick,
)
from broker.model.master.reservation import SegmentOrders, SegmentStatistics
from broker.model.master.segment_meta import SegmentMetaState
from broker.model.snapshot import (
    SegmentState,
)
from tests.broker.master.segments.segment_world import (
    COLLECTION,
    KEEPER,
    NAMES,
    READER,
    ROWS,
    A,
    B,
    S,
    World,
    assign,
    flushes,
    found,
    logged,
    seeded,
    states,
    vchannel,
)


def test_a_reservation_is_dropped_when_all_pchannels_are_closed_behind_its_end() -> None:
    async def scenario(world: World) -> None:
        async with world.run() as system:
            whole = replace(ROWS, count=1000)
            (first,) = await assign(system, whole)
            assert first.expire_tick == world.now + 2 * S
            await world.clock.sleep(1.0)
            (second,) = await assign(system, whole)
            assert second.segment_id != first.segment_id
            world.offline = {NAMES[1]}
            await world.clock.sleep(60.0)
            assert (await assign(system, whole))[0].segment_id not in (
                first.segment_id,
                second.segment_id,
            )
            world.offline = set()
            await world.clock.sleep(3.0)
            assert (await assign(system, whole))[0].segment_id == first.segment_id

    seeded(scenario)


def test_what_was_opened_is_stored_first_and_a_failing_store_opens_nothing() -> None:
    async def scenario(world: World) -> None:
        async with world.run() as system:
            await assign(system, replace(ROWS, count=1))
            world.store.lost_races = 1
            wanted = replace(ROWS, channel=NAMES[1], count=1000)
            with pytest.raises(Refused) as caught:
                await system.find(KEEPER).ask(AssignRows((wanted,)), deadline_s=30.0)
            assert caught.value.refusal.code is StreamingCode.INNER
            (assigned,) = await assign(system, wanted)
            assert await states(system, assigned.segment_id) == [SegmentMetaState.GROWING]
            page = await system.find(READER).ask(ShowSegments(COLLECTION), deadline_s=30.0)
            assert len(page.segments) == 2

    seeded(scenario)


def test_a_killed_keeper_gives_out_nothing_twice() -> None:
    async def scenario(world: World) -> None:
        async with world.run() as system:
            (first,) = await assign(system, replace(ROWS, count=600))
            system.kill(KEEPER)
            await world.clock.sleep(0.5)
            (second,) = await assign(system, replace(ROWS, count=600))
            assert second.segment_id != first.segment_id
            await world.clock.sleep(5.0)
            (third,) = await assign(system, replace(ROWS, count=600))
            assert third.segment_id == first.segment_id

    seeded(scenario)


def test_a_full_segment_is_closed_when_every_node_has_processed_its_last_row() -> None:
    async def scenario(world: World) -> None:
        world.behind_s = 3.0
        async with world.run() as system:
            (assigned,) = await assign(system)
            id = assigned.segment_id
            full = SegmentStatistics(id, 10, 750, recently_modified=True)
            idle = SegmentStatistics(id, 10, 1, recently_modified=False)
            nobodys = SegmentStatistics(SegmentId(5), 10, 1, recently_modified=True)
            report = CountStatistics(4, world.now, (full, idle, nobodys))
            counted = await system.find(KEEPER).ask(report, deadline_s=30.0)
            assert counted == StatisticsCounted(1, 1, (SegmentId(5),))
            assert await states(system, id) == [SegmentMetaState.SEALED]
            await world.clock.sleep(4.0)
            assert await states(system, id) == [SegmentMetaState.SEALED]
            await world.clock.sleep(2.0)
            assert await states(system, id) == [SegmentMetaState.FLUSHED]
            assert await flushes(system) == [id]
            late = await system.find(KEEPER).ask(report, deadline_s=30.0)
            assert late == StatisticsCounted(1, 1, (SegmentId(5),))
            (meta,) = await found(system, id)
            assert meta is not None
            assert (meta.rows, meta.state) == (750, SegmentMetaState.FLUSHED)
            assert meta.close_tick >= assigned.expire_tick

    seeded(scenario)


def test_a_collection_is_sealed_in_its_logs_and_in_its_reservations() -> None:
    async def scenario(world: World) -> None:
        await world.save(vchannel(A, B))
        async with world.run() as system:
            (assigned,) = await assign(system)
            sealed = await system.find(KEEPER).ask(SealCollection(COLLECTION), deadline_s=30.0)
            assert sealed == CollectionSealed((assigned.segment_id,), 1)
            assert world.node.orders == [(NAMES[0], SegmentOrders(seal_collections=(COLLECTION,)))]
            world.offline = {NAMES[0]}
            with pytest.raises(Refused, match="has no owner; try again"):
                await system.find(KEEPER).ask(SealCollection(COLLECTION), deadline_s=30.0)
            with pytest.raises(Refused, match="no collection 5"):
                await system.find(KEEPER).ask(SealCollection(CollectionId(5)), deadline_s=30.0)

    seeded(scenario)


def test_too_much_memory_on_a_query_node_seals_a_segment_of_a_log() -> None:
    async def scenario(world: World) -> None:
        await world.save(vchannel(A, B), logged(1), logged(2, SegmentState.FLUSHED))
        async with world.run() as system:
            for memory, id in ((750, 1), (751, 2), (751, 1)):
                each = SegmentStatistics(SegmentId(id), memory, 3, recently_modified=True)
                report = CountStatistics(4, world.now, (each,))
                counted = await system.find(KEEPER).ask(report, deadline_s=30.0)
                assert counted == StatisticsCounted(1, 0, ())
            assert world.node.orders == [(NAMES[0], SegmentOrders(seal=(SegmentId(1),)))]

    seeded(scenario)


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        (AssignRows(()), "1 to 1000"),
        (AssignRows((ROWS,) * 1001), "1 to 1000"),
        (CountBinlogs(((SegmentId(1), -1),)), "0 binlogs or more"),
        (AcknowledgeFlushes((SegmentId(1),) * 1001), "at most 1000"),
        (
            CountStatistics(1, TimeTick(1), (SegmentStatistics(SegmentId(1), 1, 1, True),) * 1001),
            "1000",
        ),
    ],
)
def test_bad_requests_are_refused_with_the_reason(message: object, cause: str) -> None:
    async def scenario(world: World) -> None:
        async with world.run() as system:
            with pytest.raises(Refused, match=cause) as caught:
                await system.find(KEEPER).ask(message, deadline_s=30.0)  # type: ignore[arg-type]
            assert caught.value.refusal.code is StreamingCode.INVALID_ARGUMENT

    seeded(scenario)


def test_one_refused_request_fails_no_other() -> None:
    async def scenario(world: World) -> None:
        asked = (
            ROWS,
            replace(ROWS, count=1001),
            replace(ROWS, channel="elsewhere"),
            replace(ROWS, collection="unknown"),
            ROWS,
        )
        async with world.run() as system:
            answers = await system.find(KEEPER).ask(AssignRows(asked), deadline_s=30.0)
            codes = [getattr(it, "code", StreamingCode.OK) for it in answers]
            bad, gone = StreamingCode.INVALID_ARGUMENT, StreamingCode.CHANNEL_NOT_EXIST
            assert codes == [StreamingCode.OK, bad, bad, gone, StreamingCode.OK]
            assert answers[0] == answers[4]
            (row,) = [it for it in system.statistics() if it.path == KEEPER]
            assert (row.extra["assigned"], row.extra["refused"]) == (2, 3)
            assert row.extra["reserved_rows"] == 200

    seeded(scenario)
