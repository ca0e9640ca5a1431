"""What a broadcast and an ack ask for, as values, or what is wrong with them.

Owns the order of the checks: everything that could keep a copy out of a log for ever is refused
here, before anything is recorded, because a recorded broadcast never gives up.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from broker.codec.stored_headers import StoredHeaders
from broker.coordinator.broadcast.messages import AckBroadcast
from broker.core.naming import pchannel_of
from broker.edge.milvus.message_admission import EMPTY_HEADER
from broker.model.broadcast import Broadcast, ResourceDomain, ResourceKey
from broker.model.failure import Refused, StreamingCode, invalid_argument
from broker.model.ids import BroadcastId, MessageId, PChannelName, TimeTick, VChannelName
from broker.model.message import (
    BODY_TYPES,
    KNOWN_TYPES,
    SELF_CONTROLLED_TYPES,
    TXN_TYPES,
    Appended,
    MessageType,
)
from broker.ports.headers import BadHeader
from schemas.generated.milvus.proto import common, messages
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
"""Of all copies together: they are made in memory, and all of them are in flight at once."""

PLAIN_TYPES: Final = KNOWN_TYPES - {int(kind) for kind in SELF_CONTROLLED_TYPES | TXN_TYPES}
DOMAINS: Final = {int(domain): domain for domain in ResourceDomain}
ROCKSMQ: Final = 1
HEADERS: Final = StoredHeaders()
OF_THE_WAY: Final = frozenset({BROADCAST.key, TRACE.key, *SERVER_KEYS})
"""Properties that are not what was asked for, or are looked at by themselves."""


@dataclass(frozen=True, slots=True)
class BroadcastLimits:
    """What the log takes. `pchannels`: those there are."""

    message_bytes_max: int
    pchannels: Collection[PChannelName]


def broadcast_request(
    message: messages.Message | None, limits: BroadcastLimits, call_key: str
) -> Broadcast:
    """The broadcast; `call_key` names it when the message has no idempotency key of its own.

    Raises Refused: UNRECOVERABLE when it is too large or its header unreadable,
    REPLICATE_VIOLATION for a copy of another cluster's message, else INVALID_ARGUMENT.
    """
    if message is None:
        raise invalid_argument("the request has no message")
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
    """The ack; the last two are what older clients say in place of the message.

    Raises Refused: WAL_NAME_MISMATCH for an id of another kind of log, else INVALID_ARGUMENT.
    """
    if message is None:
        return AckBroadcast(BroadcastId(broadcast_id), VChannelName(vchannel), None)
    try:
        header = _header(message.properties)
        named = VCHANNEL.need(message.properties)
        if named not in header.vchannels:
            raise invalid_argument(f"vchannel {named!r} is none of broadcast {header.broadcast_id}")
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
            f"a broadcast goes to 1 to {VCHANNELS_MAX} vchannels, not {len(names)}"
        )
    twice = (
        [name for name in names if names.count(name) > 1] if len(set(names)) < len(names) else []
    )
    if twice:
        raise invalid_argument(f"vchannel {twice[0]!r} is named {names.count(twice[0])} times")
    unknown = next((name for name in names if pchannel_of(name) not in pchannels), None)
    if unknown is not None:
        raise invalid_argument(f"vchannel {unknown!r} is on no pchannel of this cluster")
    return tuple(VChannelName(name) for name in names)


def _keys(asked: tuple[HeaderKey, ...]) -> tuple[ResourceKey, ...]:
    if len(asked) > KEYS_MAX:
        raise invalid_argument(
            f"{len(asked)} resource keys; at most {KEYS_MAX} can be locked at once"
        )
    unknown = next((it for it in asked if it.domain not in DOMAINS), None)
    if unknown is not None:
        known = ", ".join(f"{it.name.lower()} {int(it)}" for it in ResourceDomain)
        raise invalid_argument(
            f"resource key {unknown.key!r} is of domain {unknown.domain}; known: {known}"
        )
    return tuple(ResourceKey(DOMAINS[it.domain], it.key, it.shared) for it in asked)


def _check_properties(properties: Mapping[str, str]) -> None:
    if REPLICATE.key in properties:
        raise Refused(
            StreamingCode.REPLICATE_VIOLATION,
            "this cluster is no replica: it takes no _rh messages",
        )
    for key, why in (
        (VCHANNEL.key, "the vchannels of a broadcast stand in its header"),
        ("_tx", "a broadcast is not part of a transaction"),
        ("_btt", "a broadcast cannot wait for a tick: each vchannel has its own"),
    ):
        if key in properties:
            raise invalid_argument(f"property {key} must not be there: {why}")


def _check_type(scanned: ScannedMessage) -> None:
    if scanned.type not in PLAIN_TYPES:
        known = MessageType(scanned.type).name if scanned.type in KNOWN_TYPES else "unknown"
        raise invalid_argument(f"property _t is {scanned.type}, {known}; it cannot be broadcast")
    if scanned.version <= 0:
        raise invalid_argument("property _v must be a number above 0")


def _check_header(scanned: ScannedMessage) -> None:
    """What says something of a collection must be readable, or its vchannels would refuse it."""
    if scanned.type in BODY_TYPES:
        return  # refused only by vchannels of collections that the log keeps segments for
    try:
        HEADERS.effect(scanned.type, scanned.stored)
    except BadHeader as error:
        raise Refused(StreamingCode.UNRECOVERABLE, str(error)) from error


def _check_size(broadcast: Broadcast, header_bytes: int, limits: BroadcastLimits) -> None:
    names = max(map(len, broadcast.vchannels))
    each = broadcast.size + header_bytes + names + 64
    if each > limits.message_bytes_max:
        cause = f"a copy has {each} bytes, at most {limits.message_bytes_max} are allowed"
        raise Refused(StreamingCode.UNRECOVERABLE, cause)
    if each * len(broadcast.vchannels) > COPIES_BYTES_MAX:
        cause = f"{len(broadcast.vchannels)} copies of {each} bytes are over {COPIES_BYTES_MAX}"
        raise Refused(StreamingCode.UNRECOVERABLE, cause)


def _scanned(message: messages.Message) -> ScannedMessage:
    """What all copies share: the message without its header, and without the server's keys."""
    shared = {key: value for key, value in message.properties.items() if key != BROADCAST.key}
    data = bytes(messages.Message(payload=message.payload, properties=shared))
    return scan_message(data, 0, len(data))


