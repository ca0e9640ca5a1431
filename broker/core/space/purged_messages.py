"""Which records of a log readers miss when they are purged."""

from broker.model.measured import RecordHead
from broker.model.message import MessageType
from broker.model.retention.dead import PURGED_KINDS


def is_message(head: RecordHead, vchannel: str) -> bool:
    """Whether a purge of the vchannel takes messages from readers with this record.

    Of a transaction its commit does: readers get all of its messages there.
    """
    if head.vchannel != vchannel or head.kind not in PURGED_KINDS:
        return False
    return head.txn is None or head.kind == MessageType.COMMIT_TXN
