"""Decide which batches an Appender takes, and say why the others are refused.

Sizes are added up, and a packed body is unpacked once, to see that it is what it claims; payloads
are never looked into. The properties that the log adds for all messages of a batch are made here.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from broker.core.log.carried_types import PLAIN_TYPES, is_later
from broker.core.naming import new_vchannel_fault
from broker.edge.tidemark.admission.schedules import Schedules
from broker.edge.tidemark.admission.unpacking import Unpacking
from broker.edge.tidemark.admission.whole_txn import whole_txn
from broker.model.batch import (
    NO_KEYS,
    NOTHING_OWN,
    BatchKeys,
    BatchPart,
    Codec,
    Durability,
    NewBatch,
    OwnProperties,
)
from broker.model.failure import Refusal, StreamingCode
from broker.model.groups.delivery_times import DeliveryTimes
from broker.model.ids import PChannelName, TxnId
from broker.model.message import MessageType
from broker.model.producer_numbers import ProducerPart
from broker.model.txn import TxnContext
from broker.node.append.group_commit import BATCH_MESSAGES_MAX
from broker.value import value
from schemas.batches import OWN, PROPERTY, WHOLE, ScannedBatch, shared_properties
from schemas.encoding.entries import read_entry
from schemas.encoding.fields import fields
from schemas.encoding.id_list import read_ids
from schemas.encoding.varint import Malformed
from schemas.packing import BadPacking, unpack
from schemas.properties.insert_header import read_insert_header
from schemas.properties.keys import (
    DELIVER_AT,
    DELIVER_TTL,
    HEADER,
    ROW_KEY,
    ROW_SCHEMA,
    TXN,
    VERSION,
    BadProperty,
)

PROPERTIES_BYTES_MAX: Final = 64 * 1024
_REMEMBERED_BYTES_MAX: Final = 256
_REMEMBERED_MAX: Final = 16_384
"""More than the vchannels that are busy at one time, so that their properties are encoded once."""
# Looked up, because to call an enumeration takes four times as long.
_CODECS: Final = {int(codec): codec for codec in Codec}
_LEVELS: Final = {int(level): level for level in Durability}
_CODEC_NAMES: Final = ", ".join([f"{codec.name} ({codec.value})" for codec in Codec])
_LEVEL_NAMES: Final = ", ".join([f"{level.name} ({level.value})" for level in Durability])
_OURS: Final = frozenset({ROW_KEY.key, ROW_SCHEMA.key})
_TXN_KEY: Final = TXN.key.encode()
_OWN_KEY: Final = OWN.encode()
_WHOLE_KEY: Final = WHOLE.encode()
_ALLOWED: Final = frozenset({VERSION.key, HEADER.key, DELIVER_AT.key, DELIVER_TTL.key})
_RESERVED: Final = "names that begin with _ are reserved"
_NOTHING: Final[Mapping[str, str]] = {}


def oversize_batch(size_bytes: int, bytes_max: int) -> Refusal:
    """The refusal of a batch above the limit."""
    cause = f"the batch has {size_bytes} bytes, the limit is {bytes_max}; split it"
    return Refusal(StreamingCode.UNRECOVERABLE, cause)


@value
class _Timed:
    """Properties of messages that groups get at certain times."""

    properties: bytes
    times: DeliveryTimes


class BatchAdmission:
    """The checks of one Append stream, whose pchannel is `pchannel`."""

    def __init__(
        self,
        pchannel: PChannelName,
        bytes_max: int,
        schedules: Schedules | None = None,
        unpacking: Unpacking | None = None,
    ) -> None:
        """Without `schedules` delayed messages are refused. `unpacking` is that of the server."""
        self._unpacking = unpacking or Unpacking()
        self._pchannel = pchannel
        self._bytes_max = bytes_max
        self._schedules = schedules

    async def judge_packed(self, batch: ScannedBatch) -> NewBatch | Refusal:
        """As `judge`, for a packed body, which is unpacked once, in a thread if it is large."""
        verdict = self.judge(batch)
        if isinstance(verdict, Refusal):
            return verdict
        # Before it is stored: a body that cannot be unpacked would stop every reader for ever.
        cause = await self._unpacking.run(sum(batch.sizes), packing_fault, batch)
        return Refusal(StreamingCode.INVALID_ARGUMENT, cause) if cause else verdict

    def judge(self, batch: ScannedBatch) -> NewBatch | Refusal:
        """The batch as an Appender takes it, or the refusal for its producer.

        It is not unpacked.
        """
        refusal = self.refusal(batch)
        if refusal is not None:
            return refusal
        # The limit holds for what a reader must hold, not for the packed bytes.
        unpacked = sum(batch.sizes) + len(batch.keys) + len(batch.own)
        if batch.own_sizes:
            # Readers get such a batch message by message, each with the shared properties.
            unpacked += len(batch.sizes) * len(batch.properties)
        cause = _wrong_sizes(batch)
        if not cause and unpacked > self._bytes_max:
            return oversize_batch(unpacked, self._bytes_max)
        if batch.own_sizes or batch.own:
            cause = cause or _wrong_own(batch)
        if cause:
            return Refusal(StreamingCode.INVALID_ARGUMENT, cause)
        return self.accepted(batch, batch.sizes, unpacked)

    def refusal(self, batch: ScannedBatch) -> Refusal | None:
        """The refusal of a batch for anything but its body and sizes."""
        cause = self._misplaced(batch) or _unknown(batch)
        return Refusal(StreamingCode.INVALID_ARGUMENT, cause) if cause else None

    def accepted(
        self,
        batch: ScannedBatch,
        sizes: tuple[int, ...],
        unpacked: int,
        more: Mapping[str, str] = _NOTHING,
    ) -> NewBatch | Refusal:
        """A checked batch, or the refusal of its properties. `more`: properties of the log."""
        kind = batch.type or MessageType.INSERT
        try:
            txn, whole, shared = _of_batch(batch)
        except (BadProperty, Malformed) as error:
            return Refusal(StreamingCode.INVALID_ARGUMENT, str(error))
        if (txn is not None or whole) and batch.durability:
            cause = (
                f"durability {batch.durability} is not for bodies of a transaction, which must be"
                " synced before its commit; use FSYNC (0)"
            )
            return Refusal(StreamingCode.INVALID_ARGUMENT, cause)
        properties = _stored(batch.vchannel, kind, shared)
        if not isinstance(properties, bytes):
            if isinstance(properties, Refusal):
                return properties
            refusal = self._times_refusal(batch, properties.times)
            if refusal is not None:
                return refusal
            properties = properties.properties
        if more:
            properties += shared_properties(more.items())
        producer = ProducerPart(batch.producer, batch.sequence) if batch.producer else None
        keys = BatchKeys(batch.key_sizes, batch.keys) if batch.key_sizes else NO_KEYS
        own = OwnProperties(batch.own_sizes, batch.own) if batch.own_sizes else NOTHING_OWN
        return NewBatch(
            batch.vchannel,
            kind,
            batch.body,
            unpacked + len(properties),
            txn=txn,
            sizes=sizes,
            part=BatchPart(properties, _CODECS[batch.codec], keys, producer, own),
            durability=_LEVELS[batch.durability],
            whole=whole_txn(batch.vchannel) if whole else None,
        )

    def _times_refusal(self, batch: ScannedBatch, times: DeliveryTimes) -> Refusal | None:
        """Why groups cannot get the messages at these times."""
        if self._schedules is None:
            return Refusal(StreamingCode.INVALID_ARGUMENT, "there is no schedule for messages here")
        if times.at_ms and batch.codec == Codec.ARROW:
            cause = "rows cannot be delayed: leave deliver_at out, or append messages"
            return Refusal(StreamingCode.INVALID_ARGUMENT, cause)
        return self._schedules.refusal(batch.vchannel, len(batch.sizes), times)

    def _misplaced(self, batch: ScannedBatch) -> str:
        return new_vchannel_fault(batch.vchannel, self._pchannel)


def _wrong_sizes(batch: ScannedBatch) -> str:
    # A negative size arrives as a huge unsigned one, so it fails the sums like any other.
    count, unpacked = len(batch.sizes), sum(batch.sizes)
    if not 0 < count <= BATCH_MESSAGES_MAX:
        return f"the batch has {count} messages; 1 to {BATCH_MESSAGES_MAX} are allowed"
    keyed = batch.key_sizes or batch.keys
    if keyed and not BatchKeys(batch.key_sizes, batch.keys).adds_up(count):
        return (
            f"{len(batch.key_sizes)} key sizes and {len(batch.keys)} bytes of keys do not fit"
            f" {count} messages; give one size for each message, or no keys"
        )
    if batch.codec == Codec.NONE and unpacked != len(batch.body):
        return f"the sizes add up to {unpacked} bytes, but the body has {len(batch.body)}"
    return ""


def _unknown(batch: ScannedBatch) -> str:
    kind = batch.type or MessageType.INSERT
    if kind not in PLAIN_TYPES and not is_later(kind):
        return f"messages of type {kind} cannot be in a batch; append them one by one"
    if batch.codec not in _CODECS:
        return f"codec {batch.codec} is not known; use {_CODEC_NAMES}"
    if batch.durability not in _LEVELS:
        return f"durability {batch.durability} is not known; use {_LEVEL_NAMES}"
    if len(batch.properties) > PROPERTIES_BYTES_MAX:
        return (
            f"the shared properties have {len(batch.properties)} bytes;"
            f" the limit is {PROPERTIES_BYTES_MAX}"
        )
    return ""


def packing_fault(batch: ScannedBatch) -> str:
    """Why a packed body is not what its sizes say; "" when it is. Unpacks it."""
    try:
        unpack(batch.codec, batch.body, sum(batch.sizes))
    except BadPacking as error:
        return str(error)
    return ""


def _wrong_own(batch: ScannedBatch) -> str:
    """What is wrong with the properties that messages have of their own; "" for nothing."""
    own, sizes, count = batch.own, batch.own_sizes, len(batch.sizes)
    if not OwnProperties(sizes, own).adds_up(count):
        return (
            f"{len(sizes)} sizes of own properties and {len(own)} bytes of them do not fit {count}"
            " messages; give one size for each message, or no own properties"
        )
    try:
        start = 0
        for size in sizes:
            if size > PROPERTIES_BYTES_MAX:
                return (
                    f"the properties of a message have {size} bytes;"
                    f" the limit is {PROPERTIES_BYTES_MAX}"
                )
            for tag, first, stop in fields(own, start, start + size):
                key, value = read_entry(own[first:stop]) if tag == PROPERTY[0] else ("", "")
                if tag != PROPERTY[0] or key[:1] == "_" or key in _OURS:
                    raise BadProperty(key, value, _RESERVED)
            start += size
    except (BadProperty, Malformed) as error:
        return str(error)
    return ""


def _of_batch(batch: ScannedBatch) -> tuple[TxnContext | None, bool, bytes]:
    """The transaction that `_tx` names, whether the batch is one of its own, what else is shared.

    Raises BadProperty, Malformed.
    """
    shared = batch.properties
    # A search in the bytes: most batches have none of these and are not decoded.
    if _TXN_KEY not in shared and _OWN_KEY not in shared and _WHOLE_KEY not in shared:
        return None, False, shared
    txn: TxnContext | None = None
    whole = False
    others: list[tuple[str, str]] = []
    for _, first, stop in fields(shared, 0, len(shared)):
        key, value = read_entry(shared[first:stop])
        if key == OWN and batch.own_sizes:
            continue
        if key == WHOLE:
            whole = True
            continue
        if key != TXN.key:
            others.append((key, value))
        elif txn is None:
            context = TXN.decode(value)
            txn = TxnContext(TxnId(context.txn_id), context.keepalive_ms)
        else:
            raise BadProperty(key, value, "named twice: a batch is of one transaction")
    if whole and txn is not None:
        raise BadProperty(WHOLE, "", "the batch names another transaction; leave one out")
    return txn, whole, shared_properties(others)


def _check_header(kind: int, header: bytes, text: str) -> None:
    """Readers of single messages divide the header of rows. Raises BadProperty."""
    if kind not in (MessageType.INSERT, MessageType.DELETE):
        return
    try:
        read_insert_header(header)
        # What a delete has in these fields is divided, too.
        read_ids(header, 1)
        read_ids(header, 2) if kind == MessageType.DELETE else ()
    except Malformed as error:
        raise BadProperty(HEADER.key, text, f"no header of rows ({error})") from None


def _stored(vchannel: str, kind: int, own: bytes) -> "bytes | _Timed | Refusal":
    # Long ones are not kept: their number is bounded, and so has to be their size.
    if len(own) <= _REMEMBERED_BYTES_MAX:
        return _remembered(vchannel, kind, own)
    return _made(vchannel, kind, own)


@lru_cache(maxsize=_REMEMBERED_MAX)
def _remembered(vchannel: str, kind: int, own: bytes) -> "bytes | _Timed | Refusal":
    return _made(vchannel, kind, own)


def _made(vchannel: str, kind: int, own: bytes) -> "bytes | _Timed | Refusal":
    """The properties of all messages, as Milvus's consumers read them: the log's own, and `own`."""
    properties = {"_t": str(int(kind)), "_v": "1", HEADER.key: "", "_vc": vchannel}
    try:
        for _, first, stop in fields(own, 0, len(own)):
            key, value = read_entry(own[first:stop])
            reserved = key[:1] == "_" and key not in _ALLOWED
            if reserved or key in _OURS:
                raise BadProperty(key, value, _RESERVED)
            properties[key] = value
        _check_header(kind, HEADER.need(properties), properties[HEADER.key])
        if not VERSION.need(properties):
            raise BadProperty(VERSION.key, "0", "must be 1 or more")
        at_ms, ttl_ms = DELIVER_AT.read(properties), DELIVER_TTL.read(properties)
        if ttl_ms == 0:
            raise BadProperty(DELIVER_TTL.key, "0", "must be 1 ms or more")
    except (BadProperty, Malformed) as error:
        return Refusal(StreamingCode.INVALID_ARGUMENT, str(error))
    made = shared_properties(properties.items())
    if at_ms is None and ttl_ms is None:
        return made
    return _Timed(made, DeliveryTimes(at_ms or 0, ttl_ms or 0))
