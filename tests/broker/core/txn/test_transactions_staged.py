"""Staged transactions of a writer: prepared they wait for one word, whatever else happens."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.log.admission import AdmissionPolicy
from broker.core.log.assembler import Assembler
from broker.core.log.log_end import LogEnd
from broker.core.log.numbered_producers import NumberedProducers
from broker.core.log.record_drafts import WriterState
from broker.core.log.sequencer import Sequenced, sequence
from broker.core.txn.transactions import Transactions
from broker.core.txn.txn_limits import TxnLimits
from broker.core.txn.txn_state import TxnState
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import MessageId, PChannelName, Term, TimeTick, TxnId
from broker.model.message import PREPARE_TXN, Appended, AppendedInTxn, Delivered, NewMessage
from broker.model.record import Record
from broker.model.stage import StageName
from broker.model.txn import TxnContext
from tests.cases import cases

P = PChannelName("by-dev-rootcoord-dml_3")
V = f"{P}_7v0"
ADMISSION = AdmissionPolicy(P, message_bytes_max=1000)
MS = 1 << 18
MINUTE = 60_000
STAGE = StageName("job", 7, 0, 0)
OTHER = StageName("job", 8, 0, 0)
GONE, WRONG = StreamingCode.TRANSACTION_EXPIRED, StreamingCode.INVALID_TRANSACTION_STATE
BAD, BUSY = StreamingCode.INVALID_ARGUMENT, StreamingCode.RESOURCE_ACQUIRED
DROP, FLUSH_ALL = 6, 37


def stage_in(begin: bytes) -> StageName | None:
    return STAGE if begin == b"staged" else None


@dataclass
class Writer:
    """An Appender without its surroundings."""

    limits: TxnLimits = field(default_factory=TxnLimits)
    records: list[Record] = field(default_factory=list)
    end: LogEnd = LogEnd(Term(1), MessageId(1), TimeTick(1_000 * MS))

    def __post_init__(self) -> None:
        self.transactions = Transactions(self.limits, stage_in)

    def group(self, *messages: NewMessage) -> Sequenced:
        first_tick = TimeTick(self.end.last_tick + 1)
        known = WriterState(self.transactions, NumberedProducers())
        result = sequence(messages, first_tick, self.end, ADMISSION, known)
        self.records += result.records
        self.end = result.end
        self.transactions.stored()
        return result

    def one(self, message: NewMessage) -> Appended | Refusal:
        (outcome,) = self.group(message).outcomes
        return outcome

    def begin(self, stage: StageName | None = STAGE) -> TxnContext:
        body = b"staged" if stage else b"plain"
        context = TxnContext(TxnId(0), 0)
        outcome = self.one(NewMessage(V, 900, body, 1, txn=context, stage=stage))
        assert isinstance(outcome, AppendedInTxn), outcome
        return outcome.txn

    def wait(self, ms: int) -> None:
        tick = TimeTick(self.end.last_tick + ms * MS)
        self.end = LogEnd(self.end.term, self.end.next_id, tick, self.end.open_txn_id)

    def look(self) -> None:
        """What the channel does when a lease seems over."""
        self.transactions.expire(self.end.last_tick)
        self.group()

    def restart(self) -> None:
        self.transactions = Transactions(self.limits, stage_in)
        for record in self.records:
            self.transactions.replay(record)
        self.transactions.renew(self.end.last_tick)

    def state(self, txn: TxnContext) -> TxnState | None:
        found = self.transactions.find(txn.id)
        return None if found is None else found.state


def word(txn: TxnContext, kind: int, stage: StageName | None = STAGE) -> NewMessage:
    body = b"" if kind == PREPARE_TXN else b"end"
    return NewMessage(V, kind, body, len(body), txn=txn, stage=stage)


def body_of(txn: TxnContext, size: int = 4) -> NewMessage:
    return NewMessage(V, 2, b"x" * size, size, txn=txn)


def plain(kind: int = 2) -> NewMessage:
    return NewMessage(V, kind, b"p", 1)


def code(outcome: object) -> StreamingCode | None:
    return outcome.code if isinstance(outcome, Refusal) else None


def test_what_is_staged_lives_for_the_idle_time_and_then_ends_by_itself() -> None:
    writer = Writer()
    txn = writer.begin()
    assert txn.keepalive_ms == 10 * MINUTE
    for _ in range(5):
        writer.wait(9 * MINUTE)
        assert code(writer.one(body_of(txn))) is None
    writer.wait(10 * MINUTE)
    writer.look()
    assert (writer.state(txn), writer.transactions.oldest_begin_id) == (TxnState.EXPIRED, None)
    assert code(writer.one(word(txn, PREPARE_TXN))) is GONE


def test_what_is_staged_has_an_age_of_its_own() -> None:
    writer = Writer(TxnLimits(stage_age_ms_max=MINUTE, age_ms_max=5 * MINUTE))
    txn = writer.begin()
    writer.wait(MINUTE)
    assert code(writer.one(body_of(txn))) is GONE


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("end", [901, 902])
def test_what_is_prepared_ends_by_its_coordinators_word_alone(end: int, restarts: bool) -> None:
    writer = Writer()
    txn = writer.begin()
    writer.one(body_of(txn))
    prepared = writer.one(word(txn, PREPARE_TXN))
    assert isinstance(prepared, AppendedInTxn)
    writer.wait(600 * MINUTE)
    writer.look()
    if restarts:
        writer.restart()
        writer.transactions.abort([txn.id])
        writer.look()
    assert (writer.state(txn), writer.transactions.prepared_count) == (TxnState.PREPARED, 1)
    assert writer.transactions.oldest_begin_id == MessageId(1)
    assert code(writer.one(body_of(txn))) is WRONG
    assert code(writer.one(word(txn, 901, None))) is BAD
    assert code(writer.one(word(txn, 902, None))) is WRONG
    assert code(writer.one(word(txn, 901, OTHER))) is BAD
    assert writer.one(word(txn, PREPARE_TXN)) == prepared
    landed = writer.one(word(txn, end))
    assert isinstance(landed, AppendedInTxn)
    assert writer.one(word(txn, end)) == landed
    assert (writer.transactions.prepared_count, writer.transactions.open_count) == (0, 0)
    assert code(writer.one(word(txn, PREPARE_TXN))) is WRONG
    writer.restart()
    assert writer.one(word(txn, end)) == landed


def test_repeats_in_one_group_are_answered_alike() -> None:
    writer = Writer()
    txn = writer.begin()
    twice = [word(txn, PREPARE_TXN)] * 2 + [word(txn, 901)] * 2
    first, again, end, end_again = writer.group(body_of(txn), *twice).outcomes[1:]
    assert (first, end) == (again, end_again)
    assert code(end) is None
    assert [record.kind for record in writer.records] == [900, 2, PREPARE_TXN, 901]


@pytest.mark.parametrize("exclusive", [DROP, FLUSH_ALL])
def test_what_is_exclusive_waits_for_the_word_and_ends_what_has_none(exclusive: int) -> None:
    writer = Writer()
    prepared, flying = writer.begin(), writer.begin()
    outcomes = writer.group(word(prepared, PREPARE_TXN), plain(exclusive)).outcomes
    assert [code(it) for it in outcomes] == [None, BUSY]
    assert writer.state(flying) is TxnState.IN_FLIGHT
    outcomes = writer.group(word(prepared, 901), plain(exclusive)).outcomes
    assert [code(it) for it in outcomes] == [None, None]
    assert code(writer.one(word(flying, PREPARE_TXN))) is GONE


def test_what_is_exclusive_elsewhere_does_not_wait() -> None:
    writer = Writer()
    writer.one(word(writer.begin(), PREPARE_TXN))
    assert code(writer.one(NewMessage(f"{P}_7v1", DROP, b"p", 1))) is None


@pytest.mark.parametrize(
    ("kind", "stage", "refusal"),
    [
        (901, None, BAD),
        (901, STAGE, WRONG),
        (PREPARE_TXN, OTHER, BAD),
        (902, OTHER, BAD),
        (902, None, None),
        (902, STAGE, None),
    ],
)
def test_the_word_on_what_is_in_flight(
    kind: int, stage: StageName | None, refusal: StreamingCode | None
) -> None:
    writer = Writer()
    assert code(writer.one(word(writer.begin(), kind, stage))) is refusal


def test_what_no_stage_began_is_not_the_coordinators_business() -> None:
    writer = Writer()
    txn = writer.begin(None)
    assert code(writer.one(word(txn, PREPARE_TXN))) is BAD
    assert code(writer.one(word(txn, 901))) is BAD
    assert code(writer.one(word(txn, 901, None))) is None


def test_a_client_cannot_prepare() -> None:
    writer = Writer()
    assert code(writer.one(word(writer.begin(), PREPARE_TXN, None))) is StreamingCode.UNRECOVERABLE


def test_a_full_pchannel_refuses_for_good_what_is_staged_and_says_what_to_do() -> None:
    writer = Writer(TxnLimits(open_bytes_max=10))
    txn, other = writer.begin(), writer.begin(None)
    writer.one(body_of(txn, 8))
    refusal = writer.one(body_of(txn, 8))
    assert isinstance(refusal, Refusal)
    assert refusal.code is StreamingCode.UNRECOVERABLE
    assert "make the batches smaller" in refusal.cause
    assert code(writer.one(body_of(other, 8))) is StreamingCode.INNER


def test_a_reader_is_shown_a_prepared_transaction_at_its_commit() -> None:
    writer = Writer()
    txn = writer.begin()
    writer.group(body_of(txn))
    writer.one(word(txn, PREPARE_TXN))
    writer.one(word(txn, 901))
    assembler = Assembler(MessageId(1))
    *before, commit = writer.records
    assert [assembler.absorb(record) for record in before] == [""] * 3
    members = assembler.committed(commit, None)
    assert members is not None
    assert not isinstance(members, str)
    taken = members.take(0, 10_000, whole=False, one_at_least=True)
    bodies = [it.body for it in taken.items if isinstance(it, Delivered)]
    assert bodies == [b"staged", b"xxxx", b"end"]


def test_a_later_life_of_an_app_has_the_room_of_what_an_earlier_one_staged_for_the_batch() -> None:
    writer = Writer(TxnLimits(open_bytes_max=30))
    old = [writer.begin(replace(STAGE, part=part, run=1)) for part in range(3)]
    writer.group(*[body_of(txn, 9) for txn in old])
    begin = NewMessage(
        V, 900, b"staged", 1, txn=TxnContext(TxnId(0), 0), stage=replace(STAGE, run=2)
    )
    refused, new = writer.group(body_of(old[0], 9), begin).outcomes
    assert code(refused) is StreamingCode.UNRECOVERABLE, "there is no room yet"
    assert isinstance(new, AppendedInTxn)
    assert code(writer.one(body_of(new.txn, 29))) is None
    assert [code(writer.one(body_of(txn, 1))) for txn in old] == [GONE] * 3
    assert [code(writer.one(word(txn, PREPARE_TXN))) for txn in old] == [GONE] * 3
    writer.restart()
    assert (writer.transactions.open_count, writer.transactions.open_bytes) == (1, 29)


def test_what_is_outlived_ends_behind_what_it_got_with_the_same_group() -> None:
    writer = Writer()
    old = writer.begin(replace(STAGE, run=1))
    begin = NewMessage(
        V, 900, b"staged", 1, txn=TxnContext(TxnId(0), 0), stage=replace(STAGE, run=2)
    )
    writer.group(body_of(old), begin)
    assert [it.kind for it in writer.records] == [900, 2, 902, 900]
    assembler = Assembler(MessageId(1))
    assert [assembler.absorb(record) for record in writer.records] == [""] * 4


@pytest.mark.parametrize(
    "later",
    [
        replace(STAGE, run=3),
        replace(STAGE, run=2),
        STAGE,
        replace(STAGE, batch=8, run=9),
        replace(STAGE, app="other", run=9),
        replace(STAGE, run=3, part=1, attempt=9),
    ],
    ids=["same try", "earlier run", "no run", "other batch", "other app", "other part"],
)
def test_only_a_later_life_with_the_same_batch_gives_up_what_is_staged(later: StageName) -> None:
    writer = Writer()
    txn = writer.begin(replace(STAGE, run=3))
    writer.begin(later)
    assert code(writer.one(body_of(txn))) is None


def test_a_later_attempt_at_a_part_gives_up_the_earlier_one_where_the_app_says_its_run() -> None:
    writer = Writer()
    silent, early = writer.begin(), writer.begin(replace(STAGE, run=3, attempt=1))
    writer.begin(replace(STAGE, attempt=1))
    later = writer.begin(replace(STAGE, run=3, attempt=2))
    assert code(writer.one(body_of(early))) is GONE
    assert code(writer.one(body_of(later))) is None
    assert code(writer.one(body_of(silent))) is None


def test_what_a_commit_has_taken_hold_of_and_what_is_no_stages_outlives_every_begin() -> None:
    writer = Writer()
    prepared, plain_one = writer.begin(replace(STAGE, run=1)), writer.begin(None)
    writer.one(word(prepared, PREPARE_TXN))
    writer.begin(replace(STAGE, run=2))
    assert writer.state(prepared) is TxnState.PREPARED
    assert code(writer.one(body_of(plain_one))) is None
    assert code(writer.one(word(prepared, 901))) is None


STEPS = st.sampled_from(("body", "prepare", "commit", "rollback", "give up", "drop", "wait", "die"))


@settings(max_examples=cases(400))
@given(st.lists(STEPS, max_size=14))
def test_any_staged_life_keeps_to_the_naive_rules(steps: list[str]) -> None:
    writer = Writer()
    txn = writer.begin()
    says = {"body": 2, "prepare": PREPARE_TXN, "commit": 901, "rollback": 902}
    now = "open"
    for step in steps:
        if step == "wait":
            writer.wait(11 * MINUTE)
            writer.look()
            now = "dead" if now == "open" else now
        elif step == "die":
            writer.restart()
        elif step == "drop":
            assert (code(writer.one(plain(DROP))) is BUSY) == (now == "prepared")
            now = "dead" if now == "open" else now
        elif step == "give up":
            done = code(writer.one(word(txn, 902, None))) is None
            assert done == (now in ("open", "rolled back"))
            now = "rolled back" if done else now
        else:
            stage = None if step == "body" else STAGE
            done = (
                code(writer.one(NewMessage(V, says[step], b"m", 1, txn=txn, stage=stage))) is None
            )
            assert done == ((now, step) in MAY)
            now = MAY.get((now, step), now)
    committed = [it for it in writer.records if it.kind == 901]
    assert len(committed) == (now == "committed")
    assert (writer.transactions.open_count == 1) == (now in ("open", "prepared"))


MAY = {
    ("open", "body"): "open",
    ("open", "prepare"): "prepared",
    ("open", "rollback"): "rolled back",
    ("prepared", "prepare"): "prepared",
    ("prepared", "commit"): "committed",
    ("prepared", "rollback"): "rolled back",
    ("committed", "commit"): "committed",
    ("rolled back", "rollback"): "rolled back",
}
