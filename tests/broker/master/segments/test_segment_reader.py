"""What the reader of segments shows, page by page."""

import pytest

from broker.core.master.segment_records import (
    segment_key,
)
from broker.master.segments.messages import (
    DescribeSegment,
    ShowSegments,
)
from broker.model.failure import Refused
from broker.model.ids import (
    CollectionId,
    PartitionId,
    SegmentId,
)
from tests.broker.master.segments.segment_world import (
    COLLECTION,
    READER,
    A,
    B,
    World,
    found,
    logged,
    seeded,
)


def test_an_unreadable_record_is_an_error_with_its_key() -> None:
    async def scenario(world: World) -> None:
        await world.save(logged(1))
        await world.store.write({segment_key(SegmentId(1)): b"torn"})
        async with world.run() as system:
            with pytest.raises(Refused, match="segment/1"):
                await found(system, 1)

    seeded(scenario)


def test_pages_of_segments_follow_each_other() -> None:
    async def scenario(world: World) -> None:
        await world.save(
            *[logged(it, partition_id=B if it == 2 else A) for it in (10, 9, 2, 100, 1)]
        )
        async with world.run() as system:
            for partition, expected in ((None, [1, 9, 10, 100, 2]), (A, [1, 9, 10, 100]), (B, [2])):
                seen: list[int] = []
                more = True
                while more:
                    after = SegmentId(seen[-1]) if seen else SegmentId(0)
                    page = await system.find(READER).ask(
                        ShowSegments(COLLECTION, partition, after, limit=2), deadline_s=30.0
                    )
                    seen += [it.id for it in page.segments]
                    more = page.more
                assert seen == expected
            for asked, cause in (
                (ShowSegments(CollectionId(5)), "no collection 5"),
                (ShowSegments(COLLECTION, PartitionId(5)), "no partition 5"),
                (ShowSegments(COLLECTION, limit=0), "1 to 999 segments, not 0"),
                (ShowSegments(COLLECTION, after=SegmentId(77)), "segment 77"),
            ):
                with pytest.raises(Refused, match=cause):
                    await system.find(READER).ask(asked, deadline_s=30.0)

    seeded(scenario)


def test_a_segment_has_the_index_of_its_collection() -> None:
    async def scenario(world: World) -> None:
        await world.save(logged(1), logged(2, collection_id=CollectionId(8)))
        async with world.run() as system:

            async def describe(collection: int, segment: int) -> int:
                asked = DescribeSegment(CollectionId(collection), SegmentId(segment))
                meta, index = await system.find(READER).ask(asked, deadline_s=30.0)
                assert meta.id == segment
                return int(index)

            assert await describe(7, 1) == 0
            world.index = 60
            assert await describe(7, 1) == 60
            for collection, segment, cause in (
                (8, 2, "no collection 8"),
                (7, 2, "no segment 2"),
                (7, 3, "no segment 3"),
            ):
                with pytest.raises(Refused, match=cause):
                    await describe(collection, segment)

    seeded(scenario)
