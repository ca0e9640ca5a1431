"""Changes of groups among other messages: records of their own, which no reader is shown."""

from hypothesis import given
from hypothesis import strategies as st

from broker.core.groups.group_changes import (
    AckedInTxn,
    GroupCreated,
    MessagesAcked,
    encode_change,
)
from broker.core.groups.group_state import HeldAck
from broker.core.groups.group_table import GroupTable
from broker.core.log.assembler import Assembler
from broker.core.log.delivery import Selection, catch_up, deliver
from broker.core.log.numbered_producers import NumberedProducers
from broker.core.log.record_drafts import WriterState
from broker.core.log.sequencer import sequence
from broker.core.time.span_count import SpanCount, SpanLimit, StepSize
from broker.core.txn.transactions import Transactions
from broker.model.failure import Refusal, StreamingCode
from broker.model.groups.consumer_group import GroupKey, TickSpan
from broker.model.ids import MessageId, TimeTick, TxnId
from broker.model.message import GROUP_CHANGE, Appended, AppendedInTxn, NewMessage
from broker.model.position import ReadPosition
from broker.model.record import Record, RecordSlice, head_of
from broker.model.txn import TxnContext
from tests.broker.core.log.singly import each_of
from tests.broker.core.log.test_sequencer import ADMISSION, END, PCHANNEL, VCHANNELS

V, W = VCHANNELS[1], VCHANNELS[2]


def plain(text: bytes, vchannel: str = V, kind: int = 2, **more: object) -> NewMessage:
    return NewMessage(vchannel, kind, text, len(text), **more)  # type: ignore[arg-type]


def change(vchannel: str = V) -> NewMessage:
    return plain(b"{}", vchannel, GROUP_CHANGE)


def begun(state: WriterState) -> tuple[Record, TxnContext]:
    begin = plain(b"begin", V, 900, txn=TxnContext(TxnId(0), 60_000))
    result = sequence([begin], TimeTick(2_000), END, ADMISSION, state)
    (outcome,) = result.outcomes
    assert isinstance(outcome, AppendedInTxn)
    return result.records[0], outcome.txn


def made(kind: str, index: int, txn: TxnContext) -> NewMessage:
    match kind:
        case "plain":
            return plain(b"p%d" % index)
        case "other":
            return plain(b"o%d" % index, W)
        case "body":
            return plain(b"b%d" % index, txn=txn)
        case _:
            return change(V if kind == "change" else W)


MADE = st.lists(st.sampled_from(["plain", "other", "change", "other change", "body"]), max_size=14)


@given(MADE, st.booleans(), st.integers(0, 16), st.booleans())
def test_they_are_stored_and_neither_delivered_nor_counted_wherever_a_reader_begins(
    kinds: list[str], commits: bool, skipped: int, whole: bool
) -> None:
    state = WriterState(Transactions(), NumberedProducers())
    first, txn = begun(state)
    end = sequence([], TimeTick(3_000), END, ADMISSION, state).end
    end = type(end)(end.term, first.next_id, first.last_tick, first.base_id)
    messages = [made(kind, index, txn) for index, kind in enumerate(kinds)]
    if commits:
        messages.append(plain(b"commit", V, 901, txn=txn))
    result = sequence(messages, TimeTick(3_000), end, ADMISSION, state)
    assert all(isinstance(it, Appended) for it in result.outcomes)
    records = [first, *result.records]
    changes = [it for it in records if it.kind == GROUP_CHANGE]
    assert len(changes) == sum("change" in it for it in kinds)
    for index, outcome in enumerate(result.outcomes):
        assert isinstance(outcome, Appended)
        (found,) = [it for it in records if it.base_id <= outcome.id < it.next_id]
        assert found.base_tick + outcome.id - found.base_id == outcome.tick
        assert (found.kind == GROUP_CHANGE) == (messages[index].type == GROUP_CHANGE)
    check_read(records, kinds, commits=commits, skipped=min(skipped, len(records)), whole=whole)
    check_count(records, kinds, commits=commits)
    taken_over = Transactions()
    for record in records:
        taken_over.replay(record)
    assert [it.context for it in taken_over.views()] == ([] if commits else [txn])


def check_read(
    records: list[Record], kinds: list[str], *, commits: bool, skipped: int, whole: bool
) -> None:
    """Read V from its begin; the first pull ends somewhere, and another reader goes on."""
    selection = Selection(V, TimeTick(0), None, whole=whole)
    first_id = records[0].base_id
    half = deliver(
        records[:skipped], ReadPosition(first_id), selection, 1 << 20, Assembler(first_id)
    )
    assembler = Assembler(half.cursor.open_id or half.cursor.next_id)
    catch_up(records, half.cursor, assembler)
    from_id = half.cursor.next_id
    rest = deliver(
        [it for it in records if it.next_id > from_id], half.cursor, selection, 1 << 20, assembler
    )
    assert half.broken == rest.broken == ""
    items = [*half.items, *rest.items]
    assert not [it for it in items if isinstance(it, RecordSlice) and it.record.kind > 1000]
    texts = [it.body for it in each_of(items) if hasattr(it, "body")]
    plains = [b"p%d" % at for at, kind in enumerate(kinds) if kind == "plain"]
    bodies = [b"b%d" % at for at, kind in enumerate(kinds) if kind == "body"]
    assert [it for it in texts if it.startswith(b"p")] == plains
    assert [it for it in texts if it[:1] == b"b" and it != b"begin"] == bodies * commits


