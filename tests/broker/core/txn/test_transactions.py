"""Transactions of a writer: one rule each, and whole lives against a naive model."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.log.admission import AdmissionPolicy
from broker.core.log.log_end import LogEnd
from broker.core.log.numbered_producers import NumberedProducers
from broker.core.log.record_drafts import WriterState
from broker.core.log.sequencer import Sequenced, sequence
from broker.core.txn.transactions import Transactions
from broker.core.txn.txn_lease import lease_left_ms
from broker.core.txn.txn_limits import TxnLimits
from broker.model.batch import ticks_of
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import MessageId, PChannelName, Term, TimeTick, TxnId
from broker.model.message import Appended, AppendedInTxn, NewMessage
from broker.model.record import Record
from broker.model.txn import TxnContext
from tests.cases import cases

P = PChannelName("by-dev-rootcoord-dml_3")
V = (f"{P}_7v0", f"{P}_7v1")
ADMISSION = AdmissionPolicy(P, message_bytes_max=1000, record_bytes_max=100, record_messages_max=3)
MS = 1 << 18
EXPIRED, WRONG = StreamingCode.TRANSACTION_EXPIRED, StreamingCode.INVALID_TRANSACTION_STATE


@dataclass
class Writer:
    """An Appender without its surroundings: what it was given, and the log that came of it."""

    limits: TxnLimits = field(default_factory=TxnLimits)
    tick: int = 1_000 * MS
    records: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.transactions, self.producers = Transactions(self.limits), NumberedProducers()
        self.end = LogEnd(Term(1), MessageId(1), TimeTick(self.tick))

    def group(self, *messages: NewMessage) -> Sequenced:
        due = self.transactions.rollbacks_due(messages)
        result = sequence(
            messages,
            TimeTick(self.end.last_tick + 1),
            self.end,
            ADMISSION,
            WriterState(self.transactions, self.producers),
        )
        used = sum(len(record.sizes) for record in result.records)
        assert used <= sum(map(ticks_of, messages)) + due
        self.records += result.records
        self.end = result.end
        assert self.end.open_txn_id == self.transactions.oldest_begin_id
        self.transactions.stored()
        return result

    def one(self, message: NewMessage) -> Appended | Refusal:
        (outcome,) = self.group(message).outcomes
        return outcome

    def begin(self, vchannel: str = V[0], keepalive_ms: int = 0) -> TxnContext:
        outcome = self.one(begin(vchannel, keepalive_ms))
        assert isinstance(outcome, AppendedInTxn), outcome
        return outcome.txn

    def wait(self, ms: float) -> None:
        self.end = LogEnd(
            self.end.term,
            self.end.next_id,
            TimeTick(self.end.last_tick + int(ms * MS)),
            self.end.open_txn_id,
        )

    def restart(self) -> None:
        self.transactions = Transactions(self.limits)
        for record in self.records:
            self.transactions.replay(record)
        self.transactions.renew(self.end.last_tick)
        assert self.end.open_txn_id == self.transactions.oldest_begin_id


def begin(vchannel: str = V[0], keepalive_ms: int = 0) -> NewMessage:
    return NewMessage(vchannel, 900, b"B", 1, txn=TxnContext(TxnId(0), keepalive_ms))


def of(txn: TxnContext, kind: int, vchannel: str = V[0], size: int = 4) -> NewMessage:
    return NewMessage(vchannel, kind, b"x" * size, size, txn=txn)


def plain(vchannel: str = V[0], kind: int = 2, *, pchannel_level: bool = False) -> NewMessage:
    return NewMessage(vchannel, kind, b"p", 1, pchannel_level=pchannel_level)


def code(outcome: object) -> StreamingCode | None:
    return outcome.code if isinstance(outcome, Refusal) else None


@pytest.mark.parametrize(("end", "other"), [(901, 902), (902, 901)])
def test_an_end_is_answered_once_more_and_nothing_else_follows_it(end: int, other: int) -> None:
    writer = Writer()
    txn = writer.begin()
    both = writer.group(of(txn, 2), of(txn, end), of(txn, end), of(txn, 2), of(txn, other))
    _, first, again, body, opposite = both.outcomes
    assert isinstance(first, AppendedInTxn)
    assert again == first == writer.one(of(txn, end))
    assert (code(body), code(opposite)) == (WRONG, WRONG)
    assert code(writer.one(of(txn, 2))) is WRONG
    writer.restart()
    assert writer.one(of(txn, end)) == first
    writer.wait(61_000)
    writer.one(of(writer.begin(), end))
    assert code(writer.one(of(txn, end))) is EXPIRED


def test_a_keepalive_is_granted_up_to_the_limit() -> None:
    writer = Writer(TxnLimits(keepalive_default_ms=7, keepalive_max_ms=500))
    granted = [writer.begin(keepalive_ms=asked).keepalive_ms for asked in (0, 499, 501)]
    assert granted == [7, 499, 500]


def test_what_the_transaction_cannot_hold_is_refused() -> None:
    writer = Writer(TxnLimits(open_max=2, txn_bytes_max=10, open_bytes_max=15))
    first, second = writer.begin(), writer.begin(V[1])
    assert code(writer.one(begin())) is StreamingCode.INNER
    assert code(writer.one(of(first, 2, size=11))) is StreamingCode.UNRECOVERABLE
    assert code(writer.one(of(first, 2, size=10))) is None
    assert code(writer.one(of(second, 2, V[1], size=6))) is StreamingCode.INNER
    assert code(writer.one(of(first, 5))) is StreamingCode.INVALID_ARGUMENT
    assert code(writer.one(of(first, 2, V[1]))) is StreamingCode.INVALID_ARGUMENT
    assert code(writer.one(begin(keepalive_ms=-1))) is StreamingCode.INVALID_ARGUMENT
    assert (writer.transactions.open_count, writer.transactions.open_bytes) == (2, 10)
    assert code(writer.one(of(first, 901))) is None
    assert writer.transactions.open_bytes == 0
    writer.transactions.closing = True
    assert code(writer.one(begin())) is EXPIRED
    assert code(writer.one(of(second, 2, V[1]))) is None


def test_begins_in_one_group_count_together_and_each_has_a_record() -> None:
    writer = Writer(TxnLimits(open_max=2))
    outcomes = writer.group(begin(), begin(), begin()).outcomes
    assert [code(outcome) for outcome in outcomes] == [None, None, StreamingCode.INNER]
    assert [len(record.sizes) for record in writer.records] == [1, 1]


def test_a_lease_is_renewed_by_bodies_and_its_end_is_in_the_log() -> None:
    writer = Writer()
    txn = writer.begin(keepalive_ms=100)
    for _ in range(3):
        writer.wait(90)
        assert code(writer.one(of(txn, 2))) is None
    (view,) = writer.transactions.views()
    assert 99 <= lease_left_ms(view, writer.end.last_tick, writer.limits.age_ms_max) <= 100
    writer.wait(100)
    assert lease_left_ms(view, writer.end.last_tick, writer.limits.age_ms_max) == 0
    assert code(writer.one(of(txn, 2))) is EXPIRED
    assert writer.records[-1].kind == 902
    assert writer.transactions.open_count == 0
    assert code(writer.one(of(txn, 901))) is EXPIRED


def test_a_lease_without_end_ends_with_the_age_that_is_allowed() -> None:
    writer = Writer(TxnLimits(age_ms_max=500))
    txn = writer.begin()
    session = writer.transactions.find(txn.id)
    assert session is not None
    session.context = TxnContext(txn.id, -1000)  # of a transaction that never expires
    (view,) = writer.transactions.views()
    assert lease_left_ms(view, TimeTick(txn.id), writer.limits.age_ms_max) == 500
    writer.wait(400)
    writer.transactions.expire(writer.end.last_tick)
    assert code(writer.one(of(txn, 2))) is None
    writer.wait(101)
    writer.transactions.expire(writer.end.last_tick)
    assert code(writer.one(of(txn, 2))) is EXPIRED


def test_ended_ones_are_forgotten_when_there_are_too_many() -> None:
    writer = Writer(TxnLimits(finished_max=1))
    txns = [writer.begin() for _ in range(3)]
    writer.group(*[of(txn, 901) for txn in txns])
    found = [code(writer.one(of(txn, 901))) for txn in txns]
    assert found == [EXPIRED, EXPIRED, None]


def test_ended_ones_are_forgotten_as_others_end_without_being_asked_to() -> None:
    writer = Writer(TxnLimits(finished_max=3, finished_ms=100))
    for _ in range(20):
        assert code(writer.one(of(writer.begin(), 901))) is None
        assert len(writer.transactions._ended) <= 3
    writer.wait(100)
    txn = writer.begin()
    assert code(writer.one(of(txn, 901))) is None
    assert len(writer.transactions._ended) == 1
    writer.restart()
    assert len(writer.transactions._ended) == 1


@pytest.mark.parametrize("kind", [2, 901, 902])
def test_who_is_told_that_it_expired_finds_it_expired_after_a_restart_too(kind: int) -> None:
    writer = Writer()
    txn, other = writer.begin(keepalive_ms=100), writer.begin()
    writer.wait(100)
    outcomes = writer.group(of(other, 2), of(txn, kind), of(txn, 901)).outcomes
    assert [code(outcome) for outcome in outcomes] == [None, EXPIRED, EXPIRED]
    assert writer.transactions.open_count == 1
    writer.restart()
    assert code(writer.one(of(txn, 901))) is EXPIRED


@pytest.mark.parametrize("vchannel", ["", P])
def test_a_transaction_needs_a_vchannel(vchannel: str) -> None:
    writer = Writer()
    assert code(writer.one(begin(vchannel))) is StreamingCode.INVALID_ARGUMENT
    assert (writer.transactions.open_count, writer.records) == (0, [])


@pytest.mark.parametrize(
    ("exclusive", "fails"),
    [
        (plain(V[0], 6), (True, False)),
        (plain("", 6), (True, True)),
        (plain(P, 8), (True, True)),
        (plain(V[1], 37), (True, True)),
        (plain(V[1], 9, pchannel_level=True), (True, True)),
        (plain(V[0], 14), (False, False)),
    ],
)
def test_an_exclusive_message_fails_its_scope_before_it(
    exclusive: NewMessage, fails: tuple[bool, bool]
) -> None:
    writer = Writer()
    txns = [writer.begin(vchannel) for vchannel in V]
    result = writer.group(of(txns[0], 2), exclusive, begin(), plain(V[1]), of(txns[0], 901))
    assert (code(result.outcomes[4]) is EXPIRED) is fails[0]
    assert (code(writer.one(of(txns[1], 901, V[1]))) is EXPIRED) is fails[1]
    kinds = [record.kind for record in result.records]
    at = kinds.index(exclusive.type)
    assert kinds.count(902) == sum(fails)
    assert all(kinds.index(902, i) < at for i, kind in enumerate(kinds) if kind == 902)
    assert kinds.index(900) > at


def test_a_record_of_an_unknown_transaction_is_passed_over_by_who_takes_over() -> None:
    writer = Writer()
    txn = writer.begin()
    writer.group(of(txn, 2))
    late = Transactions()
    late.replay(writer.records[1])
    assert late.views() == ()
    assert late.oldest_begin_id is None


STEPS = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from(("begin", "body", "commit", "rollback", "plain", "drop", "flush all")),
            st.integers(0, 5),
            st.integers(0, 1),
        ),
        max_size=6,
    ),
    max_size=14,
)


@dataclass
class Model:
    """The rules of transactions, said plainly: "open", "dead", "committed", "rolled back"."""

    known: list[tuple[TxnContext, str]] = field(default_factory=list)
    state: dict[int, str] = field(default_factory=dict)
    bodies: dict[int, int] = field(default_factory=dict)

    def messages(self, step: list[tuple[str, int, int]]) -> list[NewMessage]:
        kinds = {"body": 2, "commit": 901, "rollback": 902, "plain": 2, "drop": 6, "flush all": 37}
        found: list[NewMessage] = []
        for what, which, shard in step:
            if what == "begin":
                found.append(begin(V[shard], 100))
            elif what in ("body", "commit", "rollback"):
                txn, vchannel = self.known[which % len(self.known)] if self.known else NOBODY
                found.append(of(txn, kinds[what], vchannel))
            else:
                found.append(plain(V[shard], kinds[what]))
        return found

    def check(self, message: NewMessage, outcome: Appended | Refusal) -> None:
        if message.txn is not None and message.type != 900:
            self.check_in_txn(message.txn.id, message.type, outcome)
            return
        assert code(outcome) is None
        for context, vchannel in self.known:
            scope = message.type == 37 or (message.type == 6 and vchannel == message.vchannel)
            if scope and self.state[context.id] == "open":
                self.state[context.id] = "dead"

    def check_in_txn(self, txn_id: int, kind: int, outcome: Appended | Refusal) -> None:
        now = self.state.get(txn_id, "dead")
        if now == "open" and code(outcome) is EXPIRED:
            self.state[txn_id] = "dead"  # its lease: see `check_leases`
        elif now == "open":
            assert isinstance(outcome, AppendedInTxn)
            self.state[txn_id] = {2: "open", 901: "committed", 902: "rolled back"}[kind]
            self.bodies[txn_id] = self.bodies.get(txn_id, 0) + (kind == 2)
        elif (now, kind) not in (("committed", 901), ("rolled back", 902)):
            assert code(outcome) is (EXPIRED if now == "dead" else WRONG)
        else:
            assert code(outcome) is None

    def learn(self, message: NewMessage, outcome: Appended | Refusal) -> None:
        if message.type == 900 and isinstance(outcome, AppendedInTxn):
            self.known.append((outcome.txn, message.vchannel))
            self.state[outcome.txn.id] = "open"


NOBODY = (TxnContext(TxnId(9), 1), V[0])


@settings(max_examples=cases(400))
@given(STEPS, st.lists(st.integers(0, 60), min_size=14, max_size=14), st.sets(st.integers(0, 13)))
def test_any_life_keeps_to_the_naive_rules(
    steps: list[list[tuple[str, int, int]]], pauses: list[int], restarts: set[int]
) -> None:
    writer, model = Writer(), Model()
    for number, step in enumerate(steps):
        writer.wait(pauses[number])
        if number in restarts:
            writer.restart()
        messages = model.messages(step)
        outcomes = writer.group(*messages).outcomes
        for message, outcome in zip(messages, outcomes, strict=True):
            model.check(message, outcome)
        for message, outcome in zip(messages, outcomes, strict=True):
            model.learn(message, outcome)
    check_log(writer.records)
    if not restarts:
        check_leases(writer.records)
    for record in writer.records:
        if record.kind == 901 and record.txn is not None:
            assert model.state[record.txn.id] == "committed"
            assert record.txn.bodies == model.bodies.get(record.txn.id, 0)


def check_log(records: list[Record]) -> None:
    """P1, P7, P8, P15, P18 as plain loops over what was written."""
    ends = {r.txn.id: r for r in records if r.txn and r.kind in (901, 902)}
    begins = {r.txn.id: r for r in records if r.txn and r.kind == 900}
    last_tick = last_confirmed = 0
    for record in records:
        assert record.base_tick > last_tick
        assert record.last_confirmed_id >= last_confirmed
        last_tick, last_confirmed = record.last_tick, record.last_confirmed_id
        unresolved = [
            begins[txn_id].base_id
            for txn_id in begins
            if begins[txn_id].base_id <= record.base_id
            and (txn_id not in ends or ends[txn_id].base_id >= record.base_id)
        ]
        assert record.last_confirmed_id == min([record.base_id, *unresolved])
        if record.txn is not None and record.kind in (2, 901):
            assert record.txn.id not in ends or ends[record.txn.id].base_id >= record.base_id
        if record.kind in (6, 37):
            for txn_id, begun in begins.items():
                scope = record.kind == 37 or begun.vchannel == record.vchannel
                if scope and begun.base_id < record.base_id:
                    assert ends[txn_id].base_id < record.base_id


def check_leases(records: list[Record]) -> None:
    """P15: nothing of a transaction lands beyond its lease."""
    newest: dict[int, int] = {}
    for record in records:
        if record.txn is None or (record.kind == 902 and not record.body):
            continue
        if record.kind != 900:
            assert record.base_tick < newest[record.txn.id] + record.txn.keepalive_ms * MS
        newest[record.txn.id] = record.last_tick
