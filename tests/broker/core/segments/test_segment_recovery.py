"""What a new owner begins with; whole lives with restarts are in `test_segments.py`."""

from broker.core.segments.segment_recovery import recovered_segments
from broker.core.segments.segment_sealing import SealReason, SegmentLimits
from broker.model.effect import ALL_PARTITIONS, Deleted, Inserted, SegmentLevel
from broker.model.failure import Dropped
from broker.model.ids import CollectionId, PartitionId, SegmentId, TimeTick, TxnId, VChannelName
from broker.model.snapshot import (
    SchemaStart,
    SegmentSnapshot,
    SegmentState,
    VChannelSnapshot,
    VChannelState,
)

V, GONE = VChannelName("p_0_7v0"), VChannelName("p_0_8v0")
A, B = PartitionId(1), PartitionId(2)
VERSIONS = (SchemaStart(3, b"", TimeTick(1)), SchemaStart(4, b"", TimeTick(2)))


def vchannel(
    name: VChannelName = V,
    state: VChannelState = VChannelState.NORMAL,
    schemas: tuple[SchemaStart, ...] = VERSIONS,
) -> VChannelSnapshot:
    return VChannelSnapshot(
        name=name,
        collection_id=CollectionId(7),
        state=state,
        partition_ids=(A, B),
        schemas=schemas,
        created_tick=TimeTick(1),
        tick=TimeTick(2),
    )


def segment(number: int, partition: PartitionId = A, **fields: object) -> SegmentSnapshot:
    values = {
        "id": SegmentId(number),
        "vchannel": V,
        "collection_id": CollectionId(7),
        "partition_id": partition,
        "state": SegmentState.GROWING,
        "level": SegmentLevel.DELETES if partition == ALL_PARTITIONS else SegmentLevel.ROWS,
        "schema_version": 4,
        "rows": 5,
        "size_bytes": 50,
        "rows_max": 10,
        "size_bytes_max": 100,
        "created_tick": TimeTick(number),
        "modified_tick": TimeTick(number + 1),
        "tick": TimeTick(number + 1),
    } | fields
    return SegmentSnapshot(**values)  # type: ignore[arg-type]


def test_of_two_in_one_partition_the_older_one_is_sealed_again() -> None:
    shards = recovered_segments(
        [vchannel()],
        [segment(12), segment(11), segment(13, B), segment(9, state=SegmentState.FLUSHED)],
        {},
        SegmentLimits(),
        required=True,
    )
    assert [it.id for it in shards.growing()] == [12, 13]
    assert {id: it.sealed for id, it in shards.sealed.items()} == {11: SealReason.RECOVERED}
    assert shards.growing_bytes == 100
    assert shards.collections[V].schema_version == 4
    assert shards.required


def test_what_open_transactions_added_counts_and_holds() -> None:
    rows = Inserted(CollectionId(7), A, SegmentId(11), 2, 20, None)
    unknown = Inserted(CollectionId(7), A, SegmentId(99), 2, 20, None)
    deletes = Deleted(CollectionId(7), 3, 40, SegmentId(13))
    pending = {TxnId(1): (rows, unknown, deletes)}
    shards = recovered_segments(
        [vchannel()],
        [segment(11), segment(12, B), segment(13, ALL_PARTITIONS)],
        pending,
        SegmentLimits(delete_segments=True),
        required=False,
    )
    assert [(it.rows, it.size_bytes, set(it.held_by)) for it in shards.growing()] == [
        (7, 70, {1}),
        (5, 50, set()),
        (8, 90, {1}),
    ]
    shards.release(TxnId(1), committed=True)
    assert not any(it.held_by for it in shards.growing())


def test_a_transactions_deletes_are_added_to_the_one_segment_that_took_them() -> None:
    pending = {TxnId(1): (Deleted(CollectionId(7), 3, 40, SegmentId(12)),)}
    shards = recovered_segments(
        [vchannel()],
        [segment(11, ALL_PARTITIONS), segment(12, ALL_PARTITIONS)],
        pending,
        SegmentLimits(delete_segments=True),
        required=False,
    )
    assert [(it.id, it.rows, it.size_bytes) for it in shards.growing()] == [(12, 8, 90)]
    assert [(it.id, it.rows, it.held_by) for it in shards.sealed.values()] == [(11, 5, {})]


def test_where_deletes_have_no_segments_an_older_one_is_sealed() -> None:
    shards = recovered_segments(
        [vchannel()],
        [segment(11), segment(13, ALL_PARTITIONS)],
        {},
        SegmentLimits(),
        required=False,
    )
    assert [it.id for it in shards.growing()] == [11]
    assert {id: it.sealed for id, it in shards.sealed.items()} == {13: SealReason.RECOVERED}


def test_a_dropped_collection_is_remembered_as_such() -> None:
    shards = recovered_segments(
        [vchannel(), vchannel(GONE, VChannelState.DROPPED)], [], {}, SegmentLimits(), required=False
    )
    assert list(shards.collections) == [V]
    refusal = shards.refusal(GONE, CollectionId(7), A)
    assert isinstance(refusal, Dropped)
    assert "was dropped" in refusal.cause


def test_a_vchannel_without_a_schema_is_at_version_zero() -> None:
    shards = recovered_segments([vchannel(schemas=())], [], {}, SegmentLimits(), required=False)
    assert shards.collections[V].schema_version == 0
