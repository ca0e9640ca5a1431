"""Admits a group of messages and gives them ids and time ticks, both in one order.

It owns the write path's decision and nothing else: ticks come in, records and outcomes go out.
Why records: messages of one group that share vchannel, type and transaction are stored as one
record, which makes storing and skipping cheap. Order within a vchannel is kept, and so is the
order of an exclusive message with all of its scope; appends in flight together otherwise never had
a promised order.
Why ids and ticks in one order: the last confirmed id of a message is then the smaller of its own
id and the begin of the oldest open transaction (facts, wire 4.2).
Why no locks: a pchannel has one writer, which sequences one group after the other. An exclusive
message overlaps nothing, neither on its vchannel nor, with the whole pchannel exclusive, anywhere.
Next: broker/core/log/delivery.py
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from broker.core.log.admission import TXN_ENDS, Admission, covers_pchannel, refusal_of
from broker.core.log.numbered_producers import GroupNumbers, Producers
from broker.core.segments.segment_turn import OwnMessage, SegmentTurn
from broker.core.txn.transactions import Transactions
from broker.core.txn.txn_session import TxnSession, outcome_of, waits_for_word
from broker.model.batch import NewBatch, ticks_of
from broker.model.failure import Refusal
from broker.model.ids import MessageId, SegmentId, Term, TimeTick
from broker.model.message import (
    BODY_TYPES,
    EXCLUSIVE_TYPES,
    PREPARE_TXN,
    Appended,
    AppendedFlush,
    AppendedInTxn,
    ClosedTick,
    MessageType,
    NewMessage,
)
from broker.model.record import Record


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Where the log goes on. `open_txn_id`: the begin of the oldest unresolved transaction."""

    term: Term
    next_id: MessageId
    last_tick: TimeTick
    open_txn_id: MessageId | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """What a writer remembers of the log, and keeps up to date with what it places."""

    transactions: Transactions
    producers: Producers


@dataclass(frozen=True, slots=True)
class Sequenced:
    """`outcomes[i]` is for `messages[i]`; the Appended ones hold once `records` are durable."""

    records: tuple[Record, ...]
    outcomes: tuple[Appended | Refusal, ...]
    end: LogEnd


def sequence(
    messages: Sequence[NewMessage],
    first_tick: TimeTick,
    end: LogEnd,
    admission: Admission,
    known: Known,
    turn: SegmentTurn | None = None,
) -> Sequenced:
    """Sequence a group with the ticks `first_tick`, `first_tick + 1`, …, one for each message.

    A batch takes as many as it has messages, and its outcome is that of its first one.

    As many more ticks must follow as `transactions.rollbacks_due(messages)` and
    `turn.records_due`, when the group has a turn with collections and segments. A message whose
    barrier tick is not below `first_tick` is refused: the caller brings ticks past every barrier
    that the oracle knows (`barrier_of`).
    """
    assert first_tick > end.last_tick, (first_tick, end.last_tick)
    transactions = known.transactions
    due = transactions.rollbacks_due(messages)
    ours = 0 if turn is None else turn.records_due
    latest = TimeTick(first_tick + sum(map(ticks_of, messages)) + due + ours)
    group = _Group(messages, (first_tick, latest), admission, known, turn)
    flushes = [] if turn is None else [_own(each) for each in turn.flushes()]
    for index, message in enumerate(messages):
        group.admit(index, message)
    runs = [*flushes, *_rollbacks(transactions.take_dead(due)), *group.runs, *group.begins]
    records, end = _place(runs, first_tick, end, known, group)
    for index, session in group.repeats:
        group.outcomes[index] = session.answer_to(messages[index])
        assert group.outcomes[index] is not None, messages[index]
    for index, same in group.same_as:
        group.outcomes[index] = group.outcomes[same]
    if turn is not None:
        for index, segment_ids in turn.flushed.items():
            group.outcomes[index] = _with_flushed(group.outcomes[index], segment_ids)
    return Sequenced(records, tuple([outcome for outcome in group.outcomes if outcome]), end)


