"""JSON that is stored: records of the metadata, and changes that lie in logs."""

from broker.codec.announced import read_said
from broker.coordinator.broadcast.broadcast_records import decode_task
from broker.coordinator.commit.commit_records import decode_app
from broker.coordinator.records import (
    decode_cluster,
    decode_collection,
    decode_member,
    decode_number,
    decode_pchannel,
)
from broker.core.compaction.compaction_table import UnreadableCompaction, decode_compacted
from broker.core.groups.group_changes import UnreadableChange, decode_change
from broker.core.master.ddl_answer import read_answer
from broker.core.master.segment_records import decode_segment_meta, decode_vchannel_meta
from broker.core.space.purges import UnreadablePurge, decode_purge
from broker.meta import recovery_records
from broker.meta.compaction_records import decode_stored_compacted
from broker.model.ids import TimeTick
from broker.ports.meta import MetaError
from broker.timesync.cursor_records import decode_cursor
from broker.timesync.holds.removed_records import decode_removed
from tests.fuzz.choice import Reader, numbered, read_by_first_byte

ALLOWED = (
    *(MetaError, UnreadableChange, UnreadableCompaction, UnreadablePurge),
    *(recovery_records.Unreadable, ValueError),
)


def check(data: bytes) -> None:
    """A value, or the error of the place where it is stored."""
    read_by_first_byte(data, READERS, ALLOWED)


READERS: tuple[Reader, ...] = (
    lambda data: read_said(data.decode("utf-8", "replace")),
    lambda data: read_answer(data.decode("utf-8", "replace")),
    lambda data: decode_task("key", data),
    lambda data: decode_app("key", data),
    lambda data: decode_cluster("key", data),
    lambda data: decode_collection("key", data),
    lambda data: decode_member("key", data),
    lambda data: decode_number("key", data),
    lambda data: decode_pchannel("key", data),
    lambda data: decode_compacted("a_1v0", data, TimeTick(1)),
    lambda data: decode_purge("a_1v0", data, TimeTick(1)),
    lambda data: decode_cursor("key", data),
    lambda data: decode_removed("key", data),
    decode_change,
    decode_segment_meta,
    decode_vchannel_meta,
    decode_stored_compacted,
    recovery_records.decode_head,
    recovery_records.decode_vchannel,
    recovery_records.decode_segment,
    recovery_records.decode_finished,
    recovery_records.decode_producers,
    recovery_records.decode_group,
    recovery_records.decode_stored_purge,
)

_PCHANNEL = (
    b'{"version":1,"name":"p","term":2,"state":"ASSIGNED","node":1,"access":"READ_WRITE",'
    b'"histories":[[1,2]],"assigned_ms":5,"id":7,"vchannels":["a_1v0"],"created_ms":1}'
)
_COMPACTED = (
    b'{"version":1,"upto":5,"next_id":6,"whole_id":7,"clean":1,"horizon":2,"horizon_ms":3,'
    b'"tombstones":4,"vchannel":"a_1v0","tick":9,"first_id":1,"passed":[]}'
)
INPUT_BYTES_MAX = 8192
"""More digits than Python converts."""
SEEDS = numbered(
    (
        _PCHANNEL,
        _COMPACTED,
        b'{"version":2,"name":"c","epoch":1,"positions":{"p":[1,0,2]},"moved_ms":5}',
        b'{"group":"g","change":"created","lease_ms":5,"floor":7,"limit":null,"spans":[[1,2]]}',
        b'{"group":"g","change":"acked in txn","txn":5,"times":1,"spans":[[1,2],[3,4]]}',
        b'{"app":"a","done":null,"attempt":{"number":1},"type":5,"keys":[["CLUSTER","k",true]]}',
        b'{"id":1e999,"partition":Infinity,"version":1,"upto":NaN}',
        b"[" * 2000,
    ),
    len(READERS),
)
