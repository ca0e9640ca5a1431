"""Keys and values of a recovery snapshot: JSON with a version.

JSON, because a person may have to read it in an emergency.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from broker.core.space.purges import passed_fields, read_passed
from broker.meta.group_fields import group_fields, read_group
from broker.model.effect import SegmentLevel
from broker.model.groups.consumer_group import GroupKey, GroupSnapshot
from broker.model.ids import (
    CollectionId,
    MessageId,
    PartitionId,
    PChannelName,
    SegmentId,
    Term,
    TimeTick,
    TxnId,
    VChannelName,
)
from broker.model.message import AppendedInTxn
from broker.model.producer_numbers import ProducedBatch
from broker.model.retention.purge import Purge
from broker.model.snapshot import (
    FinishedTxn,
    SchemaStart,
    SegmentSnapshot,
    SegmentState,
    TxnEnd,
    VChannelSnapshot,
    VChannelState,
    WalCheckpoint,
)
from broker.model.txn import TxnContext
from broker.unreadable import UNREADABLE

VERSION = 1
# Stored by its place in this tuple: add at the end only.
_ENDS = (TxnEnd.COMMITTED, TxnEnd.ROLLED_BACK, TxnEnd.EXPIRED)
_END_NUMBERS = {end: number for number, end in enumerate(_ENDS)}
_FINISHED_COLUMNS = (
    *("vchannel", "begin_id", "bodies", "end"),
    *("id", "ended", "confirmed", "txn", "keepalive_ms"),
)
T = TypeVar("T")


class Unreadable(Exception):
    """A stored part is damaged, or of a version this program does not know."""


@dataclass(frozen=True, slots=True)
class Head:
    """The record that is written last: who may write, and how far the snapshot reaches.

    `claims` counts the claims of the pchannel, so that two at one term differ. `listed`: the meta
    table has every segment and vchannel of the snapshot; older releases did not write them there.
    """

    term: Term
    claims: int
    checkpoint: WalCheckpoint | None
    listed: bool = False


@dataclass(frozen=True, slots=True)
class SnapshotKeys:
    """The keys of one pchannel's snapshot."""

    channel: PChannelName

    @property
    def prefix(self) -> str:
        return f"recovery/{self.channel}/"

    @property
    def head(self) -> str:
        return f"{self.prefix}checkpoint"

    @property
    def finished(self) -> str:
        return f"{self.prefix}finished"

    @property
    def producers(self) -> str:
        return f"{self.prefix}producers"

    @property
    def parts(self) -> str:
        return f"{self.prefix}part/"

    @property
    def vchannels(self) -> str:
        return f"{self.prefix}vchannel/"

    @property
    def segments(self) -> str:
        return f"{self.prefix}segment/"

    @property
    def groups(self) -> str:
        return f"{self.prefix}group/"

    def group(self, key: GroupKey) -> str:
        return f"{self.groups}{key.vchannel}/{key.name}"

    @property
    def purges(self) -> str:
        return f"{self.prefix}purge/"


def encode_head(head: Head) -> bytes:
    """The record of the checkpoint."""
    at = head.checkpoint
    return _encode(
        {
            "term": head.term,
            "claims": head.claims,
            "checkpoint": None if at is None else [at.id, at.tick],
            "listed": head.listed,
        }
    )


def decode_head(value: bytes) -> Head:
    """The checkpoint; raises Unreadable."""

    def parse(fields: dict[str, Any]) -> Head:
        at = fields["checkpoint"]
        return Head(
            term=Term(int(fields["term"])),
            claims=int(fields["claims"]),
            checkpoint=at and WalCheckpoint(MessageId(int(at[0])), TimeTick(int(at[1]))),
            listed=bool(fields.get("listed")),
        )

    return _decode(value, parse)


def encode_vchannel(vchannel: VChannelSnapshot) -> bytes:
    """The record of one vchannel."""
    return _encode(
        {
            "name": vchannel.name,
            "collection": vchannel.collection_id,
            "state": vchannel.state.name,
            "partitions": vchannel.partition_ids,
            "default_partition": vchannel.default_partition_id,
            "schemas": [
                [each.version, b64encode(each.schema).decode(), each.start_tick]
                for each in vchannel.schemas
            ],
            "created_tick": vchannel.created_tick,
            "tick": vchannel.tick,
        }
    )


def decode_vchannel(value: bytes) -> VChannelSnapshot:
    """The vchannel; raises Unreadable."""

    def parse(fields: dict[str, Any]) -> VChannelSnapshot:
        partitions = tuple(PartitionId(each) for each in fields["partitions"])
        # Older versions did not save it. Partitions are saved in the order of their creation.
        default = fields.get("default_partition", partitions[0] if partitions else None)
        return VChannelSnapshot(
            name=VChannelName(fields["name"]),
            collection_id=CollectionId(fields["collection"]),
            state=VChannelState[fields["state"]],
            partition_ids=partitions,
            schemas=tuple(
                SchemaStart(version, b64decode(schema, validate=True), TimeTick(tick))
                for version, schema, tick in fields["schemas"]
            ),
            created_tick=TimeTick(fields["created_tick"]),
            tick=TimeTick(fields["tick"]),
            default_partition_id=None if default is None else PartitionId(default),
        )

    return _decode(value, parse)


def encode_segment(segment: SegmentSnapshot) -> bytes:
    """The record of one segment."""
    return _encode(
        {
            "id": segment.id,
            "vchannel": segment.vchannel,
            "collection": segment.collection_id,
            "partition": segment.partition_id,
            "state": segment.state.name,
            "level": segment.level.name,
            "schema_version": segment.schema_version,
            "rows": segment.rows,
            "size_bytes": segment.size_bytes,
            "rows_max": segment.rows_max,
            "size_bytes_max": segment.size_bytes_max,
            "created_tick": segment.created_tick,
            "modified_tick": segment.modified_tick,
            "tick": segment.tick,
        }
    )


