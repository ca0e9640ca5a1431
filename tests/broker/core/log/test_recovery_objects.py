"""Single effects: what they do once, and that they do nothing a second time."""

import pytest

from broker.core.log.recovery_objects import SCHEMA_KEPT_MS, SCHEMAS_MAX, RecoveryObjects
from broker.model.effect import (
    AllFlushed,
    CollectionAltered,
    CollectionCreated,
    CollectionDropped,
    Deleted,
    Effect,
    Inserted,
    ManuallyFlushed,
    PartitionCreated,
    PartitionDropped,
    SchemaChanged,
    SegmentCreated,
    SegmentFlushed,
    SegmentLevel,
    Truncated,
)
from broker.model.ids import CollectionId, PartitionId, SegmentId, TimeTick, VChannelName
from broker.model.snapshot import SegmentState, VChannelState

C = CollectionId(7)
A, B = PartitionId(1), PartitionId(2)
V = VChannelName("by-dev-rootcoord-dml_0_7v0")
W = VChannelName("by-dev-rootcoord-dml_0_8v0")
MS = 1 << 18


def made() -> RecoveryObjects:
    """Two partitions, with a growing segment in each, and one for deletes."""
    objects = RecoveryObjects()
    objects.apply(V, [CollectionCreated(C, (A, B), b"one", 1)], TimeTick(10))
    for id, partition in ((11, A), (12, B)):
        effect = SegmentCreated(C, partition, SegmentId(id), 100, 5, SegmentLevel.ROWS, 1)
        assert objects.apply(V, [effect], TimeTick(id)) == []
    deletes = SegmentCreated(C, PartitionId(-1), SegmentId(13), 0, 0, SegmentLevel.DELETES, 1)
    objects.apply(V, [deletes], TimeTick(13))
    return objects


def flushed(objects: RecoveryObjects) -> set[int]:
    found = objects.segments.values()
    return {each.id for each in found if each.state is SegmentState.FLUSHED}


@pytest.mark.parametrize(
    ("effect", "gone"),
    [
        (CollectionDropped(C), {11, 12, 13}),
        (PartitionDropped(C, A), {11}),
        (SchemaChanged(C, b"two", 2, (SegmentId(12),)), {12}),
        (Truncated(C, (SegmentId(11), SegmentId(12))), {11, 12}),
        (ManuallyFlushed(C, (SegmentId(11),)), {11}),
        (SegmentFlushed(C, A, SegmentId(11)), {11}),
        (CollectionAltered(C), set()),
        (PartitionCreated(C, PartitionId(3)), set()),
        (AllFlushed(), {11, 12, 13}),
    ],
)
def test_what_flushes_ends_the_segments_of_its_scope_and_only_those(
    effect: Effect, gone: set[int]
) -> None:
    objects = made()
    assert objects.apply(V, [effect], TimeTick(20)) == []
    assert flushed(objects) == gone
    before = (dict(objects.vchannels), dict(objects.segments))
    assert objects.apply(V, [effect], TimeTick(20)) == []
    assert (objects.vchannels, objects.segments) == before


@pytest.mark.parametrize("effect", [Truncated(C, (SegmentId(11),)), CollectionDropped(C)])
def test_another_vchannel_flushes_nothing_here(effect: Effect) -> None:
    objects = made()
    objects.apply(W, [CollectionCreated(C, (), b"", 1)], TimeTick(19))
    objects.apply(W, [effect], TimeTick(20))
    assert flushed(objects) == set()


def test_partitions_come_and_go() -> None:
    objects = made()
    assert objects.apply(V, [PartitionCreated(C, PartitionId(3))], TimeTick(20)) == []
    assert objects.apply(V, [PartitionDropped(C, A)], TimeTick(21)) == []
    assert objects.vchannels[V].partition_ids == (B, 3)
    (wrong,) = objects.apply(V, [PartitionCreated(C, B)], TimeTick(22))
    assert "has partition 2 already" in wrong


