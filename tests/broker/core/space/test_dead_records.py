"""What is dead, against a naive model, and what readers get of a log without it."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.log.assembler import Assembler
from broker.core.log.delivery import Selection, catch_up, deliver, selection_of
from broker.core.space.dead_records import (
    WORTH_BYTES,
    WORTH_SHARE,
    is_dead,
    worth_rewriting,
)
from broker.core.txn.transactions import Transactions
from broker.core.txn.txn_limits import TxnLimits
from broker.model.ids import MessageId, TimeTick, TxnId
from broker.model.message import MessageType
from broker.model.position import ReadPosition
from broker.model.record import Record
from broker.model.retention.dead import PURGED_KINDS, Dead, VChannelPart
from tests.broker.core.log.test_assembler import ALL, Reading, broken_by, logs, naive, written
from tests.broker.core.txn.test_transactions import V, Writer, of
from tests.cases import cases

LIVE, DROPPED = V
OF_LIVE, OF_DROPPED = selection_of(LIVE, ()), selection_of(DROPPED, ())


def whole_behind(records: Sequence[Record], tick: int) -> MessageId:
    """No transaction that ends behind the tick has a record below, as the log answers it."""
    for it in records:
        if it.last_tick > tick:
            first = it.base_id + max(0, tick + 1 - it.base_tick)
            return MessageId(min(first, it.last_confirmed_id))
    begun = dict[TxnId, MessageId]()
    for it in records:
        if it.txn is not None and it.kind == MessageType.BEGIN_TXN:
            begun[it.txn.id] = it.base_id
        elif it.txn is not None and it.kind in (MessageType.COMMIT_TXN, MessageType.ROLLBACK_TXN):
            begun.pop(it.txn.id, None)
    return min([records[-1].next_id, *begun.values()])


def without(records: Sequence[Record], dead: Dead, below: int) -> list[Record]:
    """What a rewriting of all segments below an id leaves."""
    left, before = [], False
    for it in records:
        before = it.base_id < below and is_dead(it, dead, behind_dead=before)
        if not before:
            left.append(it)
    return left


class ReadingAcross(Reading):
    """A Scanner whose log was rewritten: of `gone` up to a tick."""

    gone: TimeTick

    def catch_up(self) -> None:
        super().catch_up()
        assert self.assembler is not None
        self.assembler.given_back = {DROPPED: self.gone}


READS = st.lists(st.integers(0, 600), min_size=1, max_size=3), st.sets(st.integers(0, 6))


@settings(max_examples=cases(400))
@given(logs(), st.data(), *READS)
def test_readers_of_a_rewritten_log_get_all_that_is_needed(
    records: list[Record], data: st.DataObject, credits: list[int], restarts: set[int]
) -> None:
    """The newest record stays, as the log sees to it."""
    below = data.draw(st.integers(1, records[-1].base_id))
    tick = data.draw(st.sampled_from([it.last_tick for it in records]))
    dead = Dead({DROPPED: whole_behind(records, tick)})
    left = without(records, dead, below)
    selection: Selection = data.draw(st.sampled_from((ALL, OF_LIVE, OF_DROPPED)))
    reading = ReadingAcross(left, selection, ReadPosition(MessageId(1)))
    reading.gone = tick
    found = reading.all(credits, restarts)
    of_dropped = {each.id for it in records if it.vchannel == DROPPED for each in it.messages()}
    needed = [
        it
        for it in naive(records, selection)
        if it[0] not in ticks_of(records) and not (it[0] in of_dropped and it[1] <= tick)
    ]
    assert [it for it in found if it in needed] == needed
    assert set(found) <= set(naive(records, selection))


@settings(max_examples=cases(400))
@given(logs(), st.data(), *READS)
def test_readers_get_nothing_that_is_purged_and_all_else_whether_it_is_given_back_or_not(
    records: list[Record], data: st.DataObject, credits: list[int], restarts: set[int]
) -> None:
    below = data.draw(st.integers(1, records[-1].base_id))
    ticks = [TimeTick(each) for it in records for each in range(it.base_tick, it.last_tick + 1)]
    tick = data.draw(st.sampled_from(ticks))
    dead = Dead(purged={DROPPED: whole_behind(records, tick)})
    plain: Selection = data.draw(st.sampled_from((ALL, OF_LIVE, OF_DROPPED)))
    selection = replace(plain, purged={DROPPED: tick})
    reading = ReadingAcross(without(records, dead, below), selection, ReadPosition(MessageId(1)))
    reading.gone = tick
    purged = {
        each.id
        for it in records
        if it.vchannel == DROPPED and it.kind in PURGED_KINDS
        for each in it.messages()
    }
    assert [it for it in reading.all(credits, restarts) if it[0] not in ticks_of(records)] == [
        it
        for it in naive(records, plain)
        if it[0] not in ticks_of(records) and not (it[0] in purged and it[1] <= tick)
    ]


def ticks_of(records: Sequence[Record]) -> set[int]:
    """Ids of records that only close a tick: those may go with the dead records before them."""
    return {it.base_id for it in records if it.kind == MessageType.TIME_TICK}


@settings(max_examples=cases(300))
@given(logs(), st.data(), *READS)
def test_a_crash_after_any_rewriting_changes_nothing_for_readers_nor_for_a_replay(
    records: list[Record], data: st.DataObject, credits: list[int], restarts: set[int]
) -> None:
    """Segments are rewritten one by one, in any order, each again when a holder has moved on."""
    cuts = sorted(data.draw(st.sets(st.integers(1, len(records)), max_size=4)) | {len(records)})
    segments = [list(records[at:end]) for at, end in zip([0, *cuts], cuts, strict=False)]
    bases = [it[0].base_id for it in segments]
    tick = data.draw(st.sampled_from([it.last_tick for it in records]))
    floor = whole_behind(records, tick)
    selection: Selection = data.draw(st.sampled_from((ALL, OF_LIVE, OF_DROPPED)))
    above = replace(selection, purged={DROPPED: tick})
    gone = {
        each.id
        for it in records
        if it.vchannel == DROPPED and it.kind in PURGED_KINDS
        for each in it.messages()
    }
    for at in data.draw(st.lists(st.integers(0, len(segments) - 1), max_size=6)):
        held = data.draw(st.sampled_from([floor, *(it.base_id for it in records)]))
        dead = Dead(purged={DROPPED: MessageId(min(floor, held))})
        segments[at] = rewritten(segments[at], dead, bases[at], keep=records[-1])
        left = [it for each in segments for it in each]
        reading = ReadingAcross(left, above, ReadPosition(MessageId(1)))
        reading.gone = tick
        assert [it for it in reading.all(credits, restarts) if it[0] not in ticks_of(records)] == [
            it
            for it in naive(records, selection)
            if it[0] not in ticks_of(records) and not (it[0] in gone and it[1] <= tick)
        ]
        assert open_after(left) == open_after(records), "none is open for ever"
        if selection == ALL:
            assert reading.cursor.open_id == read_all(records).open_id


def rewritten(
    segment: Sequence[Record], dead: Dead, base_id: MessageId, *, keep: Record
) -> list[Record]:
    left, before = [], False
    for it in segment:
        before = it is not keep and is_dead(it, dead, behind_dead=before, segment_id=base_id)
        if not before:
            left.append(it)
    return left


def open_after(records: Sequence[Record]) -> list[int]:
    """The transactions that a new owner finds open."""
    found = Transactions(TxnLimits())
    for it in records:
        found.replay(it)
    return [it.context.id for it in found.views()]


def read_all(records: list[Record]) -> ReadPosition:
    reading = Reading(records, ALL, ReadPosition(MessageId(1)))
    reading.all([1 << 20], set())
    return reading.cursor


@settings(max_examples=cases(300))
@given(logs(), st.data())
def test_what_is_dead_is_what_the_naive_model_says(
    records: list[Record], data: st.DataObject
) -> None:
    floors = st.dictionaries(st.sampled_from(V), st.integers(0, 60).map(MessageId), max_size=2)
    dropped, purged = data.draw(floors), data.draw(floors)
    for it in records:
        every = {each.id for each in it.messages()}
        is_gone = all(each < dropped.get(it.vchannel, 0) for each in every)
        is_purged = all(each < purged.get(it.vchannel, 0) for each in every)
        definition = it.kind in (MessageType.DROP_COLLECTION, 1900, 1901, 1902, 1903)
        expected = is_gone or (is_purged and not definition)
        assert Dead(dropped, purged).covers(it) == expected


def test_a_tick_record_goes_with_the_dead_ones_before_it() -> None:
    record = written()[0]
    tick = replace(record, kind=MessageType.TIME_TICK, vchannel="", txn=None)
    other = replace(tick, kind=2)
    dead = Dead({record.vchannel: MessageId(1 << 62)})
    assert is_dead(record, dead, behind_dead=False)
    assert is_dead(tick, dead, behind_dead=True)
    assert not is_dead(tick, dead, behind_dead=False)
    assert not is_dead(other, dead, behind_dead=True), "a message for everybody"
    assert not is_dead(replace(tick, vchannel="x"), dead, behind_dead=True)


def test_the_end_of_a_transaction_stays_while_its_begin_may_lie_in_an_older_segment() -> None:
    begin_, first, _, commit = written()
    dead = Dead({commit.vchannel: MessageId(1 << 62)})
    for end in (commit, replace(commit, kind=MessageType.ROLLBACK_TXN)):
        assert not is_dead(end, dead, behind_dead=True, segment_id=first.base_id)
        assert is_dead(end, dead, behind_dead=True, segment_id=begin_.base_id)
    assert is_dead(first, dead, behind_dead=True, segment_id=first.base_id)


def test_dead_bytes_are_counted_by_vchannel_and_across_a_floor_by_ids() -> None:
    contents = {
        "a": VChannelPart(1000, MessageId(1), MessageId(11)),
        "b": VChannelPart(500, MessageId(3), MessageId(13)),
    }
    late = MessageId(1 << 62)
    assert Dead().bytes_in(contents) == 0
    assert Dead({"a": late, "z": late}).bytes_in(contents) == 1000
    for floor, size in ((1, 0), (3, 0), (8, 250), (13, 500), (99, 500)):
        assert Dead(purged={"b": MessageId(floor)}).bytes_in(contents) == size
        assert Dead({"b": MessageId(floor)}, {"b": MessageId(2)}).bytes_in(contents) == size


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
        assembler.given_back = {commit.vchannel: commit.base_tick}
        picked = deliver(left, cursor, ALL, 1 << 20, assembler)
        assert (picked.broken, picked.items) == ("", ())
        assert picked.cursor.next_id == commit.next_id
        assert assembler.open_count == 0


def test_a_loss_behind_what_was_given_back_or_of_another_vchannel_is_still_damage() -> None:
    begin_, _, second, commit = written()
    before = TimeTick(second.base_tick - 1)
    for known in ({commit.vchannel: before}, {"another_1v0": commit.base_tick}):
        assembler = Assembler(MessageId(1))
        assembler.given_back = known
        picked = deliver([begin_, second, commit], ReadPosition(MessageId(1)), ALL, 99, assembler)
        assert "follows 2 bodies" in picked.broken
        assert picked.incomplete == second
        assert picked.items == ()


def two_transactions() -> tuple[list[Record], list[Record]]:
    writer = Writer()
    one = writer.begin()
    writer.group(of(one, 2), of(one, 2))
    writer.group(of(one, 901))
    first = list(writer.records)
    other = writer.begin()
    writer.group(of(other, 2), of(other, 2))
    writer.group(of(other, 901))
    return first, writer.records[len(first) :]


def test_a_reader_inside_a_commit_that_was_given_back_gets_the_next_transaction_whole() -> None:
    first, second = two_transactions()
    *_, commit = first
    half = ReadPosition(commit.base_id, inside=3, open_id=commit.base_id)
    picked = deliver(second, half, ALL, 1 << 20, Assembler(commit.base_id))
    assert not picked.broken
    assert len(picked.items) == 4, "the begin, two bodies and the commit"
    assert picked.cursor.inside == 0
    nothing = deliver([], half, ALL, 1 << 20, Assembler(commit.base_id))
    assert nothing.cursor.inside == 3, "whether it is gone is not known yet"


def test_a_reader_inside_a_commit_whose_bodies_were_given_back_gets_the_next_one_whole() -> None:
    first, second = two_transactions()
    *_, commit = first
    half = ReadPosition(commit.base_id, inside=3, open_id=commit.base_id)
    assembler = Assembler(commit.base_id)
    assembler.given_back = {commit.vchannel: commit.base_tick}
    picked = deliver([commit, *second], half, ALL, 1 << 20, assembler)
    assert not picked.broken
    assert len(picked.items) == 4
    assert picked.cursor.inside == 0


def test_a_reader_inside_a_commit_that_is_purged_meanwhile_gets_nothing_more_of_it() -> None:
    first, second = two_transactions()
    *_, commit = first
    half = ReadPosition(commit.base_id, inside=3, open_id=MessageId(1))
    assembler = Assembler(MessageId(1))
    catch_up(first, half, assembler)
    above = replace(ALL, purged={commit.vchannel: commit.base_tick})
    picked = deliver([commit, *second], half, above, 1 << 20, assembler)
    assert len(picked.items) == 4
    assert picked.cursor.inside == 0


def test_catching_up_across_a_gap_ends_at_the_cursor() -> None:
    *_, commit = written()
    assembler = Assembler(MessageId(1))
    catch_up([commit], ReadPosition(MessageId(3)), assembler)
    assert assembler.next_id == 3
