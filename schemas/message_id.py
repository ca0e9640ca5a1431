"""Text forms of message ids, one for each kind of log that Milvus knows.

Tidemark issues RocksMQ ids only (see `encoding/base36.py`); the others occur in replicate headers
and checkpoints that come from elsewhere.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Self

from schemas.encoding.base36 import INT64_MAX, rocksmq_id, rocksmq_id_text
from schemas.encoding.base64_text import base64_text, read_base64
from schemas.encoding.fields import fields
from schemas.encoding.varint import UINT64_MAX, Malformed, shown, signed, varint


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

AnyId = int | PulsarId | WoodpeckerId


def read_message_id(wal: int, text: str) -> AnyId:
    """The id that `text` means in a log of kind `wal`, a number of `common.WALName`.

    Raises Malformed, also for a kind of log that has no ids.
    """
    match wal:
        case WalName.ROCKSMQ | WalName.KAFKA:
            return rocksmq_id(text)
        case WalName.PULSAR:
            return PulsarId.read(text)
        case WalName.WOODPECKER:
            return WoodpeckerId.read(text)
        case WalName.TEST:
            return _read_decimal(text)
        case _:
            raise Malformed(f"a message id of log kind {wal}", 0)


def message_id_text(wal: WalName, message_id: AnyId) -> str:
    """The text form; the kind of id must be the one that such a log has."""
    if isinstance(message_id, int):
        return str(message_id) if wal is WalName.TEST else rocksmq_id_text(message_id)
    return message_id.text()


def _numbers(text: str) -> dict[int, int]:
    data = read_base64(text)
    parts = fields(data, 0, len(data))
    return {tag >> 3: signed(first) for tag, first, _ in parts if tag & 7 == 0}


def _read_decimal(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 20) or int(text) > UINT64_MAX:
        raise Malformed(f"{shown(text)} is not an unsigned number of 64 bits", 0)
    return int(text)
