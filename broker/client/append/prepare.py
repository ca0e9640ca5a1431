"""Checks a message before it is sent, and decides its form: in a batch, or on its own as in Milvus.

Pure. Inserts and deletes go in batches. Messages that mean something to the log itself, such as the
steps of a transaction, go on their own over Milvus's Produce.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from broker.client.append.outgoing_batch import BatchHeader, encode_properties
from broker.client.errors import BadTarget, InvalidArgument, MessageTooLarge
from broker.client.message import Key, Message, check_payload, encode, own_properties, unsendable
from broker.model.ids import VChannelName
from broker.model.message import MessageType
from schemas.properties.keys import TXN

BATCHED_TYPES = frozenset({MessageType.INSERT, MessageType.DELETE})
BATCH_MESSAGES_MAX = 16_384
MESSAGE_BYTES_MAX = 16 * 1024 * 1024 - 1024
"""Below the server's limit for a frame, 16 MiB: a frame far above that ends the stream, and with
it the appends of all callers. The server's limit for one message is lower."""
WAIT_SHARE = 0.9
"""Of its deadline, how long an append may wait at the server for its barrier tick."""

Prepared = tuple[Message, VChannelName, BatchHeader | bytes]
"""A message that was checked: with the header of its batch, or with its own encoding."""


def prepare(
    message: Message,
    vchannel: VChannelName,
    deadline_s: float,
    level: int = 0,
    txn: str = "",
    *,
    raw: bool = False,
) -> Prepared:
    """Check and encode. Raises InvalidArgument, MessageTooLarge, and what `encode` does.

    `level`: the durability to wait for. It holds for plain messages outside of a transaction; all
    others are synced. `raw`: the vchannel need not exist.
    """
    reason = unsendable(message)
    if reason:
        raise InvalidArgument(reason)
    if is_plain(message):
        return message, vchannel, batch_header(vchannel, message, deadline_s, level, txn, raw=raw)
    return message, vchannel, encoded(message, vchannel, txn, deadline_s)


def is_plain(message: Message) -> bool:
    """Whether it may be in a batch: the log does not interpret it."""
    return (
        message.type in BATCHED_TYPES
        # The log stores version 1 and no header for each message of a batch.
        and message.version == 1
        and not message.header
        and not message.barrier_time_tick
    )


def batch_header(
    vchannel: VChannelName,
    message: Message,
    deadline_s: float,
    level: int = 0,
    txn: str = "",
    *,
    raw: bool = False,
) -> BatchHeader:
    """What a plain message has in common with others in its batch. Raises as `prepare`.

    The transaction is a reserved property. A server that does not know batches of transactions
    refuses reserved properties, so a body is never stored outside of its transaction.
    """
    _check_size(len(message.payload))
    own = plain_properties(message.properties)
    reserved = _txn_property(txn) if txn else b""
    return BatchHeader(vchannel, int(message.type), own, deadline_s, level, raw, reserved)


def plain_properties(properties: Mapping[str, str]) -> bytes:
    """The properties of a plain message, encoded. Raises as `own_properties`."""
    return encode_properties(own_properties(properties)) if properties else b""


# A transaction's property is the same for every batch of it.
@lru_cache(maxsize=1024)
def _txn_property(txn: str) -> bytes:
    return encode_properties({TXN.key: txn})


def check_batch(payloads: Sequence[bytes], keys: Sequence[Key | None] | None) -> None:
    """Raises TypeError, MessageTooLarge, and BadTarget unless there is one key for each payload."""
    # Mostly all are bytes, which is seen without a call for each.
    if {*map(type, payloads)} != {bytes}:
        for payload in payloads:
            check_payload(payload)
    if not 0 < len(payloads) <= BATCH_MESSAGES_MAX:
        raise MessageTooLarge(
            f"a batch of {len(payloads)} messages; it must have 1 to {BATCH_MESSAGES_MAX}"
        )
    if keys is not None and len(keys) != len(payloads):
        raise BadTarget(f"{len(keys)} keys for {len(payloads)} messages; give None for no key")
    _check_size(sum(map(len, payloads)))


def _check_size(size: int) -> None:
    if size > MESSAGE_BYTES_MAX:
        raise MessageTooLarge(
            f"{size} bytes in one append; the client sends at most {MESSAGE_BYTES_MAX}"
        )


def encoded(
    message: Message, vchannel: VChannelName, txn: str = "", deadline_s: float | None = None
) -> bytes:
    """A message that goes on its own. Raises MessageTooLarge, and what `encode` does."""
    # Less than the deadline, so that a server that waits in vain can still say so in time.
    wait_ms = None if deadline_s is None else int(deadline_s * 1000 * WAIT_SHARE)
    made = encode(message, vchannel, txn, wait_ms)
    if len(made) > MESSAGE_BYTES_MAX:
        raise MessageTooLarge(
            f"a message of {len(made)} bytes; the client sends at most {MESSAGE_BYTES_MAX}"
        )
    return made
