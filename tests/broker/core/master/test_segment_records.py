"""Records of segments and vchannels in the meta table."""

import json

import pytest

from broker.core.master.segment_records import (
    binlogs_key,
    channel_number,
    decode_segment_meta,
    decode_vchannel_meta,
    encode_segment_meta,
    encode_vchannel_meta,
    ended_key,
    flush_key,
    id_in,
    logged_segment,
    member_key,
    members_prefix,
    open_key,
    place_in,
    records_of,
    segment_key,
    time_in,
)
from broker.model.effect import SegmentLevel
from broker.model.ids import (
    CollectionId,
    MessageId,
    PartitionId,
    SegmentId,
    TimeTick,
    VChannelName,
)
from broker.model.master.segment_meta import SegmentMetaState, VChannelMeta
from broker.model.snapshot import (
    SegmentSnapshot,
    SegmentState,
    SnapshotChange,
    VChannelSnapshot,
    VChannelState,
    WalCheckpoint,
)

NAME = VChannelName("by-dev-rootcoord-dml_3_7v0")


def segment(id: int, state: SegmentState) -> SegmentSnapshot:
    return SegmentSnapshot(
        id=SegmentId(id),
        vchannel=NAME,
        collection_id=CollectionId(7),
        partition_id=PartitionId(8),
        state=state,
        level=SegmentLevel.ROWS,
        schema_version=1,
        rows=3,
        size_bytes=30,
        rows_max=100,
        size_bytes_max=1000,
        created_tick=TimeTick(6),
        modified_tick=TimeTick(9),
        tick=TimeTick(12),
    )


def vchannel(state: VChannelState) -> VChannelSnapshot:
    partitions = (PartitionId(8), PartitionId(9))
    return VChannelSnapshot(NAME, CollectionId(7), state, partitions, (), TimeTick(1), TimeTick(2))


@pytest.mark.parametrize("state", SegmentState)
def test_a_segment_is_read_as_it_was_written_with_the_fields_that_milvus_names(
    state: SegmentState,
) -> None:
    meta = logged_segment(segment(5, state))
    record = encode_segment_meta(meta)
    assert decode_segment_meta(record) == meta
    flushed = state is SegmentState.FLUSHED
    assert (meta.state is SegmentMetaState.FLUSHED) is flushed
    assert meta.close_tick == (12 if flushed else 0)
    fields = json.loads(record)
    assert fields["segment_id"] == 5
    assert (fields["channel_start"], fields["channel_end"]) == (3, 3)
    assert (fields["open_time"], fields["num_rows"], fields["mem_size"]) == (6, 3, 30)


@pytest.mark.parametrize("state", VChannelState)
def test_a_vchannel_is_read_as_it_was_written(state: VChannelState) -> None:
    meta = decode_vchannel_meta(encode_vchannel_meta(vchannel(state)))
    partitions = (PartitionId(8), PartitionId(9))
    assert meta == VChannelMeta(NAME, CollectionId(7), partitions, state is VChannelState.DROPPED)


@pytest.mark.parametrize("decode", [decode_segment_meta, decode_vchannel_meta])
@pytest.mark.parametrize(
    "value", [b"", b"torn", b"[]", b'{"version":2}', b'{"version":1}', b"\xff", b"[" * 5000]
)
def test_what_cannot_be_read_is_an_error(decode: object, value: bytes) -> None:
    assert callable(decode)
    with pytest.raises(ValueError, match=r".+"):
        decode(value)


def test_keys_list_the_segments_of_a_partition_and_the_flushes_in_order() -> None:
    first, second = (logged_segment(segment(it, SegmentState.FLUSHED)) for it in (9, 10))
    assert segment_key(first.id) == "segment/9"
    assert member_key(first) < member_key(second)
    assert flush_key(first) < flush_key(second)
    assert member_key(first).startswith(members_prefix(first.collection_id, first.partition_id))
    assert member_key(first).startswith(members_prefix(first.collection_id, None))
    assert not member_key(first).startswith(members_prefix(CollectionId(70), None))
    assert id_in(member_key(first)) == id_in(flush_key(first)) == 9
    assert id_in(ended_key(first, 5)) == id_in(binlogs_key(first.id)) == 9
    assert id_in(open_key(first.id)) == 9
    assert place_in(member_key(first)) == (first.collection_id, first.partition_id)
    assert (time_in(flush_key(first)), time_in(ended_key(first, 5))) == (12, 5)


def test_a_saved_snapshot_lists_its_segments_and_vchannels() -> None:
    growing, flushed = segment(1, SegmentState.GROWING), segment(2, SegmentState.FLUSHED)
    change = SnapshotChange(
        WalCheckpoint(MessageId(1), TimeTick(1)),
        vchannels=(vchannel(VChannelState.NORMAL),),
        segments=(growing, flushed),
        gone_vchannels=(VChannelName("gone_1v0"),),
        gone_segments=(SegmentId(3),),
    )
    puts, deletes = records_of(change)
    assert list(puts) == [
        "segment/1",
        member_key(logged_segment(growing)),
        "segment/2",
        member_key(logged_segment(flushed)),
        flush_key(logged_segment(flushed)),
        f"log-vchannel/{NAME}",
        f"log-collection/7/{NAME}",
        f"log-vchannel-changed/{NAME}",
    ]
    assert deletes == ["log-vchannel/gone_1v0"]


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("by-dev-rootcoord-dml_12_7v1", 12),
        ("by-dev-rootcoord-dml_4", 4),
        ("plain", 0),
        ("a_" + "9" * 5000, 0),
    ],
)
def test_a_channel_has_the_number_of_its_pchannel(name: str, number: int) -> None:
    assert channel_number(name) == number
