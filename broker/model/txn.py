"""A transaction as its messages name it, and as each stored record of it remembers it."""

from dataclasses import dataclass

from broker.model.ids import MessageId, TxnId

KEEPALIVE_INFINITE_MS = -1000
"""Never expires for want of activity."""


@dataclass(frozen=True, slots=True)
class TxnContext:
    """`keepalive_ms` after its newest message the transaction expires; below 0: never."""

    id: TxnId
    keepalive_ms: int


@dataclass(frozen=True, slots=True)
class TxnPart:
    """What a stored record says of its transaction.

    `bodies` is how many bodies lie before the record, so that a reader notices one that is missing:
    0 in the begin, all of them in the commit.
    """

    id: TxnId
    keepalive_ms: int
    begin_id: MessageId
    bodies: int