def _fingerprint(message: messages.Message, header: BroadcastHeader) -> str:
    """Equal for what is meant to be equal, whatever traces the way has left on it."""
    told = [it for it in message.properties.items() if it[0] not in OF_THE_WAY]
    keys = sorted((it.domain, it.key, it.shared) for it in header.keys)
    digest = sha256(message.payload)
    digest.update(repr((sorted(told), sorted(header.vchannels), keys)).encode())
    digest.update(b"sync" if header.ack_sync_up else b"")
    return digest.hexdigest()


def _where(message: common.ImmutableMessage) -> Appended | None:
    """None when the message does not say where it landed, as those of old releases."""
    if message.id is None or not message.id.id:
        return None
    if int(message.id.WAL_name) != ROCKSMQ:
        raise Refused(
            StreamingCode.WAL_NAME_MISMATCH, f"message id of log {int(message.id.WAL_name)}"
        )
    tick = TIME_TICK.read(message.properties)
    if not tick:
        return None
    own = rocksmq_id(message.id.id)
    confirmed = last_confirmed(message.properties, own)
    return Appended(MessageId(own), TimeTick(tick), MessageId(confirmed))


def _origin(properties: Mapping[str, str]) -> str:
    header = messages.ReplicateHeader.parse(REPLICATE.need(properties))
    if not header.cluster_id or "/" in header.cluster_id or len(header.cluster_id) > 128:
        raise BadProperty(REPLICATE.key, header.cluster_id, "no name of a cluster")
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
        request_key="",
        fingerprint="",
        ack_sync_up=header.ack_sync_up,
        pchannel_level=PCHANNEL_LEVEL.read(message.properties),
    )
