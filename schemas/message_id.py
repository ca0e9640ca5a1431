"""Text forms of message ids of Pulsar and Woodpecker, as Milvus writes them.

Tidemark issues RocksMQ ids only (`encoding/base36.py`); these others occur in replicate headers
and checkpoints that come from elsewhere.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Self

from schemas.encoding.base36 import INT64_MAX
from schemas.encoding.base64_text import base64_text, read_base64
from schemas.encoding.fields import fields
from schemas.encoding.varint import Malformed, shown, signed, varint


class WalName(IntEnum):
    """Numbers of `common.WALName`: note that Pulsar comes before Kafka."""

    UNKNOWN = 0
    ROCKSMQ = 1
    PULSAR = 2
    KAFKA = 3
    WOODPECKER = 4
    TEST = 999

    @property
    def text(self) -> str:
        """As in configurations, logs and create responses."""
        return "walimplstest" if self is WalName.TEST else self.name.lower()


@dataclass(frozen=True, slots=True)
class PulsarId:
    """Ordered by ledger, entry, batch index; -1 stands for none."""

    ledger: int
    entry: int
    partition: int = -1
    batch_index: int = -1
    batch_size: int = 0

    def text(self) -> str:
        """All five fields are written, zeros too; negative ones take ten bytes."""
        parts = (
            (b"\x08", self.ledger),
            (b"\x10", self.entry),
            (b"\x18", self.partition),
            (b"\x20", self.batch_index),
            (b"\x30", self.batch_size),
        )
        return base64_text(b"".join(tag + varint(value) for tag, value in parts))

    @classmethod
    def read(cls, text: str) -> Self:
        """Raises Malformed, also when ledger or entry is missing: they have no default."""
        numbers = _numbers(text)
        if 1 not in numbers or 2 not in numbers:
            raise Malformed(f"{shown(text)} is a Pulsar id without ledger or entry", 0)
        partition, batch_index = numbers.get(3, -1), numbers.get(4, -1)
        return cls(numbers[1], numbers[2], partition, batch_index, numbers.get(6, 0))


@dataclass(frozen=True, slots=True, order=True)
class WoodpeckerId:
    """Ordered by segment, then entry."""

    segment: int
    entry: int

    def text(self) -> str:
        """Zeros are left out, so that the first id of all is the empty string."""
        segment = b"\x08" + varint(self.segment) if self.segment else b""
        entry = b"\x10" + varint(self.entry) if self.entry else b""
        return base64_text(segment + entry)

    @classmethod
    def read(cls, text: str) -> Self:
        """Raises Malformed."""
        numbers = _numbers(text)
        return cls(numbers.get(1, 0), numbers.get(2, 0))


PULSAR_EARLIEST: Final = PulsarId(-1, -1)
WOODPECKER_EARLIEST: Final = WoodpeckerId(0, 0)
WOODPECKER_LATEST: Final = WoodpeckerId(INT64_MAX, INT64_MAX)


def _numbers(text: str) -> dict[int, int]:
    data = read_base64(text)
    parts = fields(data, 0, len(data))
    return {tag >> 3: signed(first) for tag, first, _ in parts if tag & 7 == 0}
