"""Batches of the native protocol: many payloads in one body, with shared properties stored once."""

from collections.abc import Callable, Sequence
from enum import IntEnum
from itertools import accumulate, pairwise

from broker.model.message import NewMessage, NewRun
from broker.model.producer_numbers import ProducerPart
from broker.model.txn import TxnContext
from broker.value import value


class Codec(IntEnum):
    """The compression of a body. An ARROW body is one record batch; each row is a message."""

    NONE = 0
    LZ4 = 1
    ZSTD = 2
    ARROW = 3


class Durability(IntEnum):
    """When a batch is acknowledged: after the sync, after the write, or once it has its place."""

    FSYNC = 0
    OS = 1
    MEMORY = 2


@value
class BatchKeys:
    """The keys of a batch: `sizes[i]` is 0 if message i has none, else the key's length + 1."""

    sizes: tuple[int, ...] = ()
    body: bytes = b""

    def adds_up(self, messages: int) -> bool:
        """Whether there is a size for each message, and the sizes match the body."""
        if not self.sizes:
            return not self.body
        given = len(self.sizes) - self.sizes.count(0)
        return len(self.sizes) == messages and sum(self.sizes) - given == len(self.body)

    def split(self, messages: int) -> list[bytes | None]:
        """The key of each message; None for no key."""
        if not self.sizes:
            return [None] * messages
        keys: list[bytes | None] = []
        start = 0
        for size in self.sizes:
            keys.append(self.body[start : start + size - 1] if size else None)
            start += max(0, size - 1)
        return keys


NO_KEYS = BatchKeys()


@value
class OwnProperties:
    """What each message of a batch has beside the shared properties: `sizes[i]` bytes of `body`.

    No sizes: no message has any. Entries are encoded as in `BatchPart.properties`.
    """

    sizes: tuple[int, ...] = ()
    body: bytes = b""

    def adds_up(self, messages: int) -> bool:
        """Whether there is a size for each message, and the sizes match the body."""
        if not self.sizes:
            return not self.body
        return len(self.sizes) == messages and sum(self.sizes) == len(self.body)

    def split(self, messages: int) -> list[bytes]:
        """The entries of each message."""
        if not self.sizes:
            return [b""] * messages
        ends = accumulate(self.sizes, initial=0)
        return [self.body[start:end] for start, end in pairwise(ends)]


NOTHING_OWN = OwnProperties()


@value
class BatchPart:
    """What a stored record of a batch holds beside its sizes and its body of payloads.

    `properties`: entries of field 3 of `milvus.proto.common.ImmutableMessage`, shared by all
    messages. A header among them (`_h`) is that of the whole batch. With a `codec` the body is
    compressed and the sizes are uncompressed ones; sizes of Arrow rows estimate each row as text.
    """

    properties: bytes
    codec: Codec = Codec.NONE
    keys: BatchKeys = NO_KEYS
    producer: ProducerPart | None = None
    own: OwnProperties = NOTHING_OWN

    @property
    def shared_bytes(self) -> int:
        """The bytes of keys and properties, which are not in the body."""
        return len(self.keys.body) + len(self.properties) + len(self.own.body)


@value
class WholeTxn:
    """The begin of a transaction in its stored form, and what makes its commit for its context."""

    begin: bytes
    commit: Callable[[TxnContext], bytes]


@value
class NewBatch(NewMessage):
    """Messages to append as one record, all or none.

    `body` is the payloads; `size` is their uncompressed size with the keys. `whole`: they are all
    bodies of a transaction of their own, which is begun and committed with them.
    """

    sizes: tuple[int, ...] = ()
    part: BatchPart = BatchPart(b"")
    durability: Durability = Durability.FSYNC
    whole: WholeTxn | None = None


def payload_bytes(sizes: Sequence[int], part: BatchPart) -> int:
    """The uncompressed size of a batch without what its messages share.

    It is the same before and after the log has written the shared header.
    """
    return sum(sizes) + len(part.keys.body) + len(part.own.body)


def ticks_of(message: NewMessage) -> int:
    """How many ids and ticks the message takes, with the begin and the commit of its own."""
    if isinstance(message, NewBatch):
        return len(message.sizes) + (0 if message.whole is None else 2)
    return len(message.sizes) if isinstance(message, NewRun) else 1


def names_txn(message: NewMessage) -> bool:
    """Whether its transaction may be found expired; that of a repeat may be, after a crash."""
    whole = isinstance(message, NewBatch) and message.whole is not None
    return message.txn is not None or whole