def time_tick_record(tick: TimeTick, end: LogEnd) -> Record:
    """The record that says: every tick up to `tick` is closed."""
    assert tick > end.last_tick, (tick, end.last_tick)
    return Record(
        term=end.term,
        base_id=end.next_id,
        base_tick=tick,
        last_confirmed_id=_last_confirmed(end.next_id, end),
        kind=MessageType.TIME_TICK,
        vchannel="",
        sizes=(0,),
        body=b"",
    )


def end_after(records: Sequence[Record], end: LogEnd) -> LogEnd:
    """Where the log goes on after these records, which change no transaction."""
    if not records:
        return end
    last = records[-1]
    return LogEnd(end.term, last.next_id, last.last_tick, end.open_txn_id)


def closed_tick(tick: TimeTick, end: LogEnd) -> ClosedTick:
    """What readers are told when `tick` is closed and no record of its own says so.

    It carries the last confirmed id of the newest message as its id.
    """
    newest = _last_confirmed(MessageId(end.next_id - 1), end)
    return ClosedTick(tick, newest, newest, end.term, persisted=False)


def barrier_of(messages: Sequence[NewMessage]) -> TimeTick:
    """The tick that every tick given to the group must exceed; 0 when any will do."""
    return TimeTick(max([message.barrier_tick for message in messages], default=0))


class _RecordDraft:
    """A record in the making: indexes into the group, and their bodies."""

    __slots__ = ("batch", "bodies", "body_bytes", "indexes", "kind", "session", "vchannel")

    def __init__(self, vchannel: str, kind: int, session: TxnSession | None = None) -> None:
        self.vchannel, self.kind, self.session = vchannel, kind, session
        self.batch: NewBatch | None = None
        self.indexes: list[int] = []
        self.bodies: list[bytes] = []
        self.body_bytes = 0

    def takes(self, message: NewMessage, admission: Admission) -> bool:
        """The key that it grows under sees to the transaction."""
        return (
            message.type == self.kind
            and self.body_bytes + len(message.body) <= admission.record_bytes_max
            and len(self.indexes) < admission.record_messages_max
        )

    def add(self, index: int, body: bytes) -> None:
        self.indexes.append(index)
        self.bodies.append(body)
        self.body_bytes += len(body)