def check_count(records: list[Record], kinds: list[str], *, commits: bool) -> None:
    ticks = (TimeTick(0), TimeTick(1 << 40))
    counting = SpanCount((V, W), ticks, StepSize(1000, 0, 4), SpanLimit(), PCHANNEL)
    for record in records:
        counting.take(head_of(record))
    rows = {name: it.steps[-1].rows if it.steps else 0 for name, it in counting.channels().items()}
    own = kinds.count("plain") + commits * kinds.count("body")
    assert rows == {V: own, W: kinds.count("other")}


def acked(txn: TxnContext, vchannel: str = V) -> NewMessage:
    spans = (TickSpan(TimeTick(5), TimeTick(7)),)
    return plain(encode_change(AckedInTxn("g", txn.id, spans, 2)), vchannel, GROUP_CHANGE, txn=txn)


def test_one_that_names_no_vchannel_or_no_open_transaction_is_refused() -> None:
    state = WriterState(Transactions(), NumberedProducers())
    _, txn = begun(state)
    wrong = [
        change(""),
        change("elsewhere_1v0"),
        acked(txn, W),
        acked(TxnContext(TxnId(77), 0)),
    ]
    result = sequence(wrong, TimeTick(3_000), END, ADMISSION, state)
    codes = [it.code if isinstance(it, Refusal) else None for it in result.outcomes]
    assert codes == [
        StreamingCode.UNRECOVERABLE,
        StreamingCode.UNRECOVERABLE,
        StreamingCode.INVALID_ARGUMENT,
        StreamingCode.TRANSACTION_EXPIRED,
    ]
    assert result.records == ()


def test_what_a_transaction_acknowledges_is_held_from_its_place_in_the_log_on() -> None:
    groups = GroupTable()
    groups.apply(V, GroupCreated("g", 1000, TimeTick(0)), TimeTick(1))
    state = WriterState(Transactions(), NumberedProducers(), groups)
    first, txn = begun(state)
    end = type(END)(END.term, first.next_id, first.last_tick, first.base_id)
    messages = [acked(txn), plain(b"commit", V, 901, txn=txn), acked(txn)]
    result = sequence(messages, TimeTick(3_000), end, ADMISSION, state)
    assert [it.kind for it in result.records] == [GROUP_CHANGE, 901]
    late = result.outcomes[2]
    assert isinstance(late, Refusal)
    assert late.code is StreamingCode.INVALID_TRANSACTION_STATE
    # It counts as a sign of life, and not as a body, which readers would wait for.
    assert result.records[1].txn is not None
    assert result.records[1].txn.bodies == 0
    (held,) = groups.groups[GroupKey(V, "g")].held
    spans = (TickSpan(TimeTick(5), TimeTick(7)),)
    assert held == HeldAck(txn.id, spans, 2, result.records[0].base_tick)
    assert list(groups.holding) == [txn.id]


def test_messages_are_acknowledged_in_one_transaction_alone() -> None:
    """Whatever a Group believes, in one group of the log or in two."""
    groups = GroupTable()
    groups.apply(V, GroupCreated("g", 1000, TimeTick(3)), TimeTick(1))
    state = WriterState(Transactions(), NumberedProducers(), groups)
    first, txn = begun(state)
    end = type(END)(END.term, first.next_id, first.last_tick, first.base_id)

    def taken(*spans: tuple[int, int], name: str = "g") -> NewMessage:
        found = tuple([TickSpan(TimeTick(after), TimeTick(upto)) for after, upto in spans])
        body = encode_change(AckedInTxn(name, txn.id, found, 1))
        return plain(body, V, GROUP_CHANGE, txn=txn)

    groups.apply(V, MessagesAcked("g", (TickSpan(TimeTick(20), TimeTick(30)),)), TimeTick(2))
    together = [taken((3, 7)), taken((6, 8)), taken((2, 3)), taken((8, 9), (29, 31))]
    result = sequence([*together, taken((7, 8))], TimeTick(3_000), end, ADMISSION, state)
    refused = [it.code if isinstance(it, Refusal) else None for it in result.outcomes]
    late = StreamingCode.INVALID_REQUEST_SEQ
    assert refused == [None, late, late, late, None]
    later = [taken((4, 5)), taken((40, 41), name="gone"), taken((8, 9))]
    result = sequence(later, TimeTick(4_000), result.end, ADMISSION, state)
    refused = [it.code if isinstance(it, Refusal) else None for it in result.outcomes]
    assert refused == [late, late, None]


def test_one_whose_transaction_has_ended_since_it_was_admitted_holds_nothing() -> None:
    """An exclusive message behind it ends the transaction: its rollback lies behind it, too."""
    groups = GroupTable()
    groups.apply(V, GroupCreated("g", 1000, TimeTick(0)), TimeTick(1))
    state = WriterState(Transactions(), NumberedProducers(), groups)
    first, txn = begun(state)
    end = type(END)(END.term, first.next_id, first.last_tick, first.base_id)
    messages = [acked(txn), plain(b"exclusive", V, 5)]
    result = sequence(messages, TimeTick(3_000), end, ADMISSION, state)
    assert [it.kind for it in result.records] == [GROUP_CHANGE, 902, 5]
    for session in state.transactions.stored():
        groups.end_txn(session.context.id, None)
    assert groups.groups[GroupKey(V, "g")].held == []


def test_it_shares_no_record_with_its_neighbours() -> None:
    state = WriterState(Transactions(), NumberedProducers())
    messages = [plain(b"a"), change(), change(), plain(b"b")]
    result = sequence(messages, TimeTick(2_000), END, ADMISSION, state)
    assert [(it.kind, len(it.sizes)) for it in result.records] == [
        (2, 2),
        (GROUP_CHANGE, 1),
        (GROUP_CHANGE, 1),
    ]
    assert {it.txn.begin_id for it in result.records if it.txn is not None} == {MessageId(0)}
