"""Keys and values of segments in the meta table, and what one snapshot of a log writes there.

The node that owns a pchannel writes them together with its recovery snapshot, which follows the log
and is fenced by the owner's term. So no append waits for them, and a crash loses none: what was not
saved is replayed from the log.
"""

import json
from typing import Any, Final

from broker.core.naming import pchannel_of
from broker.model.effect import SegmentLevel
from broker.model.ids import CollectionId, PartitionId, SegmentId, TimeTick
from broker.model.master.segment_meta import (
    SegmentMeta,
    SegmentMetaState,
    SegmentOrigin,
    VChannelMeta,
)
from broker.model.snapshot import (
    SegmentSnapshot,
    SegmentState,
    SnapshotChange,
    VChannelSnapshot,
    VChannelState,
)
from broker.unreadable import UNREADABLE

VERSION: Final = 1
SEGMENTS: Final = "segment/"
"""`segment/<id>`: the record of one segment."""
MEMBERS: Final = "segment-of/"
"""`segment-of/<collection>/<partition>/<id>`: which segments a partition has."""
FLUSHES: Final = "segment-flush/"
"""`segment-flush/<tick>/<id>`: flushed and not acknowledged, in the order of their ticks."""
OPEN: Final = "segment-open/"
"""`segment-open/<id>`: has reservations, and is growing or sealed."""
ENDED: Final = "segment-ended/"
"""`segment-ended/<ms>/<id>`: acknowledged, passed or dropped at that time; forgotten later."""
BINLOGS: Final = "segment-binlogs/"
"""`segment-binlogs/<id>`: files that writers have made of a growing segment."""
LOG_COLLECTIONS: Final = "log-collection/"
"""`log-collection/<collection>/<vchannel>`: the vchannels of a collection, by their logs."""
LOG_VCHANNELS: Final = "log-vchannel/"
"""`log-vchannel/<vchannel>`: the collection that the log has on it."""
CHANGED_VCHANNELS: Final = "log-vchannel-changed/"
"""`log-vchannel-changed/<vchannel>`: its segments may have been dropped since the master looked."""


def segment_key(id: SegmentId) -> str:
    """The key of a segment's record."""
    return f"{SEGMENTS}{id}"


def members_prefix(collection_id: CollectionId, partition_id: PartitionId | None) -> str:
    """The prefix of the segments of a partition; None: of the whole collection."""
    prefix = f"{MEMBERS}{collection_id}/"
    return prefix if partition_id is None else f"{prefix}{partition_id}/"


def member_key(meta: SegmentMeta) -> str:
    """The key that lists the segment in its partition; keys sort by id."""
    return f"{members_prefix(meta.collection_id, meta.partition_id)}{meta.id:020}"


def flush_key(meta: SegmentMeta) -> str:
    """The key that lists a flushed segment until it is acknowledged; keys sort by tick."""
    return f"{FLUSHES}{meta.close_tick:020}/{meta.id:020}"


def ended_key(meta: SegmentMeta, now_ms: int) -> str:
    """The key that lists a segment among those to forget."""
    return f"{ENDED}{now_ms:020}/{meta.id:020}"


def time_in(key: str) -> int:
    """The tick, or the milliseconds, that a key of `flush_key` or `ended_key` names."""
    return int(key.split("/")[1])


def open_key(id: SegmentId) -> str:
    """The key that lists an open segment with reservations."""
    return f"{OPEN}{id}"


def binlogs_key(id: SegmentId) -> str:
    """The key of the number of files of a segment."""
    return f"{BINLOGS}{id}"


def log_collection_prefix(collection_id: CollectionId) -> str:
    """The prefix of the vchannels that a collection has by their logs."""
    return f"{LOG_COLLECTIONS}{collection_id}/"


def id_in(key: str) -> SegmentId:
    """The segment that a key of `member_key` or `flush_key` names."""
    return SegmentId(int(key.rpartition("/")[2]))


def place_in(key: str) -> tuple[CollectionId, PartitionId]:
    """The collection and the partition that a key of `member_key` names."""
    _, collection_id, partition_id, _ = key.split("/")
    return CollectionId(int(collection_id)), PartitionId(int(partition_id))


def encode_segment_meta(meta: SegmentMeta) -> bytes:
    """The record of a segment: the fields of Milvus's SegmentMeta first, then ours."""
    return _encode(
        {
            "segment_id": meta.id,
            "collection_id": meta.collection_id,
            "partition_tag": meta.partition_tag,
            "channel_start": meta.channel_start,
            "channel_end": meta.channel_end,
            "open_time": meta.open_tick,
            "close_time": meta.close_tick,
            "num_rows": meta.rows,
            "mem_size": meta.size_bytes,
            "partition_id": meta.partition_id,
            "modified_time": meta.modified_tick,
            "state": meta.state.value,
            "origin": meta.origin.value,
            "level": meta.level.name,
            "vchannel": meta.vchannel,
            "rows_max": meta.rows_max,
            "size_bytes_max": meta.size_bytes_max,
        }
    )


