"""Transactions as readers get them, against one naive walk over the whole log."""

from dataclasses import replace
from itertools import islice

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.log.assembler import Assembler
from broker.core.log.delivery import DeliveredItem, Selection, catch_up, deliver, selection_of
from broker.model.ids import MessageId, TimeTick
from broker.model.message import ClosedTick, Delivered, DeliveredInTxn, NewMessage
from broker.model.position import MessageTypes, ReadPosition, TimeTickGt
from broker.model.record import Record, RecordSliceInTxn
from broker.model.txn import TxnContext
from tests.broker.core.log.test_txn_members import batch_of
from tests.broker.core.txn.test_transactions import V, Writer, of, plain
from tests.cases import cases

Seen = tuple[int, int, int, bytes]
"""Id, tick, last confirmed id, body."""

ALL = selection_of("", ())


# Made once: a log draws some of these a hundred times.
GROUPS, MESSAGES, ONE_IN_TEN = st.integers(1, 12), st.integers(1, 5), st.integers(0, 9)
KINDS: tuple[str | int, ...] = ("begin", 2, 2, 2, 3, 901, 901, 902, "plain", "drop")
WHATS = st.sampled_from([(kind, shard) for kind in KINDS for shard in (0, 1)])
SIZES, BATCHED = st.integers(0, 90), st.booleans()
BATCHES = st.lists(SIZES, min_size=1, max_size=4)


@st.composite
def logs(draw: st.DrawFn) -> list[Record]:
    """Whatever a writer may write: interleaved transactions, ends of all kinds, restarts."""
    writer = Writer()
    txns: list[tuple[TxnContext, str]] = []
    for _ in range(draw(GROUPS)):
        messages: list[NewMessage] = []
        if draw(ONE_IN_TEN) == 0:
            writer.restart()
        for _ in range(draw(MESSAGES)):
            what, shard = draw(WHATS)
            if what == "begin" or not txns:
                context = writer.begin(V[shard])
                txns.append((context, V[shard]))
            elif isinstance(what, int):
                context, vchannel = txns[draw(st.integers(0, len(txns) - 1))]
                size = draw(SIZES)
                body: NewMessage = of(context, what, vchannel, size)
                if what in (2, 3) and draw(BATCHED):
                    sizes = draw(BATCHES)
                    body = batch_of(context, *sizes, kind=what, vchannel=vchannel)
                messages.append(body)
            else:
                messages.append(plain(V[shard], 2 if what == "plain" else 6))
        writer.group(*messages)
    return writer.records


def naive(records: list[Record], selection: Selection, from_id: int = 1) -> list[Seen]:
    """All that is committed at or behind `from_id`, each transaction where its commit is."""
    found: list[Seen] = []
    for record in records:
        if selection.vchannel and record.vchannel not in ("", selection.vchannel):
            continue
        for each in record.messages():
            if each.id < from_id or each.tick <= selection.floor:
                continue
            kinds = selection.kinds
            if record.txn is None and (kinds is None or record.kind in kinds):
                found.append((each.id, each.tick, each.last_confirmed_id, each.body))
            elif record.txn is not None and record.kind == 901:
                for member in records:
                    if member.txn and member.txn.id == record.txn.id:
                        found += [
                            (it.id, each.tick, each.last_confirmed_id, it.body)
                            for it in member.messages()
                            if kinds is None or member.kind in kinds
                        ]
    return found


