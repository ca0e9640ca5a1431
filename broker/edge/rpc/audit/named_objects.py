"""What a request names: collections, channels, groups, cursors, nodes; never what it carries.

Only fields of this list are read. A field that is not on it, such as a payload, a message key, a
property or the value of a setting, cannot get into the audit.
"""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final

from schemas.generated.milvus.proto import streaming as wire
from schemas.generated.tidemark import v1
from schemas.handshake import CREATE_CONSUMER, CREATE_PRODUCER, read_create_header
from schemas.properties.broadcast_header import read_broadcast_header
from schemas.properties.keys import BROADCAST, BadProperty
from schemas.wire import Malformed

NAME_LENGTH_MAX: Final = 256
NAMES_MAX: Final = 8
"""Of a list; its number of names is recorded beside them."""
FIELDS: Final[Mapping[str, str]] = {
    "database": "database",
    "db_name": "database",
    "collection_name": "collection",
    "collection_id": "collection",
    "partition_name": "partition",
    "field_name": "field",
    "index_name": "index",
    "alias": "alias",
    "pchannel": "pchannel",
    "channel": "channel",
    "channels": "channels",
    "vchannel": "vchannel",
    "vchannels": "vchannels",
    "group": "group",
    "barrier": "barrier",
    "app": "app",
    "batch": "batch",
    "path": "path",
    "term": "term",
    "node_id": "node",
    "address": "address",
    "broadcast_id": "broadcast",
    "hold_id": "hold",
    "segment_id": "segment",
    "segment_ids": "segments",
    "proxy_id": "proxy",
    "tenant_id": "tenant",
    "id": "id",
    "ids": "ids",
    "peer_ids": "peers",
    "service": "service",
    "prefix": "prefix",
    "paused": "paused",
    "roles": "roles",
    "grants": "grants",
    "user": "user",
    "ttl_ms": "ttl_ms",
    "replaces": "replaces",
    "target": "target",
    "at_least": "at_least",
}
"""Fields of requests, and what they are called in a line."""
NAME_OF: Final[Mapping[str, str]] = {
    "/tidemark.v1.Collections/": "collection",
    "/tidemark.v1.TimeSync/": "cursor",
    "/tidemark.v1.Broadcasts/": "broadcast",
}
"""What the field `name` is the name of, in the requests of a service."""
NAME_IN: Final[Mapping[str, str]] = {
    "/tidemark.v1.Auth/SetRole": "role",
    "/tidemark.v1.Auth/DropRole": "role",
    "/tidemark.v1.Auth/SetUser": "user",
    "/tidemark.v1.Auth/DropUser": "user",
}
"""The same, where it depends on the method."""


def named_in(method: str, request: object, metadata: Mapping[str, str | bytes]) -> dict[str, Any]:
    """The names in a request, and in the headers of its call; cut where they are too long."""
    found: dict[str, Any] = {}
    channel = _channel_of(metadata)
    if channel:
        found["pchannel"] = cut_name(channel)
    match request:
        case v1.SetConfigRequest():
            add_names(found, "settings", [it.key for it in request.changes])
        case wire.BroadcastRequest():
            add_names(found, "vchannels", _of_broadcast(request))
        case wire.UpdateWalBalancePolicyRequest(nodes=nodes) if nodes is not None:
            add_names(found, "freeze", nodes.freeze_node_ids)
            add_names(found, "defreeze", nodes.defreeze_node_ids)
        case _:
            name_of = NAME_IN.get(method) or NAME_OF.get(f"{method.rpartition('/')[0]}/")
            if name_of:
                add_names(found, name_of, getattr(request, "name", None))
            for field, name in FIELDS.items():
                add_names(found, name, getattr(request, field, None))
    return found


def cut_name(name: str) -> str:
    """The name, or its beginning."""
    return name if len(name) <= NAME_LENGTH_MAX else f"{name[:NAME_LENGTH_MAX]}..."


def add_names(found: dict[str, Any], name: str, value: object) -> None:
    """Add a name, or of a list the first `NAMES_MAX` and how many there are if they are more."""
    match value:
        case wire.PChannelInfo():
            add_names(found, name, value.name)
        case str() if value:
            found[name] = cut_name(value)
        case int() if value:
            found[name] = value
        case list() | tuple() if value:
            found[name] = [cut_name(str(it)) for it in islice(value, NAMES_MAX)]
            if len(value) > NAMES_MAX:
                found[f"{name}_count"] = len(value)
        case _:
            pass


def _channel_of(metadata: Mapping[str, str | bytes]) -> str:
    """The pchannel that the header of a stream names; "" for none, or one that is not readable."""
    text = metadata.get(CREATE_PRODUCER) or metadata.get(CREATE_CONSUMER)
    if not isinstance(text, str) or not text:
        return ""
    try:
        return read_create_header(text).pchannel
    except Malformed:
        return ""


def _of_broadcast(request: wire.BroadcastRequest) -> Sequence[str]:
    text = request.message.properties.get(BROADCAST.key) if request.message else None
    try:
        return read_broadcast_header(text).vchannels if text else ()
    except BadProperty:
        return ()