def decode_segment_meta(value: bytes) -> SegmentMeta:
    """The segment; raises ValueError for a record that is damaged or of another version."""
    fields = _decode(value)
    try:
        return SegmentMeta(
            id=SegmentId(fields["segment_id"]),
            collection_id=CollectionId(fields["collection_id"]),
            partition_id=PartitionId(fields["partition_id"]),
            partition_tag=fields["partition_tag"],
            channel_start=fields["channel_start"],
            channel_end=fields["channel_end"],
            open_tick=TimeTick(fields["open_time"]),
            close_tick=TimeTick(fields["close_time"]),
            rows=fields["num_rows"],
            size_bytes=fields["mem_size"],
            modified_tick=TimeTick(fields["modified_time"]),
            state=SegmentMetaState(fields["state"]),
            origin=SegmentOrigin(fields["origin"]),
            level=SegmentLevel[fields["level"]],
            vchannel=fields["vchannel"],
            rows_max=fields["rows_max"],
            size_bytes_max=fields["size_bytes_max"],
        )
    except UNREADABLE as error:
        raise ValueError(f"the record of a segment is damaged: {error!r}") from error


def encode_vchannel_meta(vchannel: VChannelSnapshot) -> bytes:
    """The record of a vchannel that has a collection in its log."""
    return _encode(
        {
            "name": vchannel.name,
            "collection_id": vchannel.collection_id,
            "partition_ids": vchannel.partition_ids,
            "dropped": vchannel.state is VChannelState.DROPPED,
        }
    )


def decode_vchannel_meta(value: bytes) -> VChannelMeta:
    """The vchannel; raises ValueError for a record that is damaged or of another version."""
    fields = _decode(value)
    try:
        return VChannelMeta(
            name=fields["name"],
            collection_id=CollectionId(fields["collection_id"]),
            partition_ids=tuple(map(PartitionId, fields["partition_ids"])),
            dropped=bool(fields["dropped"]),
        )
    except UNREADABLE as error:
        raise ValueError(f"the record of a vchannel is damaged: {error!r}") from error


def records_of(change: SnapshotChange) -> tuple[dict[str, bytes], list[str]]:
    """What a saved snapshot writes to the meta table: puts and deletes.

    Deletes are of vchannels that the log has forgotten. A flushed segment is never deleted here:
    the log forgets it at once, the master keeps it.
    """
    puts: dict[str, bytes] = {}
    for segment in change.segments:
        meta = logged_segment(segment)
        puts[segment_key(meta.id)] = encode_segment_meta(meta)
        puts[member_key(meta)] = b"1"
        if meta.state is SegmentMetaState.FLUSHED:
            puts[flush_key(meta)] = b"1"
    for vchannel in change.vchannels:
        puts[LOG_VCHANNELS + vchannel.name] = encode_vchannel_meta(vchannel)
        puts[log_collection_prefix(vchannel.collection_id) + vchannel.name] = b"1"
        # After the record in key order of the write, and in the same write or a later one.
        puts[CHANGED_VCHANNELS + vchannel.name] = b"1"
    return puts, [LOG_VCHANNELS + name for name in change.gone_vchannels]


def logged_segment(segment: SegmentSnapshot) -> SegmentMeta:
    """The segment of a log, as the master knows it."""
    flushed = segment.state is SegmentState.FLUSHED
    number = channel_number(segment.vchannel)
    return SegmentMeta(
        id=segment.id,
        collection_id=segment.collection_id,
        partition_id=segment.partition_id,
        partition_tag="",
        channel_start=number,
        channel_end=number,
        open_tick=segment.created_tick,
        # A flushed segment has no newer message than its Flush.
        close_tick=segment.tick if flushed else TimeTick(0),
        rows=segment.rows,
        size_bytes=segment.size_bytes,
        modified_tick=segment.modified_tick,
        state=SegmentMetaState.FLUSHED if flushed else SegmentMetaState.GROWING,
        origin=SegmentOrigin.LOG,
        level=segment.level,
        vchannel=segment.vchannel,
        rows_max=segment.rows_max,
        size_bytes_max=segment.size_bytes_max,
    )


def channel_number(name: str) -> int:
    """The number at the end of the name of the channel's pchannel; 0 where it has none."""
    digits = pchannel_of(name).rpartition("_")[2]
    # Short: Python refuses to convert thousands of digits.
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 20 else 0


def _encode(fields: dict[str, Any]) -> bytes:
    return json.dumps({"version": VERSION, **fields}, separators=(",", ":")).encode()


def _decode(value: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(value)
    except UNREADABLE as error:
        raise ValueError(f"it is not JSON: {error!r}") from error
    if not isinstance(fields, dict) or fields.get("version") != VERSION:
        raise ValueError(f"it is not a record of version {VERSION}, which this program knows")
    return fields