class Reading:
    """A Scanner without its surroundings."""

    def __init__(self, records: list[Record], selection: Selection, cursor: ReadPosition) -> None:
        self.records, self.selection, self.cursor = records, selection, cursor
        self.assembler: Assembler | None = None
        self.found: list[Seen] = []
        self.in_txn: list[bool] = []

    @property
    def done(self) -> bool:
        return self.cursor.next_id >= self.records[-1].next_id

    def holding(self, from_id: int) -> list[Record]:
        return [record for record in self.records if record.next_id > from_id]

    def pull(self, credit: int) -> None:
        if self.assembler is None or self.assembler.next_id != self.cursor.next_id:
            self.catch_up()
        assert self.assembler is not None
        left = self.holding(self.cursor.next_id)
        picked = deliver(left, self.cursor, self.selection, credit, self.assembler)
        assert not picked.broken, picked.broken
        for item in picked.items:
            self.see(item)
        self.cursor = picked.cursor

    def see(self, item: DeliveredItem) -> None:
        """Each message by itself, and whether it is a begin or a body; a closed tick is neither."""
        if isinstance(item, ClosedTick):
            return
        if isinstance(item, Delivered):
            self.found.append((item.id, item.tick, item.last_confirmed_id, item.body))
            self.in_txn.append(isinstance(item, DeliveredInTxn))
            return
        for each in islice(item.record.messages(), item.first, item.end):
            tick, confirmed = each.tick, each.last_confirmed_id
            if isinstance(item, RecordSliceInTxn):
                tick, confirmed = item.tick, item.last_confirmed_id
            self.found.append((each.id, tick, confirmed, each.body))
            self.in_txn.append(isinstance(item, RecordSliceInTxn))
        assert (item.first_tick, item.last_tick) == (
            self.found[item.first - item.end][1], self.found[-1][1]
        )  # fmt: skip

    def catch_up(self) -> None:
        open_id = self.cursor.open_id
        if open_id is None:
            confirmed_id = self.holding(self.cursor.next_id)[0].last_confirmed_id
            open_id = min(confirmed_id, self.cursor.next_id)
        self.assembler = Assembler(open_id)
        catch_up(self.holding(open_id), self.cursor, self.assembler)
        self.cursor = replace(self.cursor, next_id=self.assembler.next_id)

    def all(self, credits: list[int], restarts: set[int]) -> list[Seen]:
        pulls = 0
        while not self.done:
            if pulls % 7 in restarts:
                self.assembler = None
            before = (self.cursor.next_id, self.cursor.inside)
            self.pull(credits[pulls % len(credits)])
            assert (self.cursor.next_id, self.cursor.inside) > before
            pulls += 1
        return self.found


SELECTIONS = st.sampled_from(
    (
        ALL,
        selection_of(V[0], ()),
        selection_of(V[1], (MessageTypes(frozenset({3})),)),
        selection_of("", (TimeTickGt(TimeTick(262_144_012)),)),
        Selection(V[0], TimeTick(0), None, whole=True),
    )
)


@settings(max_examples=cases(400))
@given(
    logs(),
    SELECTIONS,
    st.lists(st.integers(0, 600), min_size=1, max_size=5),
    st.sets(st.integers(0, 6)),
)
def test_piecewise_reads_with_restarts_give_what_one_naive_walk_gives(
    records: list[Record], selection: Selection, credits: list[int], restarts: set[int]
) -> None:
    reading = Reading(records, selection, ReadPosition(MessageId(1)))
    assert reading.all(credits, restarts) == naive(records, selection)


@settings(max_examples=cases(400))
@given(logs(), st.data())
def test_a_read_from_any_id_gives_what_is_committed_from_there_on_whole(
    records: list[Record], data: st.DataObject
) -> None:
    from_id = data.draw(st.integers(1, records[-1].next_id - 1))
    reading = Reading(records, ALL, ReadPosition(MessageId(from_id)))
    assert reading.all([1000], set()) == naive(records, ALL, from_id)


@settings(max_examples=cases(2000))
@given(logs(), st.data())
def test_a_read_after_the_last_confirmed_id_of_any_message_misses_nothing(
    records: list[Record], data: st.DataObject
) -> None:
    """P7, as Milvus's client resumes: from `_lc` on, with larger ticks only."""
    record = data.draw(st.sampled_from(records))
    each = data.draw(st.sampled_from(list(record.messages())))
    later = selection_of("", (TimeTickGt(each.tick),))
    reading = Reading(records, later, ReadPosition(each.last_confirmed_id))
    assert reading.all([1000], set()) == naive(records, later)


