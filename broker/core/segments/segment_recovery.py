"""Rebuilds the segment table of a new owner from a snapshot and the effects of open transactions.

A growing segment keeps growing. If an earlier owner had sealed a segment and created the next one,
the older one is sealed again, so that each segment is flushed once.
"""

from collections.abc import Iterable, Mapping

from broker.core.segments.segment_sealing import GrowingSegment, SegmentLimits
from broker.core.segments.segment_table import SegmentTable
from broker.model.effect import Deleted, Inserted
from broker.model.ids import TxnId
from broker.model.snapshot import SegmentSnapshot, SegmentState, VChannelSnapshot, VChannelState

PendingEffects = Mapping[TxnId, Iterable[Inserted | Deleted]]
"""The effects so far of each open transaction, each with the segment that took it."""


def recovered_segments(
    vchannels: Iterable[VChannelSnapshot],
    segments: Iterable[SegmentSnapshot],
    pending: PendingEffects,
    limits: SegmentLimits,
    *,
    required: bool,
) -> SegmentTable:
    """The segment table for a snapshot's `vchannels` and `segments` plus open transactions."""
    table = SegmentTable(limits, required=required)
    for each in vchannels:
        version = each.schemas[-1].version if each.schemas else 0
        default = each.default_partition_id
        table.create_collection(each.name, each.collection_id, each.partition_ids, version, default)
    growing = {
        each.id: _segment(each)
        for each in sorted(segments, key=lambda it: it.id)
        if each.state is SegmentState.GROWING and each.vchannel in table.collections
    }
    for txn_id, effects in pending.items():
        for effect in effects:
            segment = growing.get(effect.segment_id)
            if segment is not None:
                segment.add(effect.rows, effect.size_bytes, txn_id)
    for segment in growing.values():
        table.restore(segment)
    # Dropped collections were created above, too: dropping them here makes the table refuse late
    # rows.
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