def decode_segment(value: bytes) -> SegmentSnapshot:
    """The segment; raises Unreadable."""

    def parse(fields: dict[str, Any]) -> SegmentSnapshot:
        return SegmentSnapshot(
            id=SegmentId(fields["id"]),
            vchannel=VChannelName(fields["vchannel"]),
            collection_id=CollectionId(fields["collection"]),
            partition_id=PartitionId(fields["partition"]),
            state=SegmentState[fields["state"]],
            level=SegmentLevel[fields["level"]],
            schema_version=fields["schema_version"],
            rows=fields["rows"],
            size_bytes=fields["size_bytes"],
            rows_max=fields["rows_max"],
            size_bytes_max=fields["size_bytes_max"],
            created_tick=TimeTick(fields["created_tick"]),
            modified_tick=TimeTick(fields["modified_tick"]),
            tick=TimeTick(fields["tick"]),
        )

    return _decode(value, parse)


def encode_finished(finished: Sequence[FinishedTxn], tick: TimeTick) -> bytes:
    """The transactions that ended up to `tick`, by columns: there may be thousands."""
    outcomes = [each.outcome for each in finished]
    vchannels = list(dict.fromkeys([each.vchannel for each in finished]))
    index = {name: number for number, name in enumerate(vchannels)}
    return _encode(
        {
            "tick": tick,
            "vchannels": vchannels,
            "vchannel": [index[each.vchannel] for each in finished],
            "begin_id": [each.begin_id for each in finished],
            "bodies": [each.bodies for each in finished],
            "end": [_END_NUMBERS[each.end] for each in finished],
            "id": [each.id for each in outcomes],
            "ended": [each.tick for each in outcomes],
            "confirmed": [each.last_confirmed_id for each in outcomes],
            "txn": [each.txn.id for each in outcomes],
            "keepalive_ms": [each.txn.keepalive_ms for each in outcomes],
        }
    )


def decode_finished(value: bytes) -> tuple[tuple[FinishedTxn, ...], TimeTick]:
    """The transactions and the tick; raises Unreadable."""

    def parse(fields: dict[str, Any]) -> tuple[tuple[FinishedTxn, ...], TimeTick]:
        names = fields["vchannels"]
        columns = [fields[name] for name in _FINISHED_COLUMNS]
        found = tuple(
            FinishedTxn(
                vchannel=names[vchannel],
                begin_id=MessageId(begin_id),
                bodies=bodies,
                end=_ENDS[end],
                outcome=AppendedInTxn(
                    MessageId(id),
                    TimeTick(ended),
                    MessageId(confirmed),
                    TxnContext(TxnId(txn_id), keepalive_ms),
                ),
            )
            for vchannel, begin_id, bodies, end, id, ended, confirmed, txn_id, keepalive_ms in zip(
                *columns, strict=True
            )
        )
        return found, TimeTick(fields["tick"])

    return _decode(value, parse)


def encode_producers(runs: Iterable[ProducedBatch], tick: TimeTick) -> bytes:
    """What producers stored up to `tick`, one line for each run."""
    lines = [
        [each.producer, each.sequence, each.count, each.id, each.tick, each.last_confirmed_id]
        for each in runs
    ]
    return _encode({"tick": tick, "runs": lines})


def decode_producers(value: bytes) -> tuple[tuple[ProducedBatch, ...], TimeTick]:
    """The runs and the tick; raises Unreadable."""

    def parse(fields: dict[str, Any]) -> tuple[tuple[ProducedBatch, ...], TimeTick]:
        runs = tuple(
            ProducedBatch(
                producer, sequence, count, MessageId(id), TimeTick(tick), MessageId(confirmed)
            )
            for producer, sequence, count, id, tick, confirmed in fields["runs"]
        )
        return runs, TimeTick(fields["tick"])

    return _decode(value, parse)


def encode_group(group: GroupSnapshot) -> bytes:
    """The record of one consumer group."""
    return _encode(group_fields(group))


def decode_group(value: bytes) -> GroupSnapshot:
    """The group; raises Unreadable."""
    return _decode(value, read_group)


def encode_stored_purge(purge: Purge) -> bytes:
    """The record of how far one vchannel is purged."""
    return _encode(
        {
            "vchannel": purge.vchannel,
            "upto": purge.upto,
            "next_id": purge.next_id,
            "whole_id": purge.whole_id,
            "tick": purge.tick,
            "newest": purge.newest,
            "passed": passed_fields(purge.passed),
        }
    )


def decode_stored_purge(value: bytes) -> Purge:
    """The purge; raises Unreadable."""

    def parse(fields: dict[str, Any]) -> Purge:
        return Purge(
            vchannel=fields["vchannel"],
            upto=TimeTick(fields["upto"]),
            next_id=MessageId(fields["next_id"]),
            whole_id=MessageId(fields["whole_id"]),
            tick=TimeTick(fields["tick"]),
            newest=None if fields.get("newest") is None else TimeTick(fields["newest"]),
            passed=read_passed(fields.get("passed", ())),
        )

    return _decode(value, parse)


def _encode(fields: dict[str, Any]) -> bytes:
    return json.dumps({"version": VERSION, **fields}, separators=(",", ":")).encode()


def _decode(value: bytes, parse: Callable[[dict[str, Any]], T]) -> T:
    try:
        fields = json.loads(value)
        if fields["version"] != VERSION:
            raise Unreadable(
                f"it is of version {fields['version']!r}; this program knows version {VERSION}"
            )
        return parse(fields)
    except UNREADABLE as error:
        raise Unreadable(f"it is damaged: {error!r}") from error
