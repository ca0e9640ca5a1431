"""P7: reading on from the last confirmed id of any message misses nothing, against a naive walk.

The long form, thousands of logs and every message of each: `pytest --hypothesis-profile=long`.
"""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.log.delivery import Selection, selection_of
from broker.core.log.log_end import end_after, time_tick_record
from broker.model.ids import MessageId, Term, TimeTick
from broker.model.message import MessageType
from broker.model.position import ReadPosition, TimeTickGt
from broker.model.record import Record
from broker.model.txn import TxnContext
from tests.broker.core.log.test_assembler import Reading, Seen
from tests.broker.core.log.test_assembler import naive as naively_read
from tests.broker.core.txn.test_transactions import V, Writer, begin, of, plain

STEPS = ("begin", "body", "body", "body", "commit", "commit", "rollback", "plain", "plain", "drop")
KINDS = {"body": 2, "commit": 901, "rollback": 902, "drop": 6, "plain": 2}


@st.composite
def histories(draw: st.DrawFn) -> list[Record]:
    """Open transactions, ends in any order, leases that run out, restarts at higher terms."""
    writer = Writer()
    txns: list[tuple[TxnContext, str]] = []
    for _ in range(draw(st.integers(1, 14))):
        event = draw(st.integers(0, 9))
        if event == 0:
            reopen(writer)
        elif event == 1:
            writer.wait(draw(st.sampled_from((1, 150, 20_000))))
            writer.transactions.expire(writer.end.last_tick)
        steps = draw(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 5)), max_size=5))
        messages = []
        for what, which in steps:
            if what == "begin":
                messages.append(begin(V[which % 2], 100))
            elif what in ("plain", "drop"):
                messages.append(plain(V[which % 2], KINDS[what]))
            elif txns:
                txn, vchannel = txns[which % len(txns)]
                messages.append(of(txn, KINDS[what], vchannel))
        outcomes = writer.group(*messages).outcomes
        for message, outcome in zip(messages, outcomes, strict=True):
            if message.type == MessageType.BEGIN_TXN:
                txns.append((outcome.txn, message.vchannel))  # type: ignore[union-attr]
    writer.group(plain())
    return writer.records


def reopen(writer: Writer) -> None:
    """The next owner: everything from the log, a term more, a tick as its first record."""
    writer.restart()
    end = replace(writer.end, term=Term(writer.end.term + 1))
    first = time_tick_record(TimeTick(end.last_tick + 1), end)
    writer.records.append(first)
    writer.end = end_after([first], end)
    writer.transactions.renew(first.base_tick)


def naive(records: list[Record], selection: Selection) -> list[Seen]:
    return naively_read([it for it in records if it.kind != MessageType.TIME_TICK], selection)


def read(records: list[Record], selection: Selection, from_id: int) -> list[Seen]:
    return Reading(records, selection, ReadPosition(MessageId(from_id))).all([1000], set())


@settings(deadline=None)
@given(histories())
def test_a_read_from_or_after_the_last_confirmed_id_of_every_message_misses_nothing(
    records: list[Record],
) -> None:
    for record in records:
        for each in record.messages():
            later = selection_of("", (TimeTickGt(each.tick),))
            expected = naive(records, later)
            assert read(records, later, each.last_confirmed_id) == expected
            assert read(records, later, each.last_confirmed_id + 1) == expected


@settings(deadline=None)
@given(histories())
def test_ticks_ids_terms_and_what_is_confirmed_only_grow(records: list[Record]) -> None:
    """P1, P4, P8: within a term and over all of them."""
    for one, after in pairwise(records):
        assert after.base_tick > one.last_tick
        assert after.base_id == one.next_id
        assert after.term >= one.term
        assert after.last_confirmed_id >= one.last_confirmed_id
