"""The shard state that a new owner begins with: what was saved, and what open transactions add.

It only translates. A segment that grew goes on growing; where an earlier owner had sealed one and
created the next, the older one is sealed again, so each is flushed once.
Next: broker/core/segments/segment_table.py
"""

from collections.abc import Iterable, Mapping

from broker.core.segments.segment_sealing import GrowingSegment, SegmentLimits
from broker.core.segments.segment_table import SegmentTable
from broker.model.effect import Deleted, Inserted, SegmentLevel
from broker.model.ids import SegmentId, TxnId
from broker.model.snapshot import SegmentSnapshot, SegmentState, VChannelSnapshot, VChannelState

PendingEffects = Mapping[TxnId, tuple[str, Iterable[Inserted | Deleted]]]
"""Of each open transaction: its vchannel, and what it has added so far."""


def recovered_segments(
    vchannels: Iterable[VChannelSnapshot],
    segments: Iterable[SegmentSnapshot],
    pending: PendingEffects,
    limits: SegmentLimits,
    *,
    required: bool,
) -> SegmentTable:
    """What `vchannels` and `segments`, which know of no open transaction, come to with them."""
    table = SegmentTable(limits, required=required)
    for each in vchannels:
        version = each.schemas[-1].version if each.schemas else 0
        table.create_collection(each.name, each.collection_id, each.partition_ids, version)
    growing = {
        each.id: _segment(each)
        for each in sorted(segments, key=lambda it: it.id)
        if each.state is SegmentState.GROWING and each.vchannel in table.collections
    }
    for txn_id, (vchannel, effects) in pending.items():
        for effect in effects:
            for segment in _of(effect, vchannel, growing):
                size_bytes = effect.size_bytes if isinstance(effect, Inserted) else 0
                segment.add(effect.rows, size_bytes, txn_id)
    for segment in growing.values():
        table.restore(segment)
    for each in sorted(vchannels, key=lambda it: it.tick):  # the oldest is forgotten first
        if each.state is VChannelState.DROPPED:
            table.drop_collection(each.name)
    return table


def _segment(saved: SegmentSnapshot) -> GrowingSegment:
    return GrowingSegment(
        id=saved.id,
        vchannel=saved.vchannel,
        collection_id=saved.collection_id,
        partition_id=saved.partition_id,
        level=saved.level,
        bytes_max=saved.size_bytes_max,
        rows_max=saved.rows_max,
        created_tick=saved.created_tick,
        modified_tick=saved.modified_tick,
        rows=saved.rows,
        size_bytes=saved.size_bytes,
    )


def _of(
    effect: Inserted | Deleted, vchannel: str, growing: Mapping[SegmentId, GrowingSegment]
) -> list[GrowingSegment]:
    """Deletes name no segment: whichever gathers those of the vchannel may have got them."""
    if isinstance(effect, Inserted):
        found = growing.get(effect.segment_id)
        return [] if found is None else [found]
    return [
        segment
        for segment in growing.values()
        if segment.vchannel == vchannel and segment.level is SegmentLevel.DELETES
    ]