@settings(max_examples=cases(200))
@given(logs(), st.integers(0, 500))
def test_members_come_together_and_between_begin_and_commit_comes_nothing_else(
    records: list[Record], credit: int
) -> None:
    reading = Reading(records, ALL, ReadPosition(MessageId(1)))
    reading.all([credit], set())
    ticks = [tick for _, tick, _, _ in reading.found]
    assert ticks == sorted(ticks)
    for one, after, inside in zip(ticks, ticks[1:], reading.in_txn, strict=False):
        assert (one == after) == inside


def written() -> list[Record]:
    """A begin, two records of bodies, and the commit."""
    writer = Writer()
    txn = writer.begin()
    writer.group(of(txn, 2), of(txn, 2))
    writer.group(of(txn, 2))
    writer.group(of(txn, 901))
    return writer.records


def broken_by(records: list[Record], next_id: int, *, partial: bool = False) -> str:
    cursor = ReadPosition(MessageId(next_id), open_id=MessageId(next_id), partial=partial)
    picked = deliver(records, cursor, ALL, 1 << 20, Assembler(cursor.next_id, partial=partial))
    assert picked.cursor.partial == partial
    return picked.broken


def test_a_body_or_a_begin_that_is_missing_is_said_aloud_and_nothing_is_handed_over() -> None:
    begin_, first, second, commit = written()
    assert not broken_by([begin_, first, second, commit], 1)
    assert "follows 2 bodies" in broken_by([begin_, second], 1)
    assert "follows 3 bodies" in broken_by([begin_, first, commit], 1)
    assert "whose begin is missing" in broken_by([first], 1)
    assert "whose begin is missing" in broken_by([commit], 1)


def test_what_began_before_the_log_that_is_left_is_passed_over() -> None:
    begin_, first, second, commit = written()
    assert not broken_by([first, second, commit], first.base_id, partial=True)
    assert not broken_by([commit], commit.base_id, partial=True)
    assert begin_.txn is not None


def test_what_began_before_the_log_that_is_left_is_a_loss_to_who_was_there_before() -> None:
    _, first, second, commit = written()
    told = broken_by([first, second, commit], first.base_id)
    assert "retention removed its messages from 1 to 1" in told
    assert "retention removed its messages" in broken_by([commit], commit.base_id)
    rollback = replace(commit, kind=902)
    assert not broken_by([first, second, rollback], first.base_id)


def test_a_tick_that_does_not_grow_is_said_aloud() -> None:
    first, second = (
        replace(written()[0], base_id=MessageId(i), base_tick=TimeTick(9), txn=None, kind=2)
        for i in (1, 2)
    )
    assert not broken_by([first], 1)
    cursor = ReadPosition(MessageId(1))
    assembler = Assembler(MessageId(1))
    deliver([first], cursor, ALL, 1 << 20, assembler)
    assembler.seen_tick = TimeTick(10)
    told = deliver([second], ReadPosition(MessageId(2), TimeTick(9)), ALL, 1 << 20, assembler)
    assert "after tick 10 was seen" in told.broken
    assert told.items == ()


def test_an_assembler_says_what_it_holds() -> None:
    records = written()
    assembler = Assembler(MessageId(1))
    assert assembler.open_id(MessageId(9)) == 9
    for record in records[:3]:
        assert assembler.absorb(record) == ""
    assert (assembler.open_count, assembler.held_bytes) == (1, 12)
    assert assembler.open_id(MessageId(9)) == 1
    assert assembler.absorb(records[3]) == ""
    assert (assembler.open_count, assembler.held_bytes) == (0, 0)


def test_an_assembler_serves_a_reader_at_its_place_that_needs_nothing_from_before_it() -> None:
    assembler = Assembler(MessageId(5))
    assert assembler.is_at(ReadPosition(MessageId(5), open_id=MessageId(5)))
    assert not assembler.is_at(ReadPosition(MessageId(5), open_id=MessageId(4)))
    assert not assembler.is_at(ReadPosition(MessageId(5)))
    assert not assembler.is_at(ReadPosition(MessageId(6), open_id=MessageId(5)))
