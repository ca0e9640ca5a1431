"""Copies of delayed messages that are due: records of their own, which only groups are shown."""

import pytest

from broker.core.log.assembler import Assembler
from broker.core.log.delivery import Selection, catch_up, deliver
from broker.core.log.numbered_producers import NumberedProducers
from broker.core.log.record_drafts import WriterState
from broker.core.log.sequencer import sequence
from broker.core.txn.transactions import Transactions
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import MessageId, TimeTick
from broker.model.message import RELEASED, Appended, Delivered, NewRun
from broker.model.position import ReadPosition
from broker.model.record import Record
from tests.broker.core.log.singly import each_of
from tests.broker.core.log.test_sequencer import ADMISSION, END
from tests.broker.core.log.test_sequencer_groups import V, plain


def released(*texts: bytes, vchannel: str = V) -> NewRun:
    sizes = tuple(map(len, texts))
    return NewRun(vchannel, RELEASED, b"", sum(sizes), bodies=texts, sizes=sizes)


def stored(*messages: object) -> tuple[list[Record], tuple[object, ...]]:
    state = WriterState(Transactions(), NumberedProducers())
    result = sequence(messages, TimeTick(2_000), END, ADMISSION, state)  # type: ignore[arg-type]
    return list(result.records), result.outcomes


def seen(records: list[Record], from_id: MessageId, *, of_group: bool) -> list[bytes]:
    """What a reader is given that resumes at this id."""
    first = records[0].base_id
    assembler = Assembler(first, partial=True)
    cursor = ReadPosition(from_id, TimeTick(0), first, partial=True)
    catch_up(records, cursor, assembler)
    assert assembler.next_id == from_id, "a copy would be passed over"
    left = [it for it in records if it.next_id > from_id]
    selection = Selection(V, TimeTick(0), None, whole=of_group, released=of_group)
    found = deliver(left, cursor, selection, 1 << 20, assembler)
    assert not found.broken
    assert found.cursor.next_id == records[-1].next_id
    return [it.body for it in each_of(found.items) if isinstance(it, Delivered)]


def test_copies_are_one_record_that_readers_pass_over_and_groups_read() -> None:
    records, outcomes = stored(plain(b"a"), released(b"x", b"y", b"z"), plain(b"b"))
    assert all(isinstance(it, Appended) for it in outcomes)
    (copies,) = [it for it in records if it.kind == RELEASED]
    assert copies.sizes == (1, 1, 1)
    first = records[0].base_id
    assert sorted(seen(records, first, of_group=False)) == [b"a", b"b"]
    assert sorted(seen(records, first, of_group=True)) == [b"a", b"b", b"x", b"y", b"z"]


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_group_resumes_within_a_record_of_copies(at: int) -> None:
    records, _ = stored(released(b"x", b"y", b"z"))
    from_id = MessageId(records[0].base_id + at)
    assert seen(records, from_id, of_group=True) == [b"x", b"y", b"z"][at:]
    assert seen(records, from_id, of_group=False) == []


def test_a_copy_is_stored_though_it_is_larger_than_a_message_may_be() -> None:
    large = b"x" * (ADMISSION.message_bytes_max + 1)
    _, (outcome,) = stored(released(large))
    assert isinstance(outcome, Appended)
    _, (refused,) = stored(plain(large))
    assert isinstance(refused, Refusal)


def test_copies_without_a_vchannel_are_refused() -> None:
    _, (outcome,) = stored(released(b"x", vchannel=""))
    assert isinstance(outcome, Refusal)
    assert outcome.code is StreamingCode.UNRECOVERABLE
