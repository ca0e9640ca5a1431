"""Keys and values of the coordinator's records in the metadata store: JSON with a version.

JSON, because there is little data and a person may have to read it in an emergency.
"""

import base64
from dataclasses import dataclass
from typing import Any

from broker.coordinator.json_records import UnreadableRecord, decode_fields, encode_fields
from broker.core.cluster.assignment import Owner, PChannelMeta
from broker.core.cluster.node_leases import NodeMember
from broker.model.channel import AccessMode, PChannelState
from broker.model.collection import Collection, RowSchema
from broker.model.ids import (
    CollectionId,
    NodeId,
    PartitionId,
    PChannelName,
    Term,
    TimeTick,
    VChannelName,
)
from broker.model.retention.compaction import Compaction
from broker.model.retention.policy import Retention

CLUSTER_KEY = "cluster"
TICK_BOUND_KEY = "tso/bound"
INCARNATION_KEY = "counter/incarnation"
COLLECTION_ID_KEY = "counter/collection"
COLLECTION_PREFIX = "collection/"
IN_DATABASE_PREFIX = "db-collection/"
FIRST_COLLECTION_ID = 100
"""Smaller ids are reserved for the broker."""
PCHANNEL_PREFIX = "pchannel/"
SESSION_KEY = "counter/session"
NODE_PREFIX = "node/"
LEASE_KEY = "lease"
ALTER_KEY = "wal/alter"
"""There is one in a cluster whose log was switched, or is being: `broker/app/stores`."""
PAUSE_KEY = "consumption/paused"
STREAMING_VERSION_KEY = "streaming/version"


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a cluster is founded with. Only `pchannels` changes later: it may grow.

    `identity` distinguishes clusters of the same name; "" in a record of an older release.
    """

    pchannels: tuple[PChannelName, ...]
    control_host: PChannelName
    identity: str = ""


def pchannel_key(name: PChannelName) -> str:
    """The key of a pchannel's record, which holds its newest term."""
    return PCHANNEL_PREFIX + name


def collection_key(name: str, database: str = "") -> str:
    """The key of a collection; those of the default database are where earlier releases had all."""
    return collection_prefix(database) + name


def collection_prefix(database: str = "") -> str:
    """The prefix of the keys of all collections of a database."""
    return f"{IN_DATABASE_PREFIX}{database}/" if database else COLLECTION_PREFIX


def encode_number(number: int) -> bytes:
    """The value of a counter, or a bound."""
    return b"%d" % number


def decode_number(key: str, value: bytes) -> int:
    """The number; raises UnreadableRecord when the value is not one."""
    try:
        return int(value)
    except ValueError as error:
        cause = f"{key}: stored value is not a number: {value[:40]!r}"
        raise UnreadableRecord(cause) from error


def encode_pchannel(meta: PChannelMeta) -> bytes:
    """The record of one pchannel."""
    return encode_fields(
        {
            "name": meta.name,
            "term": meta.term,
            "state": meta.state.name,
            "node": meta.node,
            "access": meta.access.name,
            "histories": [[owner.node, owner.term] for owner in meta.histories],
            "assigned_ms": meta.assigned_ms,
            "moved_ms": meta.moved_ms,
        }
    )


def decode_pchannel(key: str, value: bytes) -> PChannelMeta:
    """The pchannel; raises UnreadableRecord if this version cannot read it."""

    def parse(fields: dict[str, Any]) -> PChannelMeta:
        node = fields["node"]
        return PChannelMeta(
            name=PChannelName(fields["name"]),
            term=Term(fields["term"]),
            state=PChannelState[fields["state"]],
            node=None if node is None else NodeId(node),
            access=AccessMode[fields["access"]],
            histories=tuple(Owner(NodeId(node), Term(term)) for node, term in fields["histories"]),
            assigned_ms=fields["assigned_ms"],
            moved_ms=fields.get("moved_ms", 0),  # absent in records of an older release
        )

    return decode_fields(key, value, parse)


