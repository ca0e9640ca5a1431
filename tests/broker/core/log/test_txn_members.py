"""Bodies that come in batches: the writer's rules for them, and how much of one fits a reader."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from broker.core.log.txn_members import TxnMembers, members_of
from broker.core.txn.txn_limits import TxnLimits
from broker.model.batch import BatchKeys, BatchPart, Codec, NewBatch
from broker.model.failure import StreamingCode
from broker.model.ids import TxnId
from broker.model.message import Appended, AppendedInTxn, Delivered
from broker.model.producer_numbers import OutOfSequence, ProducerPart
from broker.model.record import RecordSliceInTxn
from broker.model.txn import TxnContext
from tests.broker.core.txn.test_transactions import EXPIRED, WRONG, V, Writer, code, of


def batch_of(
    txn: TxnContext, *sizes: int, kind: int = 2, vchannel: str = V[0], number: int | None = None
) -> NewBatch:
    """Bodies that come together; `number`: that of the first one, when they are numbered."""
    producer = None if number is None else ProducerPart("a", number)
    part, body = BatchPart(b"shared", producer=producer), b"y" * sum(sizes)
    return NewBatch(vchannel, kind, body, len(body), txn=txn, sizes=sizes, part=part)


def test_a_batch_of_bodies_is_one_record_between_those_that_came_before_and_after_it() -> None:
    writer = Writer()
    txn = writer.begin()
    writer.group(of(txn, 2), batch_of(txn, 5, 0, 7), of(txn, 2), of(txn, 901))
    records = [it for it in writer.records if it.txn]
    assert [(it.kind, len(it.sizes), it.batch is not None) for it in records] == [
        (900, 1, False), (2, 1, False), (2, 3, True), (2, 1, False), (901, 1, False),
    ]  # fmt: skip
    assert [it.txn and it.txn.bodies for it in records] == [0, 0, 1, 4, 5]


def test_a_repeated_batch_gets_its_first_answer_whatever_became_of_the_transaction() -> None:
    writer = Writer()
    txn = writer.begin()
    body = batch_of(txn, 1, 1, number=0)
    first, again = writer.group(body, body).outcomes
    assert isinstance(first, AppendedInTxn)
    assert again == first
    writer.one(of(txn, 901))
    assert _landed(writer.one(body)) == _landed(first)
    assert len([it for it in writer.records if it.batch]) == 1


def _landed(outcome: object) -> tuple[int, int]:
    assert isinstance(outcome, Appended), outcome
    return outcome.id, outcome.tick


def test_a_batch_that_its_transaction_refuses_uses_up_no_number() -> None:
    writer = Writer()
    txn = writer.begin()
    writer.one(of(txn, 902))
    late, after = writer.group(batch_of(txn, 1, number=0), batch_of(txn, 1, number=1)).outcomes
    assert code(late) is WRONG
    assert isinstance(after, OutOfSequence)
    assert after.expected == 0
    other = writer.begin()
    assert isinstance(writer.one(batch_of(other, 1, number=0)), AppendedInTxn)


def test_batches_count_against_the_limits_of_a_transaction_also_after_a_restart() -> None:
    limits = TxnLimits(txn_bytes_max=150)
    for codec in (Codec.NONE, Codec.LZ4, Codec.ARROW):
        writer = Writer(limits)
        txn = writer.begin()
        packed = replace(
            batch_of(txn, *[25] * 4), part=BatchPart(b"p" * 10, codec, BatchKeys((), b""))
        )
        small = replace(packed, body=b"packed", size=110) if codec is Codec.LZ4 else packed
        assert isinstance(writer.one(replace(small, size=110)), AppendedInTxn)
        for _ in range(2):
            assert code(writer.one(batch_of(txn, 50))) is StreamingCode.UNRECOVERABLE
            writer.restart()
        assert isinstance(writer.one(batch_of(txn, 40)), AppendedInTxn)


def test_a_batch_of_what_is_no_body_or_for_another_vchannel_is_refused() -> None:
    writer = Writer()
    txn = writer.begin()
    for wrong in (batch_of(txn, 1, vchannel=V[1]), batch_of(txn, 1, kind=11)):
        assert code(writer.one(wrong)) is StreamingCode.INVALID_ARGUMENT
    gone = TxnContext(TxnId(5), 1000)
    assert code(writer.one(batch_of(gone, 1))) is EXPIRED


def committed(*bodies: tuple[int, ...] | int) -> TxnMembers:
    """A number is a body by itself, several are a batch."""
    writer = Writer()
    txn = writer.begin()
    for body in bodies:
        writer.one(of(txn, 2, size=body) if isinstance(body, int) else batch_of(txn, *body))
    writer.one(of(txn, 901))
    begin, *middle, commit = [it for it in writer.records if it.txn]
    return members_of(begin, middle, commit, None)


@given(
    st.lists(
        st.one_of(
            st.integers(0, 90), st.lists(st.integers(0, 90), min_size=1, max_size=4).map(tuple)
        ),
        max_size=5,
    ),
    st.lists(st.integers(0, 300), min_size=1, max_size=4),
    st.booleans(),
)
def test_taken_piece_by_piece_each_member_comes_once_and_in_order(
    bodies: list[tuple[int, ...] | int], rooms: list[int], whole: bool
) -> None:
    members = committed(*bodies)
    ids: list[int] = []
    while len(ids) < members.count:
        room = rooms[len(ids) % len(rooms)]
        taken = members.take(len(ids), room, whole=whole, one_at_least=True)
        found: list[int] = []
        for item in taken.items:
            if isinstance(item, Delivered):
                found.append(item.id)
            else:
                assert item.end > item.first
                found += [item.record.base_id + at for at in range(item.first, item.end)]
        assert len(found) == taken.count > 0
        assert taken.used_bytes <= room or len(taken.items) == 1
        ids += found
    assert ids == list(range(ids[0], ids[0] + members.count))
    assert members.take(0, 0, whole=whole, one_at_least=False).count == 0


def test_a_batch_is_given_whole_to_who_wants_that_and_cut_for_others() -> None:
    members = committed((50, 50, 50))
    (cut,) = members.take(1, 250, whole=False, one_at_least=True).items
    (whole,) = members.take(1, 1, whole=True, one_at_least=True).items
    assert isinstance(cut, RecordSliceInTxn)
    assert isinstance(whole, RecordSliceInTxn)
    assert ((cut.first, cut.end), (whole.first, whole.end)) == ((0, 2), (0, 3))
    assert cut.tick == whole.tick > whole.record.last_tick


def test_a_reader_of_some_types_gets_only_the_bodies_of_these_and_both_ends() -> None:
    writer = Writer()
    txn = writer.begin()
    writer.group(of(txn, 2), of(txn, 3), batch_of(txn, 5, 7), of(txn, 901))
    begin, *middle, commit = [it for it in writer.records if it.txn]
    inserts = members_of(begin, middle, commit, frozenset({2}))
    deletes = members_of(begin, middle, commit, frozenset({3}))
    assert (inserts.count, deletes.count) == (1 + 4 + 1,) * 2, "all of them have their numbers"
