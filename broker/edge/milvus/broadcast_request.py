"""Decode and check a broadcast or an ack.

Everything that could keep a copy out of a log for ever is refused here, before the broadcast is
recorded: a recorded broadcast is retried without end.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from broker.codec.stored_headers import StoredHeaders
from broker.coordinator.broadcast.messages import AckBroadcast
from broker.core.log.carried_types import client_refusal
from broker.core.naming import new_vchannel_fault, pchannel_of
from broker.edge.milvus.message_admission import EMPTY_HEADER, NOT_A_REPLICA
from broker.model.broadcast import Broadcast, ResourceDomain, ResourceKey
from broker.model.failure import Refused, StreamingCode, invalid_argument
from broker.model.ids import BroadcastId, MessageId, PChannelName, TimeTick, VChannelName
from broker.model.message import (
    BODY_TYPES,
    TXN_TYPES,
    Appended,
    MessageType,
)
from broker.ports.headers import BadHeader
from schemas.generated.milvus.proto import common, messages
from schemas.message_bytes import encoded, parsed_bounded
from schemas.properties.broadcast_header import BroadcastHeader, HeaderKey, read_broadcast_header
from schemas.properties.keys import (
    BROADCAST,
    IDEMPOTENCY,
    PCHANNEL_LEVEL,
    REPLICATE,
    TIME_TICK,
    TRACE,
    VCHANNEL,
    BadProperty,
    last_confirmed,
)
from schemas.wire import SERVER_KEYS, Malformed, ScannedMessage, rocksmq_id, scan_message

VCHANNELS_MAX: Final = 2048
KEYS_MAX: Final = 1024
COPIES_BYTES_MAX: Final = 256 * 1024 * 1024
"""Of all copies together: all are made in memory and are in flight at the same time."""

DOMAINS: Final = {int(domain): domain for domain in ResourceDomain}
ROCKSMQ: Final = 1
HEADERS: Final = StoredHeaders()
UNCOMPARED_KEYS: Final = frozenset({BROADCAST.key, TRACE.key, *SERVER_KEYS})
"""Properties that the fingerprint leaves out: traces, the server's own, and the header, which it
has in another form."""


@dataclass(frozen=True, slots=True)
class BroadcastLimits:
    """The largest message, and the pchannels of the cluster."""

    message_bytes_max: int
    pchannels: Collection[PChannelName]


def broadcast_request(
    message: messages.Message | None, limits: BroadcastLimits, call_key: str
) -> Broadcast:
    """The broadcast. `call_key` names it when the message has no idempotency key.

    Raises Refused: UNRECOVERABLE when it is too large or its header cannot be decoded,
    REPLICATE_VIOLATION for a replicated message, else INVALID_ARGUMENT.
    """
    if message is None:
        raise invalid_argument("the request has no message; set message")
    try:
        header = _header(message.properties)
        vchannels = _vchannels(header, limits.pchannels)
        _check_properties(message.properties)
        key = IDEMPOTENCY.read(message.properties)
    except BadProperty as error:
        raise invalid_argument(str(error)) from error
    scanned = _scanned(message)
    _check_type(scanned)
    _check_header(scanned)
    broadcast = Broadcast(
        type=scanned.type,
        vchannels=vchannels,
        keys=_keys(header.keys),
        body=scanned.stored if scanned.has_header else scanned.stored + EMPTY_HEADER,
        size=scanned.size,
        # The prefix keeps a client's key from equalling the name that a call without one gets.
        request_key=call_key if key is None else f"key:{message.properties[IDEMPOTENCY.key]}",
        fingerprint=_fingerprint(message, header),
        ack_sync_up=header.ack_sync_up,
        pchannel_level=PCHANNEL_LEVEL.read(message.properties),
    )
    _check_size(broadcast, len(message.properties[BROADCAST.key]), limits)
    return broadcast


def ack_request(
    message: common.ImmutableMessage | None, broadcast_id: int, vchannel: str
) -> AckBroadcast:
    """The ack. `broadcast_id` and `vchannel` are what older clients send instead of the message.

    Raises Refused: WAL_NAME_MISMATCH for an id of another kind of log, else INVALID_ARGUMENT.
    """
    if message is None:
        if not vchannel:
            raise invalid_argument("an ack without a message must name its vchannel")
        return AckBroadcast(BroadcastId(broadcast_id), VChannelName(vchannel), None)
    try:
        header = _header(message.properties)
        named = VCHANNEL.need(message.properties)
        if named not in header.vchannels:
            raise invalid_argument(
                f"vchannel {named!r} is not one of broadcast {header.broadcast_id}"
            )
        id, where = BroadcastId(header.broadcast_id), _where(message)
        if not REPLICATE.read(message.properties):
            return AckBroadcast(id, VChannelName(named), where)
        origin = _origin(message.properties)
        return AckBroadcast(id, VChannelName(named), where, origin, _copied(message, header))
    except (BadProperty, Malformed) as error:
        raise invalid_argument(str(error)) from error


def _header(properties: Mapping[str, str]) -> BroadcastHeader:
    text = properties.get(BROADCAST.key)
    if text is None:
        raise BadProperty(BROADCAST.key, None, "")
    return read_broadcast_header(text)


def _vchannels(
    header: BroadcastHeader, pchannels: Collection[PChannelName]
) -> tuple[VChannelName, ...]:
    names = header.vchannels
    if not 1 <= len(names) <= VCHANNELS_MAX:
        raise invalid_argument(
            f"a broadcast goes to 1 to {VCHANNELS_MAX} vchannels, this one to {len(names)}"
        )
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise invalid_argument(f"vchannel {twice!r} is named more than once; name it once")
    for name in names:
        pchannel = pchannel_of(name)
        if pchannel not in pchannels:
            raise invalid_argument(f"vchannel {name!r} is not on a pchannel of this cluster")
        if fault := new_vchannel_fault(name, pchannel):
            raise invalid_argument(fault)
    return tuple(VChannelName(name) for name in names)


def _keys(asked: tuple[HeaderKey, ...]) -> tuple[ResourceKey, ...]:
    if len(asked) > KEYS_MAX:
        raise invalid_argument(
            f"the broadcast has {len(asked)} resource keys; at most {KEYS_MAX} are allowed"
        )
    unknown = next((it for it in asked if it.domain not in DOMAINS), None)
    if unknown is not None:
        raise unknown_domain(unknown.key, unknown.domain)
    return tuple(ResourceKey(DOMAINS[it.domain], it.key, it.shared) for it in asked)


def unknown_domain(key: str, domain: int) -> Refused:
    """The refusal of a resource key with a domain that is not known."""
    known = ", ".join(f"{it.name.lower()} {int(it)}" for it in ResourceDomain)
    return invalid_argument(f"resource key {key!r} has domain {domain}; use one of: {known}")


def _check_properties(properties: Mapping[str, str]) -> None:
    if REPLICATE.key in properties:
        raise Refused(
            StreamingCode.REPLICATE_VIOLATION,
            NOT_A_REPLICA,
        )
    for key, why in (
        (VCHANNEL.key, "the header _bh names the vchannels of a broadcast"),
        ("_tx", "a broadcast cannot be part of a transaction"),
        ("_btt", "a broadcast cannot wait for a tick, since each vchannel has its own"),
    ):
        if key in properties:
            raise invalid_argument(f"property {key} is not allowed: {why}")


def _check_type(scanned: ScannedMessage) -> None:
    kind = scanned.type
    if kind <= 0:
        raise invalid_argument("property _t is missing or not a number above 0")
    if kind in TXN_TYPES:
        name = MessageType(kind).name
        raise invalid_argument(f"property _t is {kind} ({name}); it cannot be broadcast")
    refusal = client_refusal(kind)
    if refusal is not None:
        raise Refused(refusal.code, refusal.cause)
    if scanned.version <= 0:
        raise invalid_argument("property _v is missing or not a number above 0")


def _check_header(scanned: ScannedMessage) -> None:
    """Refuse a header that cannot be decoded: the vchannels' Appenders would refuse every copy."""
    if scanned.type in BODY_TYPES:
        return  # read only by vchannels of collections that the log keeps segments for
    try:
        HEADERS.effect(scanned.type, scanned.stored)
    except BadHeader as error:
        raise Refused(StreamingCode.UNRECOVERABLE, str(error)) from error


