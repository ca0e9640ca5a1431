"""Snapshots that an earlier version saved, and what is saved now."""

import json

import pytest

from broker.meta.recovery_records import decode_vchannel, encode_vchannel
from broker.model.ids import CollectionId, PartitionId, TimeTick, VChannelName
from broker.model.snapshot import VChannelSnapshot, VChannelState

SAVED = VChannelSnapshot(
    name=VChannelName("p_0_7v0"),
    collection_id=CollectionId(7),
    state=VChannelState.NORMAL,
    partition_ids=(PartitionId(2), PartitionId(3)),
    schemas=(),
    created_tick=TimeTick(5),
    tick=TimeTick(6),
    default_partition_id=PartitionId(1),
)


@pytest.mark.parametrize("default", [PartitionId(1), None])
def test_the_default_partition_is_kept_although_it_was_dropped(default: PartitionId | None) -> None:
    saved = VChannelSnapshot(
        SAVED.name, SAVED.collection_id, SAVED.state, SAVED.partition_ids, (),
        SAVED.created_tick, SAVED.tick, default,
    )  # fmt: skip
    assert decode_vchannel(encode_vchannel(saved)) == saved


@pytest.mark.parametrize(("partitions", "default"), [([2, 3], 2), ([], None)])
def test_in_an_older_snapshot_the_first_partition_is_the_default_one(
    partitions: list[int], default: int | None
) -> None:
    fields = json.loads(encode_vchannel(SAVED))
    del fields["default_partition"]
    older = json.dumps(fields | {"partitions": partitions}).encode()
    assert decode_vchannel(older).default_partition_id == default
