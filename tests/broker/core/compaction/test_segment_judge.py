"""What a pass leaves of single records, and what it never touches."""

from dataclasses import replace

from broker.core.compaction.key_scan import KeyScan, Target
from broker.core.compaction.segment_judge import Judgement, SegmentJudge
from broker.model.batch import Codec
from broker.model.ids import MessageId, TimeTick
from broker.model.message import COMPACTION, PREPARE_TXN, MessageType
from broker.model.record import Record
from tests.broker.core.compaction.compacted_log import ALL, CompactedLog, LogReader, batch, no_key
from tests.broker.core.txn.test_transactions import V, Writer, of

LATE = TimeTick(1 << 62)
PLAIN = Judgement(lambda *_: False, lambda it: it, lambda _: False)


def judged(
    records: list[Record], by: Judgement = PLAIN, upto: TimeTick = LATE
) -> list[tuple[Record, ...] | None]:
    scan = KeyScan({V[0]: Target()}, upto, ALL, key_of_text)
    for record in records:
        scan.take(record)
    judge = SegmentJudge(scan, records[0].base_id, {}, key_of_text, by)
    for record in records:
        judge.look(record)
    left = [judge.left(it) for it in records]
    return [None if it is None else tuple(it) for it in left]


def key_of_text(stored: bytes) -> tuple[bytes | None, bool]:
    """The key of a plain message here: its first byte, or none."""
    return (stored[:1] or None), len(stored) == 1


def stored(*rows: tuple[bytes, bytes], vchannel: str = V[0]) -> list[Record]:
    writer = Writer()
    for row in rows:
        writer.one(batch([row], vchannel=vchannel))
    return writer.records


def test_what_somebody_holds_stays_as_it_is() -> None:
    records = stored((b"k", b"1"), (b"k", b"2"))
    assert judged(records) == [(), None]
    held = replace(PLAIN, held=lambda it, first, last: first == last == it.base_tick)
    assert judged(records, held) == [None, None]


def test_a_compressed_record_is_unpacked_or_stays() -> None:
    writer = Writer()
    writer.one(batch([(b"k", b"1"), (b"l", b"1")]))
    writer.one(batch([(b"k", b"2")]))
    first, second = writer.records
    assert first.batch is not None
    packed = replace(first, batch=replace(first.batch, codec=Codec.LZ4))
    plain = replace(PLAIN, unpacked=lambda _: first)
    (left, rest) = judged([packed, second], plain)
    assert left is not None
    assert [it.base_id for it in left] == [first.base_id + 1]
    assert rest is None
    assert judged([packed, second], replace(PLAIN, unpacked=lambda _: None)) == [None, None]


def test_plain_messages_have_their_keys_in_their_stored_form() -> None:
    def plain(id: int, body: bytes) -> Record:
        at = MessageId(id)
        tick, size = TimeTick(10 * id), (len(body),)
        return Record(Writer().end.term, at, tick, at, MessageType.INSERT, V[0], size, body)

    records = [plain(1, b"a1"), plain(2, b""), plain(3, b"a2"), plain(4, b"b")]
    assert judged(records) == [(), None, None, None]


def test_what_is_behind_the_pass_stays_and_other_vchannels_and_kinds_too() -> None:
    records = stored((b"k", b"1"), (b"k", b"2"), (b"k", b"3"))
    assert judged(records, upto=records[1].last_tick) == [(), None, None]
    assert judged(stored((b"k", b"1"), (b"k", b"2"), vchannel=V[1])) == [None, None]
    definition = replace(records[0], kind=MessageType.CREATE_PARTITION)
    assert judged([definition, records[1]]) == [None, None]


def test_a_record_of_an_earlier_pass_goes_with_a_later_one() -> None:
    word = replace(stored((b"k", b"1"))[0], kind=COMPACTION, batch=None)
    assert judged([word]) == [None]
    assert judged([word], replace(PLAIN, outdated=lambda _: True)) == [()]


