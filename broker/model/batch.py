"""Batches as the native protocol carries them: many payloads in one body, what they share once.

It owns the values and their arithmetic. It never looks into a payload: the sizes say where each is.
"""

from dataclasses import dataclass
from enum import IntEnum

from broker.model.message import NewMessage
from broker.model.producer_numbers import ProducerPart


class Codec(IntEnum):
    """How a body is packed. That of ARROW is one record batch of rows, each of them a message."""

    NONE = 0
    LZ4 = 1
    ZSTD = 2
    ARROW = 3


class Durability(IntEnum):
    """How far a batch has come when it is answered: synced, with the operating system, placed."""

    FSYNC = 0
    OS = 1
    MEMORY = 2


@dataclass(frozen=True, slots=True)
class BatchKeys:
    """A key for each message of a batch, or none: `sizes[i]` is 0 for none, else its length + 1."""

    sizes: tuple[int, ...] = ()
    body: bytes = b""

    def adds_up(self, messages: int) -> bool:
        """Whether there is one for each message, and the body has exactly these."""
        if not self.sizes:
            return not self.body
        given = len(self.sizes) - self.sizes.count(0)
        return len(self.sizes) == messages and sum(self.sizes) - given == len(self.body)

    def split(self, messages: int) -> list[bytes | None]:
        """The key of each message."""
        if not self.sizes:
            return [None] * messages
        keys: list[bytes | None] = []
        start = 0
        for size in self.sizes:
            keys.append(self.body[start : start + size - 1] if size else None)
            start += max(0, size - 1)
        return keys


NO_KEYS = BatchKeys()


@dataclass(frozen=True, slots=True)
class BatchPart:
    """What a stored record of a batch says beside its sizes and its body, which is payloads alone.

    `properties` holds entries of field 3 of `milvus.proto.common.ImmutableMessage`, which all the
    messages share. With a `codec` the body is packed, and the sizes are those of what is unpacked;
    those of rows are about what each takes as text.
    """

    properties: bytes
    codec: Codec = Codec.NONE
    keys: BatchKeys = NO_KEYS
    producer: ProducerPart | None = None


@dataclass(frozen=True, slots=True)
class NewBatch(NewMessage):
    """Messages to append together, as one record: all of them or none.

    `body` is the payloads; `size` is what they take unpacked, with the keys.
    """

    sizes: tuple[int, ...] = ()
    part: BatchPart = BatchPart(b"")
    durability: Durability = Durability.FSYNC


def ticks_of(message: NewMessage) -> int:
    """How many ids and ticks it takes."""
    return len(message.sizes) if isinstance(message, NewBatch) else 1
