"""Decode gRPC metadata: which server a caller means, and which pchannel a stream is for.

Only the first value of a key counts. Whether the pchannel exists is not checked here.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from broker.model.channel import AccessMode, PChannel
from broker.model.failure import Refusal, StreamingCode, invalid_argument
from broker.model.ids import NodeId, PChannelName, Term
from schemas.generated.milvus.proto.streaming import PChannelInfo
from schemas.handshake import (
    CLUSTER,
    CREATE_CONSUMER,
    CREATE_PRODUCER,
    SERVER_ID,
    read_create_header,
)
from schemas.wire import Malformed

Metadata = Mapping[str, str | bytes]

MODES = " or ".join(f"{mode.name} ({mode.value})" for mode in AccessMode)


@dataclass(frozen=True, slots=True)
class Identity:
    """This server's cluster and node id, which callers may name."""

    cluster: str
    node_id: NodeId


def mistaken_identity(metadata: Metadata, identity: Identity) -> Refusal | None:
    """IGNORED_OPERATION when the caller names another cluster or server; naming none is fine."""
    cluster = _first(metadata, CLUSTER)
    if cluster and cluster != identity.cluster:
        return _ignored(
            f"this is cluster {identity.cluster!r}, the call is for {cluster!r}; check the address"
        )
    server_id = _first(metadata, SERVER_ID)
    try:
        meant = int(server_id)
    except ValueError:
        return None
    if meant != identity.node_id:
        return _ignored(
            f"this is server {identity.node_id}, the call is for server {meant};"
            " locate the channel again"
        )
    return None


def producer_channel(metadata: Metadata) -> PChannel:
    """The pchannel of a Produce call. Raises Refused(INVALID_ARGUMENT) for a bad header."""
    channel = _created(metadata, CREATE_PRODUCER)
    if channel.access is not AccessMode.READ_WRITE:
        raise invalid_argument(
            f"{channel.name}: a producer needs access mode READ_WRITE, not {channel.access.name}"
        )
    return channel


def consumer_channel(metadata: Metadata) -> PChannel:
    """The pchannel of a Consume call. Raises Refused(INVALID_ARGUMENT) for a bad header."""
    return _created(metadata, CREATE_CONSUMER)


def pchannel(info: PChannelInfo | None) -> PChannel:
    """A PChannelInfo as a value. Raises Refused(INVALID_ARGUMENT) when it cannot be one."""
    if info is None:
        raise invalid_argument("the request names no pchannel; set pchannel")
    return _checked(info.name, info.term, int(info.access_mode))


def _created(metadata: Metadata, key: str) -> PChannel:
    text = _first(metadata, key)
    if not text:
        raise invalid_argument(f"header {key!r} is missing; it names the pchannel of the stream")
    try:
        header = read_create_header(text)
    except Malformed as error:
        raise invalid_argument(f"header {key!r} cannot be decoded: {error}") from None
    return _checked(header.pchannel, header.term, header.access_mode)


def _checked(name: str, term: int, access_mode: int) -> PChannel:
    if not name:
        raise invalid_argument("the pchannel's name is empty")
    if term <= 0:
        raise invalid_argument(f"{name}: term {term} is not a positive number")
    try:
        access = AccessMode(access_mode)
    except ValueError:
        raise invalid_argument(f"{name}: access mode {access_mode} is not {MODES}") from None
    return PChannel(PChannelName(name), Term(term), access)


def _first(metadata: Metadata, key: str) -> str:
    value = metadata.get(key, "")
    # Bytes occur under keys that end in -bin only. latin-1 decodes any of them.
    return value if isinstance(value, str) else value.decode("latin-1")


def _ignored(cause: str) -> Refusal:
    return Refusal(StreamingCode.IGNORED_OPERATION, cause)
