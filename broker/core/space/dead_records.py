"""Which segments are worth rewriting without their dead records (`broker/model/retention/dead.py`).

Why a share: rewriting copies what is live. With less than one part in `WORTH_SHARE` dead, dropping
small collections one after the other would copy the same live records again and again.
"""

from typing import Final

from broker.model.ids import FIRST_MESSAGE_ID, MessageId
from broker.model.message import MessageType
from broker.model.record import Record
from broker.model.retention.dead import Dead

TXN_ENDS: Final = frozenset({MessageType.COMMIT_TXN, MessageType.ROLLBACK_TXN})
WORTH_SHARE: Final = 16
WORTH_BYTES: Final = 16 * 1024
"""Less is not worth two more files."""


def is_dead(
    record: Record, dead: Dead, *, behind_dead: bool, segment_id: MessageId = FIRST_MESSAGE_ID
) -> bool:
    """Whether a record is dead; `behind_dead`: the one before it is.

    A record that only closes a tick is dead behind dead ones: the next record tells a later tick.
    Otherwise a run of small dead records would leave one tick record and one gap for each group.

    The end of a transaction that began before the segment, which begins at `segment_id`, stays:
    its begin may be there still, and the transaction would be open for ever.
    """
    if dead.covers(record):
        return not _ends_older(record, segment_id)
    return behind_dead and only_closes(record)


def worth_rewriting(dead_bytes: int, size_bytes: int) -> bool:
    """Whether a segment has so much dead that it is rewritten."""
    return dead_bytes >= WORTH_BYTES and dead_bytes * WORTH_SHARE >= size_bytes


def only_closes(record: Record) -> bool:
    """Whether the record does nothing but close a tick."""
    return record.kind == MessageType.TIME_TICK and not record.vchannel


def _ends_older(record: Record, segment_id: MessageId) -> bool:
    return record.txn is not None and record.kind in TXN_ENDS and (record.txn.begin_id < segment_id)