def _check_size(broadcast: Broadcast, header_bytes: int, limits: BroadcastLimits) -> None:
    names = max(map(len, broadcast.vchannels))
    # 64: a copy's header also gets an id, and the shared lock on the cluster.
    each = broadcast.size + header_bytes + names + 64
    if each > limits.message_bytes_max:
        cause = f"a copy has {each} bytes, the limit is {limits.message_bytes_max}; send less"
        raise Refused(StreamingCode.UNRECOVERABLE, cause)
    if each * len(broadcast.vchannels) > COPIES_BYTES_MAX:
        cause = (
            f"{len(broadcast.vchannels)} copies of {each} bytes exceed {COPIES_BYTES_MAX} bytes;"
            " send less, or to fewer vchannels"
        )
        raise Refused(StreamingCode.UNRECOVERABLE, cause)


def _scanned(message: messages.Message) -> ScannedMessage:
    """What all copies share: the message without its broadcast header and the server's keys."""
    shared = {key: value for key, value in message.properties.items() if key != BROADCAST.key}
    data = encoded(messages.Message(payload=message.payload, properties=shared))
    return scan_message(data, 0, len(data))


def _fingerprint(message: messages.Message, header: BroadcastHeader) -> str:
    """The same for repeats of one request, whose traces may differ."""
    # Sorted: maps have no order on the wire, so a repeat may list properties otherwise.
    compared = [it for it in message.properties.items() if it[0] not in UNCOMPARED_KEYS]
    keys = sorted((it.domain, it.key, it.shared) for it in header.keys)
    digest = sha256(message.payload)
    digest.update(repr((sorted(compared), sorted(header.vchannels), keys)).encode())
    digest.update(b"sync" if header.ack_sync_up else b"")
    return digest.hexdigest()


