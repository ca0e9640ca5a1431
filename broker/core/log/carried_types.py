"""Which message types a log takes from clients, and why it refuses the others.

A type that this release does not know is carried as it is: its bytes are stored and delivered
verbatim, and it means nothing to the log. Refused are only types that would be misunderstood: those
that the log writes itself, those that ask for something that is not built, and numbers among which
Milvus and this log number steps of transactions.
"""

from typing import Final

from broker.model.failure import Refusal, StreamingCode
from broker.model.message import (
    EXCLUSIVE_TYPES,
    KNOWN_TYPES,
    LOG_STEPS,
    SELF_CONTROLLED_TYPES,
    TXN_TYPES,
    MessageType,
)

TXN_NUMBERS: Final = range(900, 1000)
"""Milvus numbers the steps of transactions here. A step that is not known would be stored outside
of its transaction."""

TYPE_MAX: Final = (1 << 31) - 1
"""Types are numbers of a protobuf enum."""

PLAIN_TYPES: Final = KNOWN_TYPES - {
    int(kind) for kind in SELF_CONTROLLED_TYPES | TXN_TYPES | EXCLUSIVE_TYPES
}
"""Types that have no effect on other messages of the log."""

LOG_ONLY_TYPES: Final = SELF_CONTROLLED_TYPES | {MessageType.TXN}

NOT_BUILT: Final = {
    MessageType.ALTER_WAL: (
        "an AlterWAL message asks for another log implementation, and does not say where it is:"
        " nothing was stored. Switch the log with `tidemark wal alter`"
    ),
    MessageType.ALTER_REPLICATE_CONFIG: (
        "an AlterReplicateConfig message changes the replication between clusters, which is not"
        " built: nothing was stored. Run each cluster on its own"
    ),
}
"""Storing these would report a success that never takes effect."""


def is_carried(kind: int) -> bool:
    """Whether a log may store a message of this type that it did not write itself."""
    if kind in KNOWN_TYPES:
        return kind not in LOG_ONLY_TYPES
    return 0 < kind <= TYPE_MAX and kind not in TXN_NUMBERS and kind not in LOG_STEPS


def is_later(kind: int) -> bool:
    """Whether it is a type of a later release, which the log carries without knowing it."""
    return kind not in KNOWN_TYPES and is_carried(kind)


def client_refusal(kind: int) -> Refusal | None:
    """Why clients may not append or broadcast this type, which is above 0; None: they may."""
    if kind in LOG_ONLY_TYPES:
        name = MessageType(kind).name
        return Refusal(
            StreamingCode.INVALID_ARGUMENT,
            f"property _t is {kind} ({name}): only the log itself writes this type",
        )
    if kind in NOT_BUILT:
        return Refusal(StreamingCode.UNRECOVERABLE, NOT_BUILT[MessageType(kind)])
    if not is_carried(kind):
        return Refusal(
            StreamingCode.UNRECOVERABLE,
            f"property _t is {kind}, an unknown step of a transaction, which this release cannot"
            " carry; use an older client or a newer broker",
        )
    return None
