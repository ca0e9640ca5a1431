"""Batches on their way to readers, piece by piece and whole, against one naive walk."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from broker.core.log.assembler import Assembler
from broker.core.log.delivery import Selection, deliver
from broker.core.log.tail_window import MESSAGE_OVERHEAD_BYTES, TailWindow
from broker.core.log.txn_members import whole_record
from broker.model.batch import BatchKeys, BatchPart, Codec, OwnProperties
from broker.model.ids import MessageId, Term, TimeTick
from broker.model.position import ReadPosition
from broker.model.record import Record, RecordSlice

VCHANNELS = ("p_1v0", "p_2v0", "p_3v0", "")


@st.composite
def logs(draw: st.DrawFn) -> list[Record]:
    """Records of both kinds, ticks not always next to each other."""
    records: list[Record] = []
    next_id, tick = 1, 1
    for _ in range(draw(st.integers(0, 12))):
        sizes = tuple(draw(st.lists(st.integers(0, 100), min_size=1, max_size=6)))
        record = Record(
            Term(1),
            MessageId(next_id),
            TimeTick(tick),
            MessageId(next_id),
            draw(st.sampled_from((2, 3))),
            draw(st.sampled_from(VCHANNELS)),
            sizes,
            bytes(sum(sizes)),
            batch=BatchPart(b"shared") if draw(st.booleans()) else None,
        )
        records.append(record)
        next_id, tick = record.next_id, record.last_tick + draw(st.integers(1, 3))
    return records


SELECTIONS = st.builds(
    Selection,
    vchannel=st.sampled_from(("", "p_1v0")),
    floor=st.integers(0, 20).map(TimeTick),
    kinds=st.sampled_from((None, frozenset({3}))),
    among=st.sampled_from((None, frozenset({"p_1v0", "p_2v0"}))),
    whole=st.booleans(),
)


def naive(records: list[Record], wanted: Selection) -> list[tuple[int, int]]:
    def seen(record: Record) -> bool:
        if wanted.kinds is not None and record.kind not in wanted.kinds:
            return False
        if not record.vchannel:
            return True
        if wanted.vchannel:
            return record.vchannel == wanted.vchannel
        return wanted.among is None or record.vchannel in wanted.among

    return [
        (record.base_id + at, record.base_tick + at)
        for record in records
        if seen(record)
        for at in range(len(record.sizes))
        if record.base_tick + at > wanted.floor
    ]


@given(logs(), SELECTIONS, st.lists(st.integers(0, 400), min_size=1))
def test_batches_piece_by_piece_are_what_one_naive_walk_gives(
    records: list[Record], wanted: Selection, credits: list[int]
) -> None:
    end = records[-1].next_id if records else MessageId(1)
    cursor = ReadPosition(MessageId(1))
    assembler = Assembler(cursor.next_id)
    found: list[tuple[int, int]] = []
    pulls = 0
    while cursor.next_id < end:
        left = [record for record in records if record.next_id > cursor.next_id]
        picked = deliver(left, cursor, wanted, credits[pulls % len(credits)], assembler)
        for item in picked.items:
            assert isinstance(item, RecordSlice)
            found += [
                (item.record.base_id + at, item.record.base_tick + at)
                for at in range(item.first, item.end)
            ]
            assert found[-1][1] == item.last_tick
        if found:
            assert picked.cursor.tick in (cursor.tick, found[-1][1])
        cursor = picked.cursor
        pulls += 1
        assert pulls < 1000
    assert found == naive(records, wanted)


@given(logs(), st.integers(0, 400))
def test_a_whole_record_is_given_as_one_slice_and_exceeds_a_credit_alone(
    records: list[Record], credit: int
) -> None:
    wanted = Selection("", TimeTick(0), None, whole=True)
    items = deliver(
        records, ReadPosition(MessageId(1)), wanted, credit, Assembler(MessageId(1))
    ).items
    slices = [item for item in items if isinstance(item, RecordSlice)]
    assert [it.record for it in slices] == records[: len(slices)]
    assert sum(used(it.record) for it in slices) <= credit or len(slices) <= 1


def two_messages(part: BatchPart, size: int = 1) -> Record:
    return Record(
        Term(1), MessageId(1), TimeTick(1), MessageId(1), 2, "p_1v0", (size,) * 2,
        bytes(2 * size), batch=part,
    )  # fmt: skip


def tail_bytes(part: BatchPart) -> int:
    window = TailWindow(MessageId(1))
    window.push([two_messages(part)], 0)
    return window.size_bytes


def test_what_a_record_shares_keys_and_own_properties_are_counted_once_in_the_tail() -> None:
    plain = tail_bytes(BatchPart(b""))
    assert tail_bytes(BatchPart(bytes(1000))) - plain == 1000
    keys = BatchKeys((5, 5), b"key!" * 2)
    assert tail_bytes(BatchPart(b"", keys=keys)) - plain == 8 + 2 * MESSAGE_OVERHEAD_BYTES
    own = OwnProperties((500, 500), bytes(1000))
    assert tail_bytes(BatchPart(b"", own=own)) - plain == 1000 + 2 * MESSAGE_OVERHEAD_BYTES


def used(record: Record) -> int:
    return whole_record(record, 0, 1 << 30, one_at_least=True)[1]


def test_all_that_is_sent_of_a_whole_record_counts_against_the_room_for_it() -> None:
    assert used(two_messages(BatchPart(b"shared"))) == 2 + 6 + 64
    assert used(two_messages(BatchPart(b"shared", keys=BatchKeys((2, 2), b"ab")))) == 2 + 8 + 64
    assert used(replace(two_messages(BatchPart(b"")), batch=None)) == 2 + 64


def test_messages_with_own_properties_count_unpacked_each_with_what_all_of_them_share() -> None:
    part = BatchPart(bytes(100), Codec.ZSTD, own=OwnProperties((10, 20), bytes(30)))
    packed = replace(two_messages(part, size=5000), body=b"packed")
    assert used(packed) >= 2 * 5000 + 2 * 100 + 30
    assert whole_record(packed, 0, 10_000, one_at_least=False) == (0, 0)


def test_sizes_of_a_packed_body_are_those_of_what_is_unpacked() -> None:
    packed = BatchPart(b"", Codec.LZ4)
    for part, sizes, expected in (
        (packed, (100,), True), (packed, (), False), (None, (1,), True), (None, (2,), False),
        (BatchPart(b""), (1,), True), (BatchPart(b""), (), False),
    ):  # fmt: skip
        record = Record(
            Term(1), MessageId(1), TimeTick(1), MessageId(1), 2, "", sizes, b"x", batch=part
        )
        assert record.adds_up is expected


def test_each_message_of_a_record_confirms_itself_or_what_all_of_them_do() -> None:
    for confirmed, expected in ((7, [7, 8]), (3, [3, 3])):
        record = Record(
            Term(1), MessageId(7), TimeTick(1), MessageId(confirmed), 2, "", (0, 0), b""
        )
        assert [record.last_confirmed_of(at) for at in range(2)] == expected


def test_keys_add_up_and_come_apart_again() -> None:
    keys = BatchKeys((0, 4, 1), b"abc")
    assert keys.adds_up(3)
    assert keys.split(3) == [None, b"abc", b""]
    assert BatchKeys().adds_up(5)
    assert BatchKeys().split(2) == [None, None]
    assert not keys.adds_up(2)
    assert not BatchKeys((2,), b"abc").adds_up(1)
    assert not BatchKeys((), b"abc").adds_up(1)
