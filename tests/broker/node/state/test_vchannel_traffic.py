"""Counts of vchannels against counting by hand, within their limit."""

from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from broker.model.ids import MessageId, Term, TimeTick, TxnId
from broker.model.message import ClosedTick, Delivered, DeliveredInTxn, MessageType
from broker.model.record import Record, RecordSlice, RecordSliceInTxn
from broker.model.txn import TxnContext
from broker.node.state.vchannel_traffic import NOT_COUNTED, TrafficCounts, count_group

KINDS = st.sampled_from(
    [MessageType.INSERT, MessageType.DELETE, MessageType.TIME_TICK, MessageType.COMMIT_TXN]
)
VCHANNELS = st.sampled_from(["", "a_1v0", "a_1v1", "b_2v0"])


def record(vchannel: str, kind: int, sizes: Sequence[int], tick: int = 1) -> Record:
    body = b"x" * sum(sizes)
    ids = MessageId(tick), TimeTick(tick), MessageId(tick)
    return Record(Term(1), *ids, kind, vchannel, tuple(sizes), body)


SIZES = st.lists(st.integers(0, 50), min_size=1, max_size=4)
GROUPS = st.lists(st.lists(st.tuples(VCHANNELS, KINDS, SIZES), max_size=5), max_size=8)


@given(GROUPS)
def test_a_vchannel_counts_what_users_appended_to_it(
    groups: list[list[tuple[str, int, list[int]]]],
) -> None:
    counts, messages, sizes = TrafficCounts(), Counter[str](), Counter[str]()
    tick = 1
    for group in groups:
        records = []
        for vchannel, kind, of in group:
            records.append(record(vchannel, kind, of, tick))
            tick += len(of)
            if vchannel and kind not in NOT_COUNTED:
                messages[vchannel] += len(of)
                sizes[vchannel] += sum(of)
        counts.appended(count_group(records))
    found = {it.vchannel: it for it in counts.all()}
    assert {name: it.messages for name, it in found.items()} == messages
    assert {name: it.bytes for name, it in found.items()} == {it: sizes[it] for it in messages}


def test_a_consumer_counts_for_the_vchannels_of_what_it_got() -> None:
    counts = TrafficCounts()
    whole = record("a_1v0", MessageType.INSERT, [10, 30])
    half = RecordSlice(whole, 0, 1)
    plain = Delivered(MessageId(1), TimeTick(1), MessageId(1), Term(1), b"12345")
    closed = ClosedTick(TimeTick(9), MessageId(9), MessageId(9), Term(1), persisted=True)
    commit = RecordSlice(record("a_1v0", MessageType.COMMIT_TXN, [5]), 0, 1)
    assert counts.delivered("b_2v0", [RecordSlice(whole, 0, 2), half, plain, closed, commit]) == 6
    assert counts.delivered("", [plain]) == 1
    found = {it.vchannel: (it.delivered, it.delivered_bytes) for it in counts.all()}
    assert found == {"a_1v0": (3, 60), "b_2v0": (1, 5)}


def test_begin_and_commit_of_a_transaction_are_no_messages_of_a_user() -> None:
    place = MessageId(1), TimeTick(7), MessageId(1), Term(1)
    begin = DeliveredInTxn(*place, b"begin", TxnContext(TxnId(3), 1000))
    body = DeliveredInTxn(*place, b"12345", None)
    batch = record("a_1v0", MessageType.INSERT, [10, 30])
    part = RecordSliceInTxn(batch, 0, 2, TimeTick(7), MessageId(1))
    commit = Delivered(*place, b"commit")
    for last in (body, part):
        counts = TrafficCounts()
        counts.delivered("a_1v0", [begin, body, last, commit])
        (found,) = counts.all()
        assert found.delivered == (2 if last is body else 3)


@given(st.lists(st.integers(0, 9), max_size=40), st.integers(1, 5))
def test_the_least_recently_used_vchannel_is_forgotten_and_then_counts_under_another_serial(
    uses: list[int], limit: int
) -> None:
    counts, kept = TrafficCounts(limit), list[str]()
    totals: dict[int, int] = {}
    for number in uses:
        name = f"v{number}"
        counts.appended(count_group([record(name, MessageType.INSERT, [1])]))
        kept = [*[it for it in kept if it != name], name][-limit:]
        assert [it.vchannel for it in counts.all()] == kept
        for it in counts.all():
            assert it.messages >= totals.get(it.serial, 0)
            totals[it.serial] = it.messages
    assert sum(totals.values()) == len(uses)
