"""A transaction as messages refer to it, and as each stored record carries it."""

from dataclasses import dataclass

from broker.model.ids import MessageId, TxnId


@dataclass(frozen=True, slots=True)
class TxnContext:
    """`keepalive_ms` after its newest message the transaction expires; below 0: never."""

    id: TxnId
    keepalive_ms: int


@dataclass(frozen=True, slots=True)
class TxnPart:
    """The transaction of a stored record.

    `bodies`: the number of bodies before this record (0 in the begin, all in the commit), so that a
    reader notices a missing one.
    """

    id: TxnId
    keepalive_ms: int
    begin_id: MessageId
    bodies: int