def test_a_transaction_of_which_nothing_is_left_goes_whole_and_one_across_a_begin_stays() -> None:
    writer = Writer()
    txn = writer.begin()
    writer.one(batch([(b"k", b"1")], txn))
    writer.one(of(txn, 901))
    writer.one(batch([(b"k", b"2")]))
    begin, body, commit, newer = writer.records
    assert judged([begin, body, commit, newer]) == [(), (), (), None]
    scan = KeyScan({V[0]: Target()}, LATE, ALL, no_key)
    for record in writer.records:
        scan.take(record)
    ends: dict = {}  # type: ignore[type-arg]
    later = SegmentJudge(scan, commit.base_id, ends, no_key, PLAIN)
    later.look(commit)
    later.look(newer)
    assert ends == {txn.id: commit.base_tick}
    assert later.left(commit) is None, "its begin may be there still"
    earlier = SegmentJudge(scan, begin.base_id, ends, no_key, PLAIN)
    earlier.look(begin)
    earlier.look(body)
    assert (earlier.gone, earlier.left(begin), earlier.left(body)) == (1, None, ())


def test_a_transaction_of_which_somebody_needs_a_message_keeps_it_with_begin_and_end() -> None:
    writer = Writer()
    txn = writer.begin()
    writer.one(batch([(b"k", b"1")], txn))
    writer.one(of(txn, 901))
    writer.one(batch([(b"k", b"2")]))
    commit = writer.records[2].base_tick
    held = replace(PLAIN, held=lambda _, first, last: first <= commit <= last)
    assert judged(writer.records, held) == [None, None, None, None]
    rolled_back = Writer()
    txn = rolled_back.begin()
    rolled_back.one(batch([(b"k", b"1")], txn))
    rolled_back.one(of(txn, 902))
    rolled_back.one(batch([(b"k", b"2")]))
    always = replace(PLAIN, held=lambda *_: True)
    assert judged(rolled_back.records, always) == [(), (), (), None], "nobody was to get it"


def test_tombstones_that_stay_are_counted_by_vchannel() -> None:
    records = stored((b"k", b""), (b"l", b""), (b"k", b""))
    scan = KeyScan({V[0]: Target()}, LATE, ALL, no_key)
    for record in records:
        scan.take(record)
    judge = SegmentJudge(scan, records[0].base_id, {}, no_key, PLAIN)
    for record in records:
        judge.look(record)
    assert (judge.tombstones, judge.gone) == ({V[0]: 2}, 1)


def test_a_step_of_a_transaction_has_no_key_and_stays_with_what_is_left() -> None:
    writer = Writer()
    txn = writer.begin()
    writer.one(batch([(b"k", b"1")], txn))
    writer.one(of(txn, 901))
    begin, body, commit = writer.records
    prepare = replace(body, kind=PREPARE_TXN, batch=None)
    scan = KeyScan({V[0]: Target()}, LATE, ALL, no_key)
    for record in (begin, body, prepare, commit):
        assert scan.take(record)
    assert len(scan.newest) == 1
    judge = SegmentJudge(scan, begin.base_id, {}, no_key, PLAIN)
    for record in (begin, body, prepare, commit):
        judge.look(record)
    assert judge.gone == 0
    assert judge.left(prepare) is None


def test_a_reader_forgets_a_transaction_whose_end_was_removed_with_it() -> None:
    log = CompactedLog()
    log.begin()
    (txn,) = log.bodies
    log.append([(b"k", b"1")], txn)
    reader = LogReader(log)
    reader.finish()
    assert reader.assembler.open_count == 1
    log.end(txn, commit=True)
    log.append([(b"k", b"2")])
    log.append([(b"l", b"3")])
    log.seal()
    assert log.compact(ALL, TimeTick(0))
    assert [it.base_id for it in log.records if it.txn is not None] == []
    assert [it.payload for it in reader.finish()] == [b"2", b"3"]
    assert reader.assembler.open_count == 0
    assert reader.cursor.open_id == reader.cursor.next_id, "it holds back nothing"