def encode_collection(collection: Collection) -> bytes:
    """The record of one collection."""
    return encode_fields(
        {
            "name": collection.name,
            "id": collection.id,
            "vchannels": collection.vchannels,
            "created_ms": collection.created_ms,
            "schema": _encode_schema(collection.schema),
            **({"database": collection.database} if collection.database else {}),
            "default_partition": collection.default_partition,
            "created_tick": collection.created_tick,
            **_encode_retention(collection.retention),
            **_encode_compaction(collection.compaction),
        }
    )


def decode_collection(key: str, value: bytes) -> Collection:
    """The collection; raises UnreadableRecord if this version cannot read it."""

    def parse(fields: dict[str, Any]) -> Collection:
        return Collection(
            name=fields["name"],
            id=CollectionId(fields["id"]),
            vchannels=tuple(VChannelName(name) for name in fields["vchannels"]),
            created_ms=fields["created_ms"],
            schema=_decode_schema(fields.get("schema")),
            database=fields.get("database", ""),
            # Absent in records of an earlier release, as those below.
            default_partition=PartitionId(fields.get("default_partition", 0)),
            created_tick=TimeTick(fields.get("created_tick", 0)),
            retention=Retention(
                bytes_max=int(fields.get("retention_bytes", 0)),
                age_ms_max=int(fields.get("retention_ms", 0)),
            ),
            compaction=_decode_compaction(fields.get("compaction")),
        )

    return decode_fields(key, value, parse)


def _encode_retention(retention: Retention) -> dict[str, int]:
    limits = {"retention_ms": retention.age_ms_max, "retention_bytes": retention.bytes_max}
    return {name: limit for name, limit in limits.items() if limit}


def _encode_compaction(it: Compaction | None) -> dict[str, dict[str, int]]:
    if it is None:
        return {}
    return {"compaction": {"lag_ms": it.lag_ms, "tombstone_ms": it.tombstone_ms}}


def _decode_compaction(fields: Any) -> Compaction | None:
    if fields is None:
        return None
    return Compaction(int(fields["lag_ms"]), int(fields["tombstone_ms"]))


def _encode_schema(schema: RowSchema | None) -> dict[str, Any] | None:
    if schema is None:
        return None
    return {"arrow": base64.b64encode(schema.arrow).decode(), "widths": schema.widths}


def _decode_schema(fields: Any) -> RowSchema | None:
    if fields is None:
        return None
    widths = tuple([int(width) for width in fields["widths"]])
    return RowSchema(base64.b64decode(fields["arrow"], validate=True), widths)


def encode_cluster(cluster: Cluster) -> bytes:
    """The record of the cluster."""
    return encode_fields(
        {
            "pchannels": cluster.pchannels,
            "control_host": cluster.control_host,
            "identity": cluster.identity,
        }
    )


def decode_cluster(key: str, value: bytes) -> Cluster:
    """The cluster; raises UnreadableRecord if this version cannot read it."""

    def parse(fields: dict[str, Any]) -> Cluster:
        return Cluster(
            pchannels=tuple(PChannelName(name) for name in fields["pchannels"]),
            control_host=PChannelName(fields["control_host"]),
            identity=str(fields.get("identity", "")),
        )

    return decode_fields(key, value, parse)


def node_key(node: NodeId) -> str:
    """The key of a node's record, which exists while the node has a lease."""
    return f"{NODE_PREFIX}{node}"


def encode_member(member: NodeMember) -> bytes:
    """The record of one node, without the end of its lease: that is a time of the coordinator's
    monotonic clock, which means nothing to a later process."""
    return encode_fields(
        {
            "node": member.node,
            "address": member.address,
            "pid": member.pid,
            "incarnation": member.incarnation,
            "session": member.session,
            "knows_places": member.knows_places,
        }
    )


def decode_member(key: str, value: bytes) -> NodeMember:
    """The node, with an expired lease; raises UnreadableRecord if this version cannot read it."""

    def parse(fields: dict[str, Any]) -> NodeMember:
        return NodeMember(
            node=NodeId(fields["node"]),
            address=str(fields["address"]),
            pid=int(fields["pid"]),
            incarnation=str(fields.get("incarnation", "")),
            session=int(fields["session"]),
            until_s=0.0,
            # Not in the record that an earlier release wrote, of itself or of a later node.
            knows_places=bool(fields.get("knows_places", False)),
        )

    return decode_fields(key, value, parse)
