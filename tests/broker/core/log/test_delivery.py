"""Delivery against a naive read of everything."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from broker.core.log.assembler import Assembler
from broker.core.log.delivery import Selection, announce, deliver, selection_of
from broker.core.log.txn_members import MESSAGE_OVERHEAD_BYTES
from broker.model.ids import MessageId, Term, TimeTick
from broker.model.message import SYSTEM_TYPES, ClosedTick, Delivered
from broker.model.position import (
    DeliverFilter,
    MessageTypes,
    ReadPosition,
    TimeTickGt,
    TimeTickGte,
)
from broker.model.record import Record
from tests.broker.core.log.singly import each_of

VCHANNELS = ("p_1v0", "p_1v1", "")
ALL = selection_of("", ())


@dataclass(frozen=True)
class Log:
    records: tuple[Record, ...]


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """Consecutive records with gaps in the ticks, and tick records among them."""
    records, next_id, tick = [], draw(st.integers(1, 5)), 10
    for _ in range(draw(st.integers(0, 12))):
        kind = draw(st.sampled_from((1, 2, 2, 3)))
        sizes = (
            (0,) if kind == 1 else tuple(draw(st.lists(st.integers(0, 90), min_size=1, max_size=5)))
        )
        tick += draw(st.integers(1, 3))
        records.append(
            Record(
                term=Term(1),
                base_id=MessageId(next_id),
                base_tick=TimeTick(tick),
                last_confirmed_id=MessageId(draw(st.sampled_from((1, next_id)))),
                kind=kind,
                vchannel="" if kind == 1 else draw(st.sampled_from(VCHANNELS)),
                sizes=sizes,
                body=bytes(sum(sizes)),
            )
        )
        next_id += len(sizes)
        tick += len(sizes) - 1
    return Log(tuple(records))


FILTERS = st.lists(
    st.one_of(
        st.builds(TimeTickGt, st.integers(0, 60)),
        st.builds(TimeTickGte, st.integers(0, 60)),
        st.builds(MessageTypes, st.frozensets(st.sampled_from((1, 2, 3)))),
    ),
    max_size=3,
)


def naively_wanted(
    kind: int, tick: int, vchannel: str, wanted: str, filters: list[DeliverFilter]
) -> bool:
    def passes(each: DeliverFilter) -> bool:
        match each:
            case TimeTickGt(bound):
                return tick > bound
            case TimeTickGte(bound):
                return tick >= bound
            case MessageTypes(types):
                return kind in types or kind in SYSTEM_TYPES

    return all(map(passes, filters)) and (wanted == "" or vchannel in ("", wanted))


def naive(log: Log, wanted: str, filters: list[DeliverFilter]) -> list[Delivered | ClosedTick]:
    found: list[Delivered | ClosedTick] = []
    for record in log.records:
        for each in record.messages():
            if not naively_wanted(record.kind, each.tick, record.vchannel, wanted, filters):
                continue
            if record.kind == 1:
                found.append(
                    ClosedTick(each.tick, each.id, each.last_confirmed_id, each.term, True)
                )
            else:
                found.append(each)
    return found


@given(logs(), st.sampled_from(VCHANNELS), FILTERS, st.lists(st.integers(0, 400), min_size=1))
def test_pulling_piece_by_piece_gives_what_one_naive_read_gives(
    log: Log, vchannel: str, filters: list[DeliverFilter], credits: list[int]
) -> None:
    selection = selection_of(vchannel, filters)
    end = log.records[-1].next_id if log.records else MessageId(1)
    cursor = ReadPosition(log.records[0].base_id if log.records else MessageId(1))
    found: list[Delivered | ClosedTick] = []
    assembler = Assembler(cursor.next_id)
    pulls = 0
    while cursor.next_id < end:
        left = [record for record in log.records if record.next_id > cursor.next_id]
        picked = deliver(left, cursor, selection, credits[pulls % len(credits)], assembler)
        assert picked.items or picked.cursor.next_id == end
        items = each_of(picked.items)
        assert picked.cursor.tick == (items[-1].tick if items else cursor.tick)
        found += items
        cursor = picked.cursor
        pulls += 1
    assert found == naive(log, vchannel, filters)


@given(logs(), st.integers(0, 500))
def test_a_credit_bounds_what_is_given_but_for_one_message(log: Log, credit: int) -> None:
    start = ReadPosition(log.records[0].base_id if log.records else MessageId(1))
    items = each_of(deliver(log.records, start, ALL, credit, Assembler(start.next_id)).items)
    sizes = [
        (len(item.body) if isinstance(item, Delivered) else 0) + MESSAGE_OVERHEAD_BYTES
        for item in items
    ]
    assert sum(sizes) <= credit or len(items) == 1


@given(logs(), st.integers(0, 60))
def test_a_cursor_with_a_tick_never_gives_that_tick_again(log: Log, tick: int) -> None:
    start = log.records[0].base_id if log.records else MessageId(1)
    picked = deliver(
        log.records, ReadPosition(start, TimeTick(tick)), ALL, 1 << 20, Assembler(start)
    )
    assert each_of(picked.items) == naive(log, "", [TimeTickGt(TimeTick(tick))])


@given(st.integers(0, 5), st.integers(0, 5), st.integers(1, 5))
def test_a_closed_tick_is_announced_once_and_only_above_the_floor(
    known: int, floor: int, tick: int
) -> None:
    closed = ClosedTick(TimeTick(tick), MessageId(9), MessageId(9), Term(1), False)
    cursor = ReadPosition(MessageId(10), TimeTick(known))
    selection = Selection("", TimeTick(floor), None)
    expected = closed if tick > known and tick > floor else None
    assert announce(closed, cursor, selection) == expected


def test_a_type_filter_passes_its_types_and_what_the_log_says_itself() -> None:
    kinds = (2, 3, 1, 2)
    records = [
        Record(Term(1), MessageId(i), TimeTick(i), MessageId(i), kind, "", (0,), b"")
        for i, kind in enumerate(kinds, start=1)
    ]
    filters = (MessageTypes(frozenset({2, 3})), MessageTypes(frozenset({3, 5})))
    picked = deliver(
        records,
        ReadPosition(MessageId(1)),
        selection_of("p_1v0", filters),
        1 << 20,
        Assembler(MessageId(1)),
    )
    assert [item.id for item in each_of(picked.items)] == [2, 3]
    assert picked.cursor == ReadPosition(MessageId(5), TimeTick(3), MessageId(5))
