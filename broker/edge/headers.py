"""What callers say in gRPC metadata: whom they mean to talk to, and which pchannel a stream is for.

Owns the decoding of those headers. Never knows which pchannels exist. Only the first value of a
key counts. Next: broker/edge/gate.py
"""

import binascii
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from broker.model.channel import AccessMode, PChannel
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.ids import NodeId, PChannelName, Term
from schemas.generated.milvus.proto.streaming import (
    CreateConsumerRequest,
    CreateProducerRequest,
    PChannelInfo,
)

CREATE_PRODUCER: Final = "create-producer"
CREATE_CONSUMER: Final = "create-consumer"
CLUSTER: Final = "cluster"
SERVER_ID: Final = "serverid"

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
    data = _decoded(metadata, CREATE_PRODUCER)
    try:
        request = CreateProducerRequest.parse(data)
    except Exception as error:
        raise _invalid(f"header {CREATE_PRODUCER!r} holds no CreateProducerRequest") from error
    channel = pchannel(request.pchannel)
    if channel.access is not AccessMode.READ_WRITE:
        raise _invalid(f"{channel.name}: a producer needs read-write access")
    return channel


def consumer_channel(metadata: Metadata) -> PChannel:
    """The pchannel of a Consume call. Raises Refused(INVALID_ARGUMENT) saying what is wrong."""
    data = _decoded(metadata, CREATE_CONSUMER)
    try:
        request = CreateConsumerRequest.parse(data)
    except Exception as error:
        raise _invalid(f"header {CREATE_CONSUMER!r} holds no CreateConsumerRequest") from error
    return pchannel(request.pchannel)


def pchannel(info: PChannelInfo | None) -> PChannel:
    """A PChannelInfo as a value. Raises Refused(INVALID_ARGUMENT) when it cannot be one."""
    if info is None:
        raise _invalid("the pchannel is missing")
    if not info.name:
        raise _invalid("the pchannel has no name")
    if info.term <= 0:
        raise _invalid(f"{info.name}: term {info.term} is not positive")
    try:
        access = AccessMode(int(info.access_mode))
    except ValueError:
        raise _invalid(f"{info.name}: unknown access mode {int(info.access_mode)}") from None
    return PChannel(PChannelName(info.name), Term(info.term), access)


def _decoded(metadata: Metadata, key: str) -> bytes:
    text = _first(metadata, key)
    if not text:
        raise _invalid(f"header {key!r} is missing")
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _invalid(f"header {key!r} is not base64 with padding") from None


def _first(metadata: Metadata, key: str) -> str:
    value = metadata.get(key, "")
    return value if isinstance(value, str) else value.decode("latin-1")


def _ignored(cause: str) -> Refusal:
    return Refusal(StreamingCode.IGNORED_OPERATION, cause)


def _invalid(cause: str) -> Refused:
    return Refused(StreamingCode.INVALID_ARGUMENT, cause)
