"""Which records take messages from readers when they are purged."""

import pytest

from broker.core.space.purged_messages import is_message
from broker.model.ids import MessageId, TimeTick, TxnId
from broker.model.measured import RecordHead
from broker.model.message import GROUP_CHANGE, PURGE, RELEASED, MessageType
from broker.model.txn import TxnPart

V = "c_1v0"
PART = TxnPart(TxnId(1), 10, MessageId(8), 1)


def head(kind: int, vchannel: str = V, txn: TxnPart | None = None) -> RecordHead:
    at = MessageId(9)
    return RecordHead(at, TimeTick(5), at, 1, kind, vchannel, 3, txn)


@pytest.mark.parametrize("kind", [MessageType.INSERT, MessageType.DELETE, RELEASED])
def test_messages_and_copies_of_delayed_ones_do(kind: int) -> None:
    assert is_message(head(kind), V)
    assert not is_message(head(kind, "c_1v1"), V)


@pytest.mark.parametrize("kind", [GROUP_CHANGE, PURGE, MessageType.TIME_TICK])
def test_what_no_reader_is_shown_does_not(kind: int) -> None:
    assert not is_message(head(kind), V)


def test_of_a_transaction_the_commit_does() -> None:
    assert is_message(head(MessageType.COMMIT_TXN, txn=PART), V)
    for kind in (MessageType.BEGIN_TXN, MessageType.INSERT, MessageType.ROLLBACK_TXN):
        assert not is_message(head(kind, txn=PART), V)
