"""What a log holds of each vchannel, against one that adds up all of its records."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.space import log_sizes
from broker.core.space.log_sizes import LogSizes, Straddled, stored_bytes
from broker.model.batch import BatchKeys, BatchPart
from broker.model.ids import MessageId, Term, TimeTick, TxnId
from broker.model.message import MessageType
from broker.model.producer_numbers import ProducerPart
from broker.model.record import Record
from broker.model.retention.dead import Contents, VChannelPart
from broker.model.txn import TxnPart
from tests.cases import cases

V = ("p_1v0", "p_2v0", "p_2v1")


def record(id: int, vchannel: str = V[0], count: int = 1, size: int = 100) -> Record:
    kind = MessageType.INSERT if vchannel else MessageType.TIME_TICK
    at = MessageId(id)
    return Record(
        Term(1), at, TimeTick(10 * id), at, kind, vchannel, (size,) * count, b"x" * size * count
    )


@dataclass(frozen=True)
class Segment:
    next_id: MessageId
    size_bytes: int
    last_tick: TimeTick = TimeTick(1)


@dataclass
class NaiveLog:
    """Sealed segments, and the active one at last; `shown`: records that the sizes were shown."""

    parts: list[list[Record]] = field(default_factory=lambda: [[]])
    ends: list[int] = field(default_factory=lambda: [1])
    """Where each part begins; its size is as it was when it was sealed or written anew."""
    sizes: list[int] = field(default_factory=list)
    next_id: int = 1

    def append(self, vchannel: str, count: int, size: int) -> Record:
        made = record(self.next_id, vchannel, count, size)
        self.parts[-1].append(made)
        self.next_id = made.next_id
        return made

    def seal(self) -> None:
        if self.parts[-1]:
            self.sizes.append(1000 * len(self.parts[-1]))
            self.parts.append([])
            self.ends.append(self.next_id)

    def segments(self) -> list[Segment]:
        return [
            Segment(MessageId(end), size)
            for end, size in zip(self.ends[1:], self.sizes, strict=True)
        ]

    @property
    def first_id(self) -> MessageId:
        return MessageId(self.ends[0])

    def base_of(self, end_id: int) -> MessageId:
        return MessageId(self.ends[self.ends.index(end_id) - 1])

    def contents(self, number: int) -> Contents:
        found: dict[str, VChannelPart] = {}
        for it in self.parts[number]:
            part = VChannelPart(stored_bytes(it), it.base_id, it.next_id)
            before = found.get(it.vchannel)
            found[it.vchannel] = part if before is None else before.joined(part)
        return found

    def drop_oldest(self) -> None:
        if len(self.parts) > 1:
            del self.parts[0], self.ends[0], self.sizes[0]

    def rewrite(self, number: int, vchannel: str, floor: int) -> None:
        """Without what of a vchannel is purged, but with its first record: a definition stays."""
        mine = [it for it in self.parts[number] if it.vchannel == vchannel]
        gone = [it for it in mine if it.next_id <= floor][1:]
        left = [it for it in self.parts[number] if it not in gone]
        if gone and left:
            self.parts[number] = left
            self.sizes[number] -= 1

    def move(self, length: int) -> None:
        """To another place, whose segments begin elsewhere."""
        records = [it for part in self.parts for it in part]
        cuts = range(0, max(len(records), 1), length)
        self.parts = [records[it : it + length] for it in cuts]
        begins = [self.ends[0], *[it[0].base_id for it in self.parts[1:]]]
        self.ends, self.sizes = begins, [999 * len(it) for it in self.parts[:-1]]

    def bytes_of(self, vchannel: str, floor: int) -> int:
        return sum(
            stored_bytes(it)
            for part in self.parts
            for it in part
            if it.vchannel == vchannel and it.next_id > floor
        )


class Counted:
    """The naive log with sizes that are counted of it."""

    def __init__(self, sizes: LogSizes | None = None) -> None:
        self.log, self.sizes = NaiveLog(), sizes or LogSizes()
        self.floors: dict[str, int] = {}
        self.unshown: list[Record] = []

    def begin(self) -> None:
        if not self.sizes.counting:
            self.sizes.begin(MessageId(self.log.next_id))
            base_id = MessageId(self.log.ends[-1])
            self.sizes.read_active(self.log.contents(len(self.log.parts) - 1), base_id)

    def show(self) -> None:
        self.sizes.stored(self.unshown)
        self.unshown = []

    def look(self) -> None:
        self.sizes.look(self.log.segments(), self.log.first_id)
        for vchannel, floor in self.floors.items():
            self.sizes.purged(vchannel, MessageId(floor))

    def read_one(self) -> None:
        if self.sizes.unread:
            segment = self.sizes.unread[0]
            if segment.next_id in self.log.ends[1:]:
                number = self.log.ends.index(segment.next_id) - 1
                contents = self.log.contents(number)
                self.sizes.read(segment, self.log.base_of(segment.next_id), contents)
            else:
                self.sizes.read(segment, MessageId(1), {})

    def refine(self) -> None:
        while self.sizes.straddled:
            found = self.sizes.straddled.pop()
            size = sum(
                stored_bytes(it)
                for part in self.log.parts
                for it in part
                if it.vchannel == found.vchannel and found.floor < it.next_id <= found.end_id
            )
            self.sizes.refine(found, size)

    def settle(self) -> None:
        self.show()
        for _ in range(2):
            self.begin()
            self.look()
        while self.sizes.unread:
            self.read_one()
            self.look()
        self.refine()


actions = st.one_of(
    st.tuples(st.just("append"), st.sampled_from(("", *V)), st.integers(1, 3), st.integers(0, 300)),
    st.tuples(st.sampled_from(("begin", "show", "seal", "look", "read", "drop", "refine"))),
    st.tuples(st.just("purge"), st.sampled_from(V), st.integers(0, 10)),
    st.tuples(st.just("rewrite"), st.sampled_from(V), st.integers(0, 10)),
    st.tuples(st.just("move"), st.integers(1, 9)),
    st.tuples(st.just("stop")),
)


def purge(at: Counted, vchannel: str, which: int) -> None:
    ends = [it.next_id for part in at.log.parts for it in part]
    if ends:
        floor = ends[-1 - which] if which < len(ends) else ends[0]
        at.floors[vchannel] = max(floor, at.floors.get(vchannel, 0))


def act(at: Counted, action: tuple) -> None:  # type: ignore[type-arg]
    match action:
        case ("append", vchannel, count, size):
            at.unshown.append(at.log.append(vchannel, count, size))
        case ("purge", vchannel, which):
            purge(at, vchannel, which)
        case ("move", length):
            at.log.move(length)
        case ("rewrite", vchannel, which):
            if which < len(at.log.parts) - 1:
                at.log.rewrite(which, vchannel, at.floors.get(vchannel, 0))
        case _:
            {
                "begin": at.begin,
                "show": at.show,
                "seal": at.log.seal,
                "look": at.look,
                "read": at.read_one,
                "refine": at.refine,
                "drop": at.log.drop_oldest,
                "stop": at.sizes.stop,
            }[action[0]]()


@settings(max_examples=cases(400))
@given(st.lists(actions, max_size=60))
def test_whatever_happens_the_sizes_are_those_of_the_records(actions: list[tuple]) -> None:  # type: ignore[type-arg]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(log_sizes, "GRAIN_BYTES", 1)
        at = Counted()
        for action in actions:
            act(at, action)
        at.settle()
        assert at.sizes.complete
        for vchannel in V:
            expected = at.log.bytes_of(vchannel, at.floors.get(vchannel, 0))
            assert at.sizes.bytes_of(vchannel) == expected
        assert at.sizes.vchannels() == [it for it in at.sizes.vchannels() if at.sizes.bytes_of(it)]


def counting(*shown: Record, begun: int = 1, parts_max: int = 100) -> LogSizes:
    sizes = LogSizes(parts_max)
    sizes.begin(MessageId(begun))
    sizes.read_active({}, MessageId(begun))
    sizes.stored(shown)
    return sizes


def test_before_it_begins_it_counts_nothing_and_takes_everything() -> None:
    sizes = LogSizes()
    assert not sizes.counting
    sizes.stored([record(1)])
    sizes.look([Segment(MessageId(5), 10)], MessageId(1))
    sizes.read_active({}, MessageId(1))
    sizes.read(Segment(MessageId(5), 10), MessageId(1), {})
    sizes.purged(V[0], MessageId(3))
    sizes.refine(Straddled(V[0], MessageId(3), MessageId(5), 10), 1)
    assert (sizes.vchannels(), sizes.unread, sizes.complete) == ([], [], False)


def test_it_is_complete_once_the_active_segment_and_all_others_are_read() -> None:
    sizes, old, complete = LogSizes(), Segment(MessageId(5), 10), list[bool]()
    sizes.begin(MessageId(9))
    sizes.look([old], MessageId(1))
    assert sizes.unread == [old]
    complete.append(sizes.complete)
    sizes.read_active({V[0]: VChannelPart(40, MessageId(5), MessageId(9))}, MessageId(5))
    assert sizes.bytes_of(V[0]) == 40
    complete.append(sizes.complete)
    sizes.read(old, MessageId(1), {V[1]: VChannelPart(7, MessageId(1), MessageId(5))})
    complete.append(sizes.complete)
    sizes.stop()
    complete.append(sizes.complete)
    assert complete == [False, False, True, False]
    assert not sizes.counting
    assert sizes.bytes_of(V[0]) == 0


def test_of_what_was_appended_while_the_active_segment_was_read_nothing_counts_twice() -> None:
    sizes = LogSizes()
    sizes.begin(MessageId(11))
    sizes.stored([record(11, count=10)])
    contents = {
        V[0]: VChannelPart(2000, MessageId(1), MessageId(21)),
        V[1]: VChannelPart(500, MessageId(12), MessageId(21)),
    }
    sizes.read_active(contents, MessageId(1))
    assert sizes.bytes_of(V[0]) == 1000 + stored_bytes(record(11, count=10))
    assert sizes.bytes_of(V[1]) == 0


def test_an_active_segment_that_was_sealed_meanwhile_is_read_as_a_sealed_one() -> None:
    sizes, sealed = LogSizes(), Segment(MessageId(15), 10)
    sizes.begin(MessageId(11))
    sizes.stored([record(11, count=10)])
    sizes.look([sealed], MessageId(1))
    assert sizes.unread == [sealed]
    sizes.read_active(None, MessageId(1))
    sizes.read(sealed, MessageId(1), {V[0]: VChannelPart(900, MessageId(1), MessageId(15))})
    appended = stored_bytes(record(11, count=10))
    assert sizes.bytes_of(V[0]) == 900 + appended - appended * 4 // 10
    sizes.look([sealed], MessageId(1))
    assert sizes.complete


def test_a_segment_is_sealed_only_once_all_of_its_records_were_shown() -> None:
    sizes, sealed = counting(record(1)), Segment(MessageId(3), 10)
    for _ in range(2):
        sizes.look([sealed], MessageId(1))
        assert sizes.unread == []
    sizes.stored([record(2)])
    sizes.look([sealed], MessageId(1))
    sizes.look([], MessageId(3))
    assert sizes.bytes_of(V[0]) == 0, "it was removed"


def test_a_log_that_does_not_tell_its_segments_while_it_is_moved_keeps_its_figures() -> None:
    sizes, sealed = counting(record(1), record(2)), Segment(MessageId(3), 10)
    whole = sizes.bytes_of(V[0])
    sizes.look([sealed], MessageId(1))
    sizes.look([], MessageId(1))
    assert sizes.bytes_of(V[0]) == whole
    moved = [Segment(MessageId(2), 5), Segment(MessageId(3), 6)]
    sizes.look(moved, MessageId(1))
    assert sizes.unread == moved
    sizes.look([], MessageId(3))
    assert sizes.bytes_of(V[0]) == 0, "they were removed"


def test_of_a_log_whose_active_segment_begins_earlier_after_a_move_all_is_counted_again() -> None:
    sizes = counting(record(1), record(2))
    sizes.look([Segment(MessageId(3), 10)], MessageId(1))
    sizes.look([Segment(MessageId(2), 10)], MessageId(1))
    assert not sizes.counting
    assert sizes.wanted


def test_of_a_log_that_a_move_cuts_where_it_was_active_all_is_counted_again() -> None:
    sizes = LogSizes()
    sizes.begin(MessageId(3))
    sizes.read_active({V[0]: VChannelPart(90, MessageId(1), MessageId(3))}, MessageId(1))
    sizes.look([Segment(MessageId(2), 10)], MessageId(1))
    assert (sizes.counting, sizes.wanted) == (False, True)


def test_what_was_sealed_and_removed_between_two_looks_counts_no_more() -> None:
    sizes = counting(record(1), record(2))
    sizes.look([], MessageId(3))
    assert sizes.vchannels() == []


def test_ticks_and_what_was_read_with_the_active_segment_count_nothing() -> None:
    sizes = LogSizes()
    sizes.begin(MessageId(5))
    sizes.stored([record(4), record(5, ""), record(5), record(6, "")])
    assert sizes.bytes_of(V[0]) == stored_bytes(record(5))
    contents = {
        "": VChannelPart(30, MessageId(1), MessageId(5)),
        V[0]: VChannelPart(20, MessageId(1), MessageId(5)),
        V[1]: VChannelPart(9, MessageId(5), MessageId(7)),
    }
    sizes.purged(V[0], MessageId(3))
    sizes.read_active(contents, MessageId(1))
    assert sizes.bytes_of(V[0]) == 10 + stored_bytes(record(5)), "half of it is purged"
    assert sizes.vchannels() == [V[0]]


def test_of_several_stretches_the_one_that_is_straddled_is_refined() -> None:
    sizes = counting(record(1), record(2))
    sizes.look([Segment(MessageId(3), 10)], MessageId(1))
    sizes.stored([record(3), record(4)])
    sizes.purged(V[0], MessageId(2))
    (found,) = sizes.straddled
    assert found.end_id == 3
    sizes.refine(found, 7)
    assert sizes.bytes_of(V[0]) == 7 + 2 * stored_bytes(record(3))


def test_what_lies_in_two_segments_counts_by_its_ids_and_nothing_is_lost() -> None:
    sizes = counting(record(1), record(2, V[1]), record(3), record(4))
    before = sizes.bytes_of(V[0])
    first = Segment(MessageId(3), 10)
    sizes.look([first], MessageId(1))
    assert sizes.bytes_of(V[0]) == before
    sizes.look([], MessageId(3))
    assert sizes.bytes_of(V[0]) == before - before // 2


def test_a_purge_counts_by_ids_until_it_is_refined() -> None:
    sizes = counting(record(1, size=1000), record(2, size=10))
    whole = sizes.bytes_of(V[0])
    sizes.purged(V[0], MessageId(2))
    assert sizes.bytes_of(V[0]) == whole // 2
    (found,) = sizes.straddled
    assert found == Straddled(V[0], MessageId(2), MessageId(3), whole)
    sizes.refine(found, stored_bytes(record(2, size=10)))
    assert sizes.bytes_of(V[0]) == stored_bytes(record(2, size=10))
    sizes.purged(V[0], MessageId(1))
    assert sizes.bytes_of(V[0]) > 0, "an earlier one changes nothing"
    sizes.purged(V[0], MessageId(3))
    assert sizes.vchannels() == []
    sizes.refine(found, 5)
    assert sizes.vchannels() == [], "it is not so any more"


def test_a_record_takes_its_head_its_names_its_sizes_and_its_body() -> None:
    plain = record(1, count=2)
    assert stored_bytes(plain) == 68 + len(V[0]) + 2 * 4 + 200
    in_txn = replace(plain, txn=TxnPart(TxnId(7), 0, MessageId(1), 0))
    assert stored_bytes(in_txn) == stored_bytes(plain) + 32
    batch = replace(plain, batch=BatchPart(b"abc", keys=BatchKeys((3, 3), b"k1k2")))
    assert stored_bytes(batch) == stored_bytes(plain) + 28 + 3 + 4 + 8
    numbered = replace(plain, batch=BatchPart(b"abc", producer=ProducerPart("someone", 5)))
    assert stored_bytes(numbered) == stored_bytes(plain) + 28 + 3 + 7
