"""What the rounds over segments cost, and in which portions they do large work."""

import pytest

from broker.master.segments.messages import ListFlushes
from broker.master.segments.segment_sweep import DROPPED_A_ROUND
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import PartitionId, SegmentId
from broker.model.master.segment_meta import SegmentMetaState
from broker.model.snapshot import SegmentState
from broker.ports.meta import MetaEntry
from tests.broker.master.segments.segment_world import (
    READER,
    A,
    B,
    World,
    assign,
    logged,
    seeded,
    states,
    vchannel,
)


def test_a_new_partition_costs_no_read_of_the_segments_of_others() -> None:
    async def scenario(world: World) -> None:
        await world.save(vchannel(A, B), *[logged(it) for it in range(1, 301)])
        async with world.run() as system:
            await world.clock.sleep(3.0)
            get = world.store.inner.get
            reads: list[str] = []

            async def counted(key: str) -> MetaEntry | None:
                reads.append(key)
                return await get(key)

            world.store.inner.get = counted  # type: ignore[method-assign]
            await world.save(vchannel(A, B, PartitionId(10)))
            await world.clock.sleep(3.0)
            assert await world.store.list("log-vchannel-changed/", limit=9) == []
            assert len(reads) < 20
            assert await states(system, 1) == [SegmentMetaState.GROWING]

    seeded(scenario)


def test_a_large_collection_is_dropped_in_portions_between_which_others_are_answered() -> None:
    async def scenario(world: World) -> None:
        count = 2 * DROPPED_A_ROUND + 50
        ids = range(1, count + 1)
        await world.save(vchannel(A, B), *[logged(it) for it in ids])
        async with world.run() as system:
            await world.clock.sleep(3.0)
            await world.save(vchannel(dropped=True))
            gone = []
            for _ in range(4):
                await world.clock.sleep(1.0)
                await assign(system)
                gone.append((await states(system, *ids)).count(SegmentMetaState.DROPPED))
            assert gone[-1] == count
            steps = [after - before for before, after in zip([0, *gone], gone, strict=False)]
            assert max(steps) == DROPPED_A_ROUND
            assert await world.store.list("log-vchannel-changed/", limit=9) == []

    seeded(scenario)


def test_a_flush_that_was_listed_again_is_forgotten_with_its_segment() -> None:
    async def scenario(world: World) -> None:
        many = range(1, 151)
        await world.save(vchannel(dropped=True), *[logged(it) for it in many])
        async with world.run() as system:
            await world.clock.sleep(5.0)
            flushed = logged(1, SegmentState.FLUSHED)
            await world.save(flushed)
            await world.clock.sleep(360.0)
            assert set(await states(system, *many)) == {None}
            for prefix in ("segment/", "segment-of/", "segment-flush/", "segment-ended/"):
                assert await world.store.list(prefix, limit=9) == []

    seeded(scenario)


def test_a_page_of_flushes_behind_an_unknown_segment_is_refused() -> None:
    async def scenario(world: World) -> None:
        async with world.run() as system:
            asked = ListFlushes(after=SegmentId(77))
            with pytest.raises(Refused, match="segment 77, which is not known") as caught:
                await system.find(READER).ask(asked, deadline_s=30.0)
            assert caught.value.refusal.code is StreamingCode.INVALID_ARGUMENT

    seeded(scenario)
