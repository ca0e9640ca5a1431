"""What callers say in gRPC metadata: whom they mean to talk to, and which pchannel a stream is for.

Owns the decoding of those headers. Never knows which pchannels exist. Only the first value of a
key counts.
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


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this server is, for callers that name whom they mean."""

    cluster: str
    node_id: NodeId


def mistaken_identity(metadata: Metadata, identity: Identity) -> Refusal | None:
    """IGNORED_OPERATION when the caller means another cluster or server; absent is accepted."""
    cluster = _first(metadata, CLUSTER)
    if cluster and cluster != identity.cluster:
        return _ignored(f"this is cluster {identity.cluster!r}; the call is for {cluster!r}")
    server_id = _first(metadata, SERVER_ID)
    try:
        meant = int(server_id)
    except ValueError:
        return None
    if meant != identity.node_id:
        return _ignored(f"this is server {identity.node_id}; the call is for {meant}")
    return None


def producer_channel(metadata: Metadata) -> PChannel:
    """The pchannel of a Produce call. Raises Refused(INVALID_ARGUMENT) saying what is wrong."""
    channel = _created(metadata, CREATE_PRODUCER)
    if channel.access is not AccessMode.READ_WRITE:
        raise invalid_argument(f"{channel.name}: a producer needs read-write access")
    return channel


def consumer_channel(metadata: Metadata) -> PChannel:
    """The pchannel of a Consume call. Raises Refused(INVALID_ARGUMENT) saying what is wrong."""
    return _created(metadata, CREATE_CONSUMER)


def pchannel(info: PChannelInfo | None) -> PChannel:
    """A PChannelInfo as a value. Raises Refused(INVALID_ARGUMENT) when it cannot be one."""
    if info is None:
        raise invalid_argument("the pchannel is missing")
    return _checked(info.name, info.term, int(info.access_mode))


def _created(metadata: Metadata, key: str) -> PChannel:
    text = _first(metadata, key)
    if not text:
        raise invalid_argument(f"header {key!r} is missing")
    try:
        header = read_create_header(text)
    except Malformed as error:
        raise invalid_argument(f"header {key!r}: {error}") from None
    return _checked(header.pchannel, header.term, header.access_mode)


def _checked(name: str, term: int, access_mode: int) -> PChannel:
    if not name:
        raise invalid_argument("the pchannel has no name")
    if term <= 0:
        raise invalid_argument(f"{name}: term {term} is not positive")
    try:
        access = AccessMode(access_mode)
    except ValueError:
        raise invalid_argument(f"{name}: unknown access mode {access_mode}") from None
    return PChannel(PChannelName(name), Term(term), access)


def _first(metadata: Metadata, key: str) -> str:
    value = metadata.get(key, "")
    return value if isinstance(value, str) else value.decode("latin-1")


def _ignored(cause: str) -> Refusal:
    return Refusal(StreamingCode.IGNORED_OPERATION, cause)