class _Group:
    """Messages on their way through admission, in order, into runs."""

    def __init__(
        self,
        messages: Sequence[NewMessage],
        ticks: tuple[TimeTick, TimeTick],
        admission: Admission,
        known: Known,
        turn: SegmentTurn | None,
    ) -> None:
        """`ticks`: the first that any of them may get, and one that all will be below."""
        self.messages = messages
        self.outcomes: list[Appended | Refusal | None] = [None] * len(messages)
        self.runs: list[_RecordDraft] = []
        self.begins: list[_RecordDraft] = []
        """Placed last: what is exclusive in the group must not lie behind them."""
        self.repeats: list[tuple[int, TxnSession]] = []
        self.same_as: list[tuple[int, int]] = []
        """Indexes of repeats, each with the batch of the same group that it repeats."""
        self._first_tick, self._latest_tick = ticks
        self._admission = admission
        self._transactions = known.transactions
        self._numbers = GroupNumbers(known.producers)
        self._turn = turn
        self._growing: dict[str | int, _RecordDraft] = {}

    def admit(self, index: int, message: NewMessage) -> None:
        """Closed, size, type, name, barrier; its collection; its transaction; then its scope."""
        refusal = refusal_of(message, self._first_tick, self._admission)
        turn = self._turn
        if refusal is None and turn is not None and index in turn.verdicts:
            refusal = turn.refusal(index, message)
        if refusal is not None:
            self.outcomes[index] = refusal
        elif isinstance(message, NewBatch):
            self._admit_batch(index, message)
        elif message.txn is not None:
            self._admit_in_txn(index, message)
        elif message.type in EXCLUSIVE_TYPES:
            self._admit_exclusive(index, message)
        else:
            self._place_with(message.vchannel, index, message, None)

    def _admit_batch(self, index: int, batch: NewBatch) -> None:
        """A record of its own, unless its producer has sent it before.

        A repeat gets its first answer whatever became of its transaction meanwhile. One that its
        transaction refuses uses up no number.
        """
        numbered, session = batch.part.producer, None
        if numbered is not None:
            known = self._numbers.look_up(numbered, len(batch.sizes))
            if isinstance(known, int):
                self.same_as.append((index, known))
                return
            if known is not None:
                self.outcomes[index] = known
                return
        if batch.txn is not None:
            refusal = self._transactions.admit(batch, self._latest_tick)
            if isinstance(refusal, Refusal):
                self.outcomes[index] = refusal
                return
            session = self._transactions.find(batch.txn.id)
            self._growing.pop(batch.txn.id, None)
        if numbered is not None:
            self._numbers.take(index, numbered, len(batch.sizes))
        run = _RecordDraft(batch.vchannel, batch.type, session)
        run.batch = batch
        run.indexes.append(index)
        self._growing.pop(batch.vchannel, None)
        self.runs.append(run)

    def _admit_in_txn(self, index: int, message: NewMessage) -> None:
        if message.stage is not None:
            self.runs += _rollbacks(self._transactions.outlive(message))
        # By the last tick that it may get: so none that is let in lands beyond its lease.
        verdict = self._transactions.admit(message, self._latest_tick)
        assert message.txn is not None
        if isinstance(verdict, Refusal):
            self.outcomes[index] = verdict
        elif isinstance(verdict, TxnSession):
            self.repeats.append((index, verdict))
        elif message.type == MessageType.BEGIN_TXN:
            run = _RecordDraft(message.vchannel, message.type)
            run.add(index, message.body)
            self.begins.append(run)
        else:
            session = self._transactions.find(message.txn.id)
            key = message.txn.id if message.type in BODY_TYPES else message.vchannel
            self._place_with(key, index, message, session)

    def _admit_exclusive(self, index: int, message: NewMessage) -> None:
        """In a record of its own, behind all that it ends and before all that comes after it."""
        whole = covers_pchannel(message, self._admission.pchannel)
        scope = "" if whole else message.vchannel
        prepared = self._transactions.prepared_in(scope)
        if prepared is not None:
            self.outcomes[index] = waits_for_word(prepared)
            return
        failed = self._transactions.exclude(scope)
        self.runs += _rollbacks(failed)
        if whole:
            self._growing.clear()
        else:
            self._growing.pop(message.vchannel, None)
        self._place_with(message.vchannel, index, message, None)
        self._growing.pop(message.vchannel)

    def _place_with(
        self, key: str | int, index: int, message: NewMessage, session: TxnSession | None
    ) -> None:
        body, turn = message.body, self._turn
        if turn is not None and index in turn.verdicts:
            body = self._stamped(turn, index, message, session)
        run = self._growing.get(key)
        if run is None or run.session is not session or not run.takes(message, self._admission):
            run = self._growing[key] = _RecordDraft(message.vchannel, message.type, session)
            self.runs.append(run)
        run.add(index, body)

    def _stamped(
        self, turn: SegmentTurn, index: int, message: NewMessage, session: TxnSession | None
    ) -> bytes:
        stamped = turn.stamp(index, message, None if session is None else session.context.id)
        if stamped.before is not None:
            self._growing.clear()
            self.runs.append(_own(stamped.before))
        return stamped.body


def _rollbacks(dead: Sequence[TxnSession]) -> list[_RecordDraft]:
    """The records that end transactions on our own account."""
    runs = [_RecordDraft(session.vchannel, MessageType.ROLLBACK_TXN, session) for session in dead]
    for run in runs:
        run.bodies.append(b"")
    return runs


