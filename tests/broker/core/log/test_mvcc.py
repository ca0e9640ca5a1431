"""The newest data of each vchannel, against looking through the whole log."""

from hypothesis import given
from hypothesis import strategies as st

from broker.core.log.mvcc import MvccTicks
from broker.model.ids import MessageId, Term, TimeTick, TxnId
from broker.model.message import COMPACTION, GROUP_CHANGE, PURGE, RELEASED, MessageType
from broker.model.record import Record
from broker.model.txn import TxnPart

OPENED = TimeTick(100)
PART = TxnPart(TxnId(90), 1000, MessageId(1), 0)
KINDS = (
    (MessageType.INSERT, None, True),
    (MessageType.INSERT, PART, False),
    (MessageType.BEGIN_TXN, PART, False),
    (MessageType.COMMIT_TXN, PART, True),
    (MessageType.ROLLBACK_TXN, PART, False),
    (MessageType.TIME_TICK, None, False),
    (GROUP_CHANGE, None, False),
    (PURGE, None, False),
    (COMPACTION, None, False),
    (RELEASED, None, True),
)


def _record(kind: int, vchannel: str, tick: int, txn: TxnPart | None) -> Record:
    return Record(
        Term(1),
        MessageId(tick),
        TimeTick(tick),
        MessageId(tick),
        kind,
        vchannel,
        (1, 1),
        b"ab",
        txn,
    )


@given(
    st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(["", "a", "b", "c", "d"]))),
    st.integers(1, 4),
)
def test_no_data_is_newer_than_the_answer_and_one_that_is_remembered_is_exact(
    steps: list[tuple[tuple[int, TxnPart | None, bool], str]], remembered: int
) -> None:
    mvcc = MvccTicks(OPENED, remembered)
    newest: dict[str, int] = dict.fromkeys("abcde", OPENED)
    order: list[str] = []
    for number, ((kind, txn, shows), vchannel) in enumerate(steps):
        tick = OPENED + 1 + 2 * number
        mvcc.stored([_record(kind, vchannel, tick, txn)])
        if kind == MessageType.TIME_TICK:
            assert mvcc.persisted_tick == tick + 1
        if shows:
            newest |= dict.fromkeys([vchannel] if vchannel else newest, tick + 1)
            order = [each for each in order if each != vchannel and vchannel] + [vchannel]
    for vchannel, tick in newest.items():
        assert mvcc.of(vchannel) >= tick
        assert mvcc.of(vchannel) <= max(newest.values())
        if vchannel in order[-remembered:] or len(order) <= remembered:
            assert mvcc.of(vchannel) == tick
        assert not mvcc.is_exact(vchannel) or mvcc.of(vchannel) == newest[vchannel]
        assert mvcc.is_exact(vchannel) == (vchannel in order[-remembered:])
