"""Transactions that come in one batch, over crashes that tear their records apart."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.log.admission import AdmissionPolicy
from broker.core.log.log_end import LogEnd, end_after
from broker.core.log.numbered_producers import NumberedProducers
from broker.core.log.record_drafts import WriterState
from broker.core.log.sequencer import sequence
from broker.core.txn.transactions import Transactions
from broker.core.txn.txn_limits import TxnLimits
from broker.model.batch import BatchPart, NewBatch, WholeTxn, ticks_of
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import TICK_LOGICAL_BITS, MessageId, PChannelName, Term, TimeTick
from broker.model.message import Appended, MessageType, NewMessage
from broker.model.producer_numbers import OutOfSequence, ProducerPart
from broker.model.record import Record
from broker.model.txn import TxnContext

PCHANNEL = PChannelName("by-dev-rootcoord-dml_3")
V = f"{PCHANNEL}_7v0"
ADMISSION = AdmissionPolicy(PCHANNEL, message_bytes_max=1000)
KEEPALIVE_MS = 1000
LIMITS = TxnLimits(keepalive_default_ms=KEEPALIVE_MS)
STEP = KEEPALIVE_MS << TICK_LOGICAL_BITS
START = LogEnd(Term(4), MessageId(50), TimeTick(1_000))


def whole(
    sequence: int, count: int = 2, *, producer: str = "p", whole: bool = True, **fields: object
) -> NewBatch:
    body = f"{sequence:03}".encode() * count
    made = WholeTxn(b"begin", lambda context: b"commit %d" % context.id)
    part = BatchPart(b"", producer=ProducerPart(producer, sequence) if producer else None)
    batch = NewBatch(V, 2, body, len(body), sizes=(3,) * count, part=part)
    return replace(batch, whole=made if whole else None, **fields)  # type: ignore[arg-type]


@dataclass
class Writer:
    """A log as a list of records, and what its writer knows; a crash leaves a prefix."""

    records: list[Record] = field(default_factory=list)
    end: LogEnd = START
    state: WriterState = field(
        default_factory=lambda: WriterState(Transactions(LIMITS), NumberedProducers())
    )
    tick: int = 2_000

    def append(self, *messages: NewMessage) -> Sequence[Appended | Refusal]:
        done = sequence(messages, TimeTick(self.tick), self.end, ADMISSION, self.state)
        due = self.state.transactions.rollbacks_due(messages)
        assert done.end.last_tick < self.tick + sum(map(ticks_of, messages)) + due + 1
        self.tick = max(self.tick, done.end.last_tick) + 1
        self.state.transactions.stored()
        self.records += done.records
        self.end = done.end
        return done.outcomes

    def crash(self, lost: int) -> None:
        """Start anew with what is on disk: all but the newest records."""
        self.records = self.records[: max(0, len(self.records) - lost)]
        transactions, producers = Transactions(LIMITS), NumberedProducers()
        for record in self.records:
            transactions.replay(record)
            producers.replay(record)
        transactions.renew(TimeTick(self.tick))
        self.state = WriterState(transactions, producers)
        self.end = replace(end_after(self.records, START), open_txn_id=transactions.oldest_begin_id)

    def read(self) -> list[tuple[bytes, int]]:
        """The payloads that a naive reader sees, each with the tick it has there."""
        seen: list[tuple[bytes, int]] = []
        bodies: dict[int, list[Record]] = {}
        for record in self.records:
            if record.txn is None:
                payloads = [it.body for it in record.messages()]
                seen += zip(payloads, range(record.base_tick, record.last_tick + 1), strict=True)
            elif record.kind == MessageType.COMMIT_TXN:
                for part in bodies.pop(record.txn.id):
                    seen += [(it.body, record.base_tick) for it in part.messages()]
            elif record.kind != MessageType.BEGIN_TXN:
                bodies.setdefault(record.txn.id, []).append(record)
        return seen


def test_it_is_stored_as_begin_bodies_and_commit_side_by_side() -> None:
    writer = Writer()
    plain = whole(0, producer="other", whole=False)
    (before, landed, after) = writer.append(
        plain, whole(0), whole(2, producer="other", whole=False)
    )
    kinds = [record.kind for record in writer.records]
    assert kinds == [2, MessageType.BEGIN_TXN, 2, MessageType.COMMIT_TXN, 2]
    _, begin, bodies, commit, _ = writer.records
    assert isinstance(landed, Appended)
    assert (landed.id, landed.tick) == (bodies.base_id, commit.base_tick)
    assert (begin.body, commit.body) == (b"begin", b"commit %d" % begin.base_tick)
    found = {int(it.txn.id) for it in (begin, bodies, commit) if it.txn}
    assert found == {int(begin.base_tick)}
    assert commit.txn is not None
    assert commit.txn.bodies == 2
    assert isinstance(before, Appended)
    assert isinstance(after, Appended)
    assert writer.state.transactions.open_count == writer.state.transactions.open_bytes == 0
    assert writer.state.transactions.take_begun_or_ended() == (), "it was open for nobody"


@pytest.mark.parametrize("lost", range(4))
def test_a_repeat_after_a_torn_group_is_read_once(lost: int) -> None:
    writer = Writer()
    writer.append(whole(0))
    (first,) = writer.append(whole(2))
    writer.crash(lost)
    (again,) = writer.append(whole(2))
    assert isinstance(again, Appended)
    assert [payload for payload, _ in writer.read()] == [b"000"] * 2 + [b"002"] * 2
    assert {tick for payload, tick in writer.read() if payload == b"002"} == {again.tick}
    if not lost:
        assert again == first
    assert writer.append(whole(2)) == (again,), "and again"


def test_repeats_in_one_group_after_a_torn_one_are_committed_once() -> None:
    writer = Writer()
    writer.append(whole(0))
    writer.crash(1)
    first, second = writer.append(whole(0), whole(0))
    assert first == second
    assert isinstance(first, Appended)
    assert [record.kind for record in writer.records].count(MessageType.COMMIT_TXN) == 1


def test_repeats_in_the_group_of_the_first_get_its_answer() -> None:
    writer = Writer()
    first, second = writer.append(whole(0), whole(0))
    assert first == second
    assert len(writer.read()) == 2


def test_a_repeat_after_its_lease_is_refused_for_good_and_nothing_of_it_is_read() -> None:
    writer = Writer()
    writer.append(whole(0))
    writer.crash(1)
    writer.tick += 2 * STEP
    for _ in range(2):
        (refused,) = writer.append(whole(0))
        assert isinstance(refused, Refusal)
        assert refused.code is StreamingCode.TRANSACTION_EXPIRED
        writer.crash(0)  # its rollback was stored with the refusal, so a restart does not renew it
    assert writer.read() == []


def test_a_repeat_whose_transaction_is_forgotten_is_of_unknown_outcome() -> None:
    writer = Writer()
    writer.append(whole(0))
    writer.state.transactions.remember(())
    (refused,) = writer.append(whole(0))
    assert isinstance(refused, OutOfSequence)
    assert refused.expected == 0
    assert len(writer.read()) == 2


@pytest.mark.parametrize(
    ("batch", "code", "words"),
    [
        (whole(0, vchannel=PCHANNEL), StreamingCode.INVALID_ARGUMENT, "needs a vchannel"),
        (whole(0, type=4321), StreamingCode.INVALID_ARGUMENT, "type 4321"),
        (whole(0, size=500), StreamingCode.UNRECOVERABLE, "split it"),
    ],
)
def test_one_that_cannot_be_is_refused_and_takes_no_number(
    batch: NewBatch, code: StreamingCode, words: str
) -> None:
    writer = Writer()
    writer.state.transactions.limits = TxnLimits(txn_bytes_max=400)
    (refused,) = writer.append(batch)
    assert isinstance(refused, Refusal)
    assert (refused.code, words in refused.cause) == (code, True), refused
    (landed,) = writer.append(whole(0))
    assert isinstance(landed, Appended)


@given(
    st.lists(
        st.tuples(
            st.lists(st.booleans(), min_size=1, max_size=3),  # whole or plain, in one group
            st.integers(0, 7),  # records that a crash loses; 0 to 3 of them: none crashes
            st.booleans(),  # whether the lease passes meanwhile
        ),
        max_size=6,
    )
)
def test_over_any_crashes_what_is_acknowledged_is_read_once_and_nothing_is_read_in_half(
    groups: list[tuple[list[bool], int, bool]],
) -> None:
    """The naive client: it sends what it has no answer to again, and anew after an expiry."""
    writer, number, producer = Writer(), 0, 0
    expected: Counter[bytes] = Counter()
    for at, (kinds, lost, expires) in enumerate(groups):
        sent = []
        for kind in kinds:
            sent.append(whole(number, producer=f"p{producer}", whole=kind))
            number += 2
        writer.append(*sent)
        torn = max(0, lost - 3)
        if torn:
            # Only what was not acknowledged may be lost.
            last = sum([3 if kind else 1 for kind in kinds])
            writer.crash(min(torn, last))
            writer.tick += 2 * STEP if expires else 0
        for batch in sent:
            (outcome,) = writer.append(batch)
            if isinstance(outcome, Refusal):
                assert outcome.code is StreamingCode.TRANSACTION_EXPIRED
                producer, number = producer + 1 + at * 100, 0
                anew = replace(batch, part=whole(0, producer=f"p{producer}").part)
                (outcome,) = writer.append(anew)
                number = 2
            assert isinstance(outcome, Appended), outcome
            expected[batch.body] += 1
        seen = writer.read()
        assert Counter([payload for payload, _ in seen]) == Counter(
            {body[:3]: 2 * times for body, times in expected.items()}
        )


def test_the_context_of_the_commit_has_the_keepalive_of_the_server() -> None:
    found: list[TxnContext] = []

    def commit(context: TxnContext) -> bytes:
        found.append(context)
        return b"commit"

    writer = Writer()
    writer.append(replace(whole(0), whole=WholeTxn(b"begin", commit)))
    (context,) = found
    assert context == TxnContext(context.id, KEEPALIVE_MS)
