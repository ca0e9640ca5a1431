"""What is dead, against a naive model, and what readers get of a log without it."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.log.assembler import Assembler
from broker.core.log.dead_records import (
    WORTH_BYTES,
    WORTH_SHARE,
    is_dead,
    worth_rewriting,
)
from broker.core.log.delivery import Selection, catch_up, deliver, selection_of
from broker.model.ids import MessageId, TxnId
from broker.model.message import MessageType
from broker.model.position import ReadPosition
from broker.model.record import Record
from broker.model.retention.dead import Dead, VChannelPart
from tests.broker.core.log.test_assembler import ALL, Reading, broken_by, logs, naive, written
from tests.broker.core.txn.test_transactions import V

LIVE, DROPPED = V
OF_LIVE = selection_of(LIVE, ())


def open_at_the_end(records: Sequence[Record]) -> frozenset[TxnId]:
    begun, ended = set[TxnId](), set[TxnId]()
    for it in records:
        if it.txn is not None:
            ends = it.kind in (MessageType.COMMIT_TXN, MessageType.ROLLBACK_TXN)
            (ended if ends else begun).add(it.txn.id)
    return frozenset(begun - ended)


def without(records: Sequence[Record], dead: Dead, below: int) -> list[Record]:
    """What a rewriting of all segments below an id leaves."""
    left, before = [], False
    for it in records:
        before = it.base_id < below and is_dead(it, dead, behind_dead=before)
        if not before:
            left.append(it)
    return left


class ReadingAcross(Reading):
    """A Scanner whose log was rewritten below an id."""

    given_back_id = MessageId(0)

    def catch_up(self) -> None:
        super().catch_up()
        assert self.assembler is not None
        self.assembler.given_back_id = self.given_back_id


@settings(max_examples=300)
@given(
    logs(),
    st.data(),
    st.lists(st.integers(0, 600), min_size=1, max_size=3),
    st.sets(st.integers(0, 6)),
)
def test_readers_of_a_rewritten_log_get_all_that_is_needed(
    records: list[Record], data: st.DataObject, credits: list[int], restarts: set[int]
) -> None:
    """The newest record stays, as the log sees to it."""
    below = data.draw(st.integers(1, records[-1].base_id))
    dead = Dead(frozenset({DROPPED}), open_txns=open_at_the_end(records))
    left = without(records, dead, below)
    selection: Selection = data.draw(st.sampled_from((ALL, OF_LIVE)))
    reading = ReadingAcross(left, selection, ReadPosition(MessageId(1)))
    reading.given_back_id = MessageId(below)
    found = reading.all(credits, restarts)
    needed = [it for it in naive(records, OF_LIVE) if it[0] not in ticks_of(records)]
    assert [it for it in found if it in needed] == needed
    assert set(found) <= set(naive(records, selection))


def ticks_of(records: Sequence[Record]) -> set[int]:
    """Ids of records that only close a tick: those may go with the dead records before them."""
    return {it.base_id for it in records if it.kind == MessageType.TIME_TICK}


@settings(max_examples=300)
@given(logs(), st.data())
def test_what_is_dead_is_what_the_naive_model_says(
    records: list[Record], data: st.DataObject
) -> None:
    floors = data.draw(st.dictionaries(st.sampled_from(V), st.integers(0, 60), max_size=2))
    dropped = data.draw(st.sets(st.sampled_from(V)))
    txns = open_at_the_end(records)
    dead = Dead(frozenset(dropped), {n: MessageId(i) for n, i in floors.items()}, txns)
    for it in records:
        needed = (it.txn is not None and it.txn.id in txns) or not it.vchannel
        for each in it.messages():
            needed |= it.vchannel not in dropped and each.id >= floors.get(it.vchannel, 0)
        assert dead.covers(it) == (not needed)


def test_a_tick_record_goes_with_the_dead_ones_before_it() -> None:
    record = written()[0]
    tick = replace(record, kind=MessageType.TIME_TICK, vchannel="", txn=None)
    other = replace(tick, kind=2)
    dead = Dead(frozenset({record.vchannel}))
    assert is_dead(record, dead, behind_dead=False)
    assert is_dead(tick, dead, behind_dead=True)
    assert not is_dead(tick, dead, behind_dead=False)
    assert not is_dead(other, dead, behind_dead=True), "a message for everybody"
    assert not is_dead(replace(tick, vchannel="x"), dead, behind_dead=True)


def test_dead_bytes_are_counted_by_vchannel_and_across_a_floor_by_ids() -> None:
    contents = {
        "a": VChannelPart(1000, MessageId(1), MessageId(11)),
        "b": VChannelPart(500, MessageId(3), MessageId(13)),
    }
    assert Dead().bytes_in(contents) == 0
    assert Dead(frozenset({"a", "z"})).bytes_in(contents) == 1000
    for floor, size in ((1, 0), (3, 0), (8, 250), (13, 500), (99, 500)):
        assert Dead(below={"b": MessageId(floor)}).bytes_in(contents) == size


def test_a_segment_is_rewritten_when_a_share_of_it_is_dead() -> None:
    assert not worth_rewriting(0, 0)
    assert not worth_rewriting(WORTH_BYTES - 1, WORTH_BYTES)
    assert worth_rewriting(WORTH_BYTES, WORTH_BYTES * WORTH_SHARE)
    assert not worth_rewriting(WORTH_BYTES, WORTH_BYTES * WORTH_SHARE + 1)


def test_a_transaction_that_is_partly_given_back_is_passed_over() -> None:
    begin_, first, second, commit = written()
    for left in ([begin_, second, commit], [begin_, first, commit], [first, commit], [commit]):
        assert broken_by(left, 1)
        cursor = ReadPosition(MessageId(1), open_id=MessageId(1))
        assembler = Assembler(MessageId(1))
        assembler.given_back_id = MessageId(2)
        picked = deliver(left, cursor, ALL, 1 << 20, assembler)
        assert (picked.broken, picked.items) == ("", ())
        assert picked.cursor.next_id == commit.next_id
        assert assembler.open_count == 0


def test_catching_up_across_a_gap_ends_at_the_cursor() -> None:
    *_, commit = written()
    assembler = Assembler(MessageId(1))
    catch_up([commit], ReadPosition(MessageId(3)), assembler)
    assert assembler.next_id == 3
