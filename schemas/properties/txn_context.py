"""The transaction of a message, as carried by the `_tx` property and by the answer to a begin."""

from dataclasses import dataclass
from typing import Self

from schemas.encoding.fields import few_fields
from schemas.encoding.varint import signed, varint


@dataclass(frozen=True, slots=True)
class TxnContext:
    """`messages.TxnContext`: `keepalive_ms` after its last message the transaction expires."""

    txn_id: int
    keepalive_ms: int

    def encode(self) -> bytes:
        """Zeros are left out, as proto3 does."""
        txn_id = b"\x08" + varint(self.txn_id) if self.txn_id else b""
        keepalive = b"\x10" + varint(self.keepalive_ms) if self.keepalive_ms else b""
        return txn_id + keepalive

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Raises Malformed."""
        txn_id = keepalive_ms = 0
        for tag, first, _ in few_fields(data, 0, len(data)):
            if tag == 0x08:
                txn_id = signed(first)
            elif tag == 0x10:
                keepalive_ms = signed(first)
        return cls(txn_id, keepalive_ms)


def begin_keepalive_ms(header: bytes) -> int:
    """What a `messages.BeginTxnMessageHeader` asks for; 0 for the default. Raises Malformed."""
    asked = [signed(first) for tag, first, _ in few_fields(header, 0, len(header)) if tag == 0x08]
    return asked[-1] if asked else 0


def begin_header(keepalive_ms: int) -> bytes:
    """A `messages.BeginTxnMessageHeader`."""
    return b"\x08" + varint(keepalive_ms) if keepalive_ms else b""
