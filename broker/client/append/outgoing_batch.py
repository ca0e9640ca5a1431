"""In which form a message goes to a server: in a batch with others, or by itself as in Milvus.

Pure. It owns what is checked of an append before anything of it is sent.
Next: broker/client/append/appends.py
"""

from collections.abc import Sequence
from functools import lru_cache

from broker.client.append.batch_producer import BatchHeader, encode_properties
from broker.client.errors import BadTarget, InvalidArgument, MessageTooLarge
from broker.client.message import Key, Message, check_payload, encode, own_properties, unsendable
from broker.model.ids import VChannelName
from broker.model.message import MessageType
from schemas.properties.keys import TXN

BATCHED_TYPES = frozenset({MessageType.INSERT, MessageType.DELETE})
BATCH_MESSAGES_MAX = 16_384
MESSAGE_BYTES_MAX = 16 * 1024 * 1024 - 1024
"""A larger frame would end the stream of everybody; the server's own limit for one is lower."""

Ready = tuple[Message, VChannelName, BatchHeader | bytes]
"""A message that was checked: what it shares with others in a batch, or its own encoding."""


def ready(
    message: Message, vchannel: VChannelName, deadline_s: float, level: int = 0, txn: str = ""
) -> Ready:
    """How it goes. Raises InvalidArgument, MessageTooLarge, and what `encode` does.

    `level`: how safe it is to be when it is answered; what goes by itself is synced always, and so
    is what belongs to a transaction, `txn`.
    """
    reason = unsendable(message)
    if reason:
        raise InvalidArgument(reason)
    if is_plain(message):
        return message, vchannel, shared_of(vchannel, message, deadline_s, level, txn)
    return message, vchannel, encoded(message, vchannel, txn)


def is_plain(message: Message) -> bool:
    """Whether it may come in a batch: it means nothing to the log itself."""
    return (
        message.type in BATCHED_TYPES
        and message.version == 1
        and not message.header
        and not message.barrier_time_tick
    )


def shared_of(
    vchannel: VChannelName, message: Message, deadline_s: float, level: int = 0, txn: str = ""
) -> BatchHeader:
    """What a plain message has in common with others in its batch. Raises as `ready`.

    A server that does not know batches of transactions refuses the property that names one, as it
    does all reserved names; so nothing of a transaction is ever appended outside of it.
    """
    _check_size(len(message.payload))
    properties = message.properties
    own = encode_properties(own_properties(properties)) if properties else b""
    own = _named(txn) + own if txn else own
    return BatchHeader(vchannel, int(message.type), own, deadline_s, level)


@lru_cache(maxsize=1024)
def _named(txn: str) -> bytes:
    return encode_properties({TXN.key: txn})


def check_batch(payloads: Sequence[bytes], keys: Sequence[Key | None] | None) -> None:
    """Raises TypeError, MessageTooLarge, and BadTarget for keys that are not one for each."""
    for payload in payloads:
        check_payload(payload)
    if not 0 < len(payloads) <= BATCH_MESSAGES_MAX:
        raise MessageTooLarge(
            f"a batch of {len(payloads)} messages; 1 to {BATCH_MESSAGES_MAX} may be in one"
        )
    if keys is not None and len(keys) != len(payloads):
        raise BadTarget(f"{len(keys)} keys for {len(payloads)} messages; give None for no key")
    _check_size(sum(map(len, payloads)))


def _check_size(size: int) -> None:
    if size > MESSAGE_BYTES_MAX:
        raise MessageTooLarge(
            f"{size} bytes to append together; the client sends at most {MESSAGE_BYTES_MAX}"
        )


def encoded(message: Message, vchannel: VChannelName, txn: str = "") -> bytes:
    """A message that goes by itself. Raises MessageTooLarge, and what `encode` does."""
    made = encode(message, vchannel, txn)
    if len(made) > MESSAGE_BYTES_MAX:
        raise MessageTooLarge(
            f"a message of {len(made)} bytes; the client sends at most {MESSAGE_BYTES_MAX}"
        )
    return made
