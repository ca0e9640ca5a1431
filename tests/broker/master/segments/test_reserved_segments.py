"""Segments with reservations: failures in the middle of a change, and cost at rest."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from broker.master.segments.messages import (
    AcknowledgeFlushes,
    CountStatistics,
    SealCollection,
    StatisticsCounted,
)
from broker.model.channel import ChannelOffsets
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import PChannelName
from broker.model.master.reservation import SegmentStatistics
from broker.model.master.segment_meta import SegmentMetaState
from broker.ports.meta import MetaError, WriteUnconfirmed
from tests.broker.master.segments.segment_world import (
    COLLECTION,
    KEEPER,
    ROWS,
    A,
    B,
    World,
    assign,
    flushes,
    found,
    seeded,
    states,
    vchannel,
)

WHOLE = replace(ROWS, count=1000)


def test_a_closing_that_is_stored_in_part_lists_no_flush_twice() -> None:
    async def scenario(world: World) -> None:
        async with world.run() as system:
            assigned = await assign(system, *([WHOLE] * 30))
            await system.find(KEEPER).ask(SealCollection(COLLECTION), deadline_s=30.0)
            write = world.store.inner.write
            failed: list[int] = []

            async def fails_once(
                puts: Mapping[str, bytes],
                *,
                deletes: Sequence[str] = (),
                expect: Mapping[str, int] | None = None,
            ) -> int:
                closed = sum(key.startswith("segment-flush/") for key in puts)
                if 0 < closed < 20 and not failed:
                    failed.append(closed)
                    raise MetaError("disk full")
                return await write(puts, deletes=deletes, expect=expect)

            world.store.inner.write = fails_once  # type: ignore[method-assign]
            await world.clock.sleep(10.0)
            assert failed == [10]
            ids = [it.segment_id for it in assigned]
            assert sorted(await flushes(system)) == sorted(ids)
            await system.find(KEEPER).ask(AcknowledgeFlushes(tuple(ids)), deadline_s=30.0)
            assert await flushes(system) == []

    seeded(scenario)


def test_open_segments_without_reservations_ask_no_node() -> None:
    async def scenario(world: World) -> None:
        asked: list[int] = []
        describe = world.describe

        async def counted() -> Mapping[PChannelName, ChannelOffsets]:
            asked.append(world.now)
            return await describe()

        world.describe = counted  # type: ignore[method-assign]
        async with world.run() as system:
            await assign(system)
            await world.clock.sleep(10.0)
            assert asked
            asked.clear()
            await world.clock.sleep(60.0)
            assert not asked
            await system.find(KEEPER).ask(SealCollection(COLLECTION), deadline_s=30.0)
            await world.clock.sleep(5.0)
            assert len(await flushes(system)) == 1

    seeded(scenario)


def test_a_report_of_many_segments_takes_few_writes() -> None:
    async def scenario(world: World) -> None:
        async with world.run() as system:
            assigned = await assign(system, *([WHOLE] * 40))
            ids = [it.segment_id for it in assigned]
            before = world.store.writes
            report = CountStatistics(
                4,
                world.now,
                (
                    SegmentStatistics(ids[0], 1, 1, recently_modified=True),
                    *[SegmentStatistics(it, 10, 7, recently_modified=True) for it in ids],
                ),
            )
            counted = await system.find(KEEPER).ask(report, deadline_s=30.0)
            assert counted == StatisticsCounted(41, 0, ())
            assert world.store.writes == before + 2
            metas = await found(system, *ids)
            assert {it.rows for it in metas if it is not None} == {7}

    seeded(scenario)


def test_numbers_below_zero_are_refused_and_change_nothing() -> None:
    async def scenario(world: World) -> None:
        async with world.run() as system:
            (assigned,) = await assign(system)
            id = assigned.segment_id
            for rows, size in ((-5, 1), (1, -5)):
                bad = SegmentStatistics(id, size, rows, recently_modified=True)
                good = SegmentStatistics(id, 1, 1, recently_modified=True)
                with pytest.raises(Refused, match="below 0") as caught:
                    await system.find(KEEPER).ask(
                        CountStatistics(1, world.now, (good, bad)), deadline_s=30.0
                    )
                assert caught.value.refusal.code is StreamingCode.INVALID_ARGUMENT
            (meta,) = await found(system, id)
            assert meta is not None
            assert meta.rows == 0
            assert await states(system, id) == [SegmentMetaState.GROWING]

    seeded(scenario)


def test_flushed_segments_of_a_dropped_collection_are_dropped() -> None:
    async def scenario(world: World) -> None:
        async with world.run() as system:
            (assigned,) = await assign(system)
            await system.find(KEEPER).ask(SealCollection(COLLECTION), deadline_s=30.0)
            await world.clock.sleep(130.0)
            assert await flushes(system) == [assigned.segment_id]
            world.partitions = None
            await world.clock.sleep(130.0)
            assert await states(system, assigned.segment_id) == [SegmentMetaState.DROPPED]
            assert await flushes(system) == []

    seeded(scenario)


def test_partitions_are_looked_through_only_after_one_was_removed() -> None:
    async def scenario(world: World) -> None:
        async with world.run() as system:
            (assigned,) = await assign(system)
            await world.clock.sleep(3.0)
            before = world.looked
            await world.clock.sleep(30.0)
            assert world.looked == before
            # A log that has changed is a reason, too: it may have partitions of its own.
            await world.save(vchannel(A, B))
            await world.clock.sleep(3.0)
            assert world.looked == before + 1
            world.partitions = frozenset({B})
            world.store.broken = True
            await world.clock.sleep(3.0)
            world.store.broken = False
            await world.clock.sleep(3.0)
            assert await states(system, assigned.segment_id) == [SegmentMetaState.DROPPED]

    seeded(scenario)


def test_a_closing_whose_answer_was_lost_is_listed_once_and_ends_when_acknowledged() -> None:
    async def scenario(world: World) -> None:
        async with world.run() as system:
            (assigned,) = await assign(system, WHOLE)
            await system.find(KEEPER).ask(SealCollection(COLLECTION), deadline_s=30.0)
            write = world.store.inner.write
            lost: list[int] = []

            async def loses_an_answer(
                puts: Mapping[str, bytes],
                *,
                deletes: Sequence[str] = (),
                expect: Mapping[str, int] | None = None,
            ) -> int:
                revision = await write(puts, deletes=deletes, expect=expect)
                if any(key.startswith("segment-flush/") for key in puts) and not lost:
                    lost.append(revision)
                    raise WriteUnconfirmed("no answer; the write may have taken effect")
                return revision

            world.store.inner.write = loses_an_answer  # type: ignore[method-assign]
            await world.clock.sleep(10.0)
            assert lost
            id = assigned.segment_id
            assert await flushes(system) == [id]
            await system.find(KEEPER).ask(AcknowledgeFlushes((id,)), deadline_s=30.0)
            assert await flushes(system) == []

    seeded(scenario)