def test_a_schema_is_kept_as_long_as_somebody_may_read_by_it() -> None:
    objects = made()
    day = SCHEMA_KEPT_MS * MS
    for number, tick in enumerate((20, 20 + day // 2, 20 + day, 30 + day), start=2):
        objects.apply(V, [SchemaChanged(C, b"%d" % number, number)], TimeTick(tick))
    assert [each.version for each in objects.vchannels[V].schemas] == [2, 3, 4, 5]
    objects.apply(V, [SchemaChanged(C, b"6", 6)], TimeTick(40 + day + day // 2))
    assert [each.version for each in objects.vchannels[V].schemas] == [3, 4, 5, 6]


def test_however_often_a_schema_changes_only_so_many_are_kept() -> None:
    objects = RecoveryObjects()
    objects.apply(V, [CollectionCreated(C, (), b"", 0)], TimeTick(1))
    for version in range(1, SCHEMAS_MAX + 10):
        objects.apply(V, [SchemaChanged(C, b"s", version)], TimeTick(1 + version))
    versions = [each.version for each in objects.vchannels[V].schemas]
    assert versions == list(range(10, SCHEMAS_MAX + 10))


def test_members_of_a_transaction_share_a_tick_and_all_count_once() -> None:
    objects = made()
    rows = [Inserted(C, A, SegmentId(11), 2, 30, 1), Inserted(C, A, SegmentId(11), 3, 40, 1)]
    for _ in range(2):
        assert objects.apply(V, rows, TimeTick(20)) == []
    segment = objects.segments[SegmentId(11)]
    assert (segment.rows, segment.size_bytes, segment.modified_tick) == (5, 70, 20)


def test_deletes_count_in_the_segment_that_gathers_them_if_there_is_one() -> None:
    objects = made()
    assert objects.apply(V, [Deleted(C, 4)], TimeTick(20)) == []
    assert objects.segments[SegmentId(13)].rows == 4
    objects.apply(V, [AllFlushed()], TimeTick(21))
    assert objects.apply(V, [Deleted(C, 4)], TimeTick(22)) == []
    assert objects.segments[SegmentId(13)].rows == 4


def test_another_collection_has_no_business_here_and_rows_may_come_without_a_collection() -> None:
    objects = made()
    (wrong,) = objects.apply(V, [Truncated(CollectionId(8), (SegmentId(11),))], TimeTick(20))
    assert "belongs to collection 7," in wrong
    assert flushed(objects) == set()
    unassigned = Inserted(C, A, SegmentId(0), 1, 1, 1)
    assert objects.apply(W, [unassigned], TimeTick(21)) == []
    assert "no segment 0" in objects.apply(V, [unassigned], TimeTick(22))[0]


def test_a_dropped_vchannel_may_be_opened_again_and_an_unknown_one_has_nothing() -> None:
    objects = made()
    objects.apply(V, [CollectionDropped(C)], TimeTick(20))
    assert objects.vchannels[V].state is VChannelState.DROPPED
    late = SegmentCreated(C, A, SegmentId(21), 0, 0, SegmentLevel.ROWS, 1)
    assert "has no collection" in objects.apply(V, [late], TimeTick(21))[0]
    objects.apply(V, [CollectionCreated(C, (A,), b"", 1)], TimeTick(22))
    assert objects.vchannels[V].state is VChannelState.NORMAL
    early = SegmentCreated(C, A, SegmentId(16), 0, 0, SegmentLevel.ROWS, 1)
    assert "has no collection" in objects.apply(V, [early], TimeTick(16))[0]
    (wrong,) = objects.apply(W, [PartitionDropped(C, A)], TimeTick(23))
    assert "has no collection" in wrong


def test_a_segment_that_was_created_before_its_vchannel_was_dropped_is_no_surprise() -> None:
    objects = RecoveryObjects()
    objects.apply(V, [CollectionCreated(C, (A,), b"", 1)], TimeTick(10))
    objects.apply(V, [CollectionDropped(C)], TimeTick(20))
    replayed = SegmentCreated(C, A, SegmentId(11), 0, 0, SegmentLevel.ROWS, 1)
    assert objects.apply(V, [replayed], TimeTick(11)) == []
    objects.apply(V, [CollectionDropped(C)], TimeTick(20))
    assert flushed(objects) == {11}


def test_new_and_flushed_segments_and_collections_are_news_and_grown_ones_are_not() -> None:
    objects = made()
    news = [objects.has_news]
    for tick, effect in (
        (20, Inserted(C, A, SegmentId(11), 1, 10, None)),
        (21, SegmentFlushed(C, A, SegmentId(11))),
        (22, PartitionCreated(C, PartitionId(3))),
    ):
        objects.clear_changes()
        assert not objects.changed_segments
        objects.apply(V, [effect], TimeTick(tick))
        news.append(objects.has_news)
    assert news == [True, False, True, True]
    assert (objects.changed_vchannels, objects.changed_segments) == ({V}, set())