def _own(message: OwnMessage) -> _RecordDraft:
    run = _RecordDraft(message.vchannel, message.kind)
    run.bodies.append(message.body)
    return run


def _with_flushed(
    outcome: Appended | Refusal | None, segment_ids: tuple[SegmentId, ...]
) -> AppendedFlush:
    assert isinstance(outcome, Appended), outcome
    return AppendedFlush(outcome.id, outcome.tick, outcome.last_confirmed_id, segment_ids)


def _place(
    runs: Sequence[_RecordDraft],
    first_tick: TimeTick,
    end: LogEnd,
    known: Known,
    group: _Group,
) -> tuple[tuple[Record, ...], LogEnd]:
    """Give each run its ids and ticks, in this order, and tell who remembers."""
    records: list[Record] = []
    transactions = known.transactions
    next_tick = first_tick
    for run in runs:
        if run.kind == MessageType.BEGIN_TXN:
            begin = group.messages[run.indexes[0]]
            run.session = transactions.begun(begin, end.next_id, next_tick)
        record = _record(run, next_tick, end)
        records.append(record)
        next_tick = TimeTick(record.last_tick + 1)
        end = end_after([record], end)
        if run.batch is not None:
            known.producers.replay(record)
        if run.session is None:
            _answer(run, record, group.outcomes)
        else:
            _answer_in_txn(run.session, run, record, group.outcomes)
            _tell(transactions, run.session, record)
            end = replace(end, open_txn_id=transactions.oldest_begin_id)
    return tuple(records), end


def _record(run: _RecordDraft, tick: TimeTick, end: LogEnd) -> Record:
    batch = run.batch
    return Record(
        term=end.term,
        base_id=end.next_id,
        base_tick=tick,
        last_confirmed_id=_last_confirmed(end.next_id, end),
        kind=run.kind,
        vchannel=run.vchannel,
        sizes=tuple(map(len, run.bodies)) if batch is None else batch.sizes,
        body=b"".join(run.bodies) if batch is None else batch.body,
        txn=None if run.session is None else run.session.part(),
        batch=None if batch is None else batch.part,
    )


def _answer(run: _RecordDraft, record: Record, outcomes: list[Appended | Refusal | None]) -> None:
    next_id, next_tick, confirmed = record.base_id, record.base_tick, record.last_confirmed_id
    confirms_itself = confirmed == next_id
    for index in run.indexes:
        outcomes[index] = Appended(next_id, next_tick, next_id if confirms_itself else confirmed)
        next_id, next_tick = MessageId(next_id + 1), TimeTick(next_tick + 1)


def _answer_in_txn(
    session: TxnSession,
    run: _RecordDraft,
    record: Record,
    outcomes: list[Appended | Refusal | None],
) -> None:
    own, confirmed = record.base_id, record.last_confirmed_id
    confirms_itself = confirmed == own  # a begin that no other one is open before
    for offset, index in enumerate(run.indexes):
        landed_id, tick = MessageId(own + offset), TimeTick(record.base_tick + offset)
        last_confirmed = landed_id if confirms_itself else confirmed
        outcomes[index] = AppendedInTxn(landed_id, tick, last_confirmed, session.context)


def _tell(transactions: Transactions, session: TxnSession, record: Record) -> None:
    if record.kind in TXN_ENDS:
        transactions.ended(session, outcome_of(record, session))
    elif record.kind == PREPARE_TXN:
        transactions.prepared(session, outcome_of(record, session))
    elif record.kind != MessageType.BEGIN_TXN:
        transactions.grown(session, len(record.sizes), record.last_tick)


def _last_confirmed(own_id: MessageId, end: LogEnd) -> MessageId:
    return own_id if end.open_txn_id is None else min(own_id, end.open_txn_id)