def _where(message: common.ImmutableMessage) -> Appended | None:
    """Where the message landed; None when it does not say, as in old releases of Milvus."""
    if message.id is None or not message.id.id:
        return None
    # Ids of other logs have other text forms: decoded as ours they would be wrong positions.
    if int(message.id.WAL_name) != ROCKSMQ:
        raise Refused(
            StreamingCode.WAL_NAME_MISMATCH,
            f"message id {message.id.id!r} has WAL_name {int(message.id.WAL_name)};"
            f" this log has RocksMQ ids, WAL_name {ROCKSMQ}",
        )
    tick = TIME_TICK.read(message.properties)
    if not tick:
        return None
    own = rocksmq_id(message.id.id)
    confirmed = last_confirmed(message.properties, own)
    return Appended(MessageId(own), TimeTick(tick), MessageId(confirmed))


def _origin(properties: Mapping[str, str]) -> str:
    header = parsed_bounded(messages.ReplicateHeader, REPLICATE.need(properties))
    if not header.cluster_id or "/" in header.cluster_id or len(header.cluster_id) > 128:
        raise BadProperty(REPLICATE.key, header.cluster_id, "not the name of a cluster")
    return header.cluster_id


def _copied(message: common.ImmutableMessage, header: BroadcastHeader) -> Broadcast:
    scanned = _scanned(messages.Message(message.payload, dict(message.properties)))
    _check_type(scanned)
    return Broadcast(
        type=scanned.type,
        vchannels=tuple(VChannelName(name) for name in dict.fromkeys(header.vchannels)),
        keys=_keys(header.keys),
        body=scanned.stored,
        size=scanned.size,
        # Recognised by its broadcast id and origin, not by a key.
        request_key="",
        fingerprint="",
        ack_sync_up=header.ack_sync_up,
        pchannel_level=PCHANNEL_LEVEL.read(message.properties),
    )
