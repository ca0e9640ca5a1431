"""Records before they have ids and ticks, and the step that assigns both."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from broker.core.groups.group_changes import AckedInTxn, decode_change
from broker.core.groups.group_table import GroupTable
from broker.core.log.admission import TXN_ENDS, AdmissionPolicy
from broker.core.log.log_end import LogEnd, last_confirmed
from broker.core.log.numbered_producers import NumberedProducers
from broker.core.segments.segment_assigner import InternalMessage
from broker.core.txn.transactions import Transactions
from broker.core.txn.txn_session import TxnSession, outcome_of
from broker.core.txn.whole_txns import begin_of, commit_body
from broker.model.batch import BatchPart, NewBatch, ticks_of
from broker.model.failure import Refusal
from broker.model.ids import MessageId, TimeTick, TxnId
from broker.model.message import (
    BODY_TYPES,
    GROUP_CHANGE,
    PREPARE_TXN,
    Appended,
    AppendedInTxn,
    MessageType,
    NewMessage,
    NewRun,
)
from broker.model.record import Record
from broker.model.txn import TxnContext

NO_TXN = TxnContext(TxnId(0), 0)
"""Marks a record as a step of no transaction: begun before every log, so every reader skips it."""


@dataclass(frozen=True, slots=True)
class WriterState:
    """What a writer remembers of the log and updates with each record it places."""

    transactions: Transactions
    producers: NumberedProducers
    groups: GroupTable = field(default_factory=GroupTable)


class RecordDraft:
    """A record before it has ids and ticks: its bodies, and the indexes of what they came in."""

    __slots__ = (
        *("batch", "begin", "bodies", "body_bytes", "commits", "indexes", "kind", "properties"),
        *("session", "vchannel"),
    )

    def __init__(self, vchannel: str, kind: int, session: TxnSession | None = None) -> None:
        self.vchannel, self.kind, self.session = vchannel, kind, session
        self.batch: NewBatch | None = None
        self.properties: bytes | None = None
        """The shared properties of the batch with the header that the log wrote; None: as sent."""
        self.begin: NewMessage | None = None
        """A begin that is no message of the group."""
        self.commits: tuple[int, NewBatch] | None = None
        """Of a commit that is no message of the group: the index of its batch, and the batch."""
        self.indexes: list[int] = []
        self.bodies: list[bytes] = []
        self.body_bytes = 0

    def takes(
        self, message: NewMessage, bodies: Sequence[bytes], admission: AdmissionPolicy
    ) -> bool:
        """Whether the record can take these too, which are of the same transaction."""
        return (
            message.type == self.kind
            and self.body_bytes + sum(map(len, bodies)) <= admission.record_bytes_max
            and len(self.bodies) + len(bodies) <= admission.record_messages_max
        )

    def add(self, index: int, bodies: Sequence[bytes]) -> None:
        self.indexes.append(index)
        self.bodies += bodies
        self.body_bytes += sum(map(len, bodies))


def whole_drafts(index: int, batch: NewBatch, bodies: RecordDraft) -> list[RecordDraft]:
    """Begin, bodies and commit of a batch that is a transaction of its own."""
    begin = RecordDraft(batch.vchannel, MessageType.BEGIN_TXN)
    begin.begin = begin_of(batch)
    begin.bodies.append(begin.begin.body)
    return [begin, bodies, commit_draft(index, batch)]


def commit_draft(index: int, batch: NewBatch, session: TxnSession | None = None) -> RecordDraft:
    """The commit of a batch; without a session that of the begin placed before it."""
    commit = RecordDraft(batch.vchannel, MessageType.COMMIT_TXN, session)
    commit.commits = index, batch
    return commit


def rollback_drafts(dead: Sequence[TxnSession]) -> list[RecordDraft]:
    """The rollback records of transactions that the log itself ends."""
    drafts = [RecordDraft(session.vchannel, MessageType.ROLLBACK_TXN, session) for session in dead]
    for draft in drafts:
        # The empty body is the mark: a rollback that a client asked for has one.
        draft.bodies.append(b"")
    return drafts


def unseen_draft(index: int, message: NewMessage) -> RecordDraft:
    """The record of a change of a consumer group, of what only groups read, or of a purge.

    Of an acknowledgement in a transaction, too: the body alone names the transaction.
    """
    outside = TxnSession(NO_TXN, message.vchannel, MessageId(0), TimeTick(0))
    draft = RecordDraft(message.vchannel, message.type, outside)
    draft.add(index, message.bodies if isinstance(message, NewRun) else (message.body,))
    return draft


def internal_draft(message: InternalMessage) -> RecordDraft:
    """The record of a message that the log writes itself."""
    draft = RecordDraft(message.vchannel, message.kind)
    draft.bodies.append(message.body)
    return draft


def place_drafts(
    drafts: Sequence[RecordDraft],
    first_tick: TimeTick,
    end: LogEnd,
    state: WriterState,
    messages: Sequence[NewMessage],
    outcomes: list[Appended | Refusal | None],
) -> tuple[tuple[Record, ...], LogEnd]:
    """Assign ids and ticks to the drafts in this order, and update `state` and `outcomes`."""
    records: list[Record] = []
    transactions = state.transactions
    next_tick = first_tick
    whole: TxnSession | None = None
    for draft in drafts:
        if draft.kind == MessageType.BEGIN_TXN:
            own = draft.begin
            begin = messages[draft.indexes[0]] if own is None else own
            # Not earlier: the tick of the begin, known only here, becomes the transaction's id.
            draft.session = transactions.begun(begin, end.next_id, next_tick, whole=own is not None)
            whole = None if own is None else draft.session
        elif whole is not None:
            # Bodies and commit lie right behind the begin of a transaction that came in one batch.
            draft.session = whole
            whole = None if draft.commits is not None else whole
        if draft.commits is not None:
            assert draft.session is not None
            draft.bodies = [commit_body(draft.commits[1], draft.session)]
        record = _record(draft, next_tick, end)
        records.append(record)
        last_tick = record.last_tick
        next_tick = TimeTick(last_tick + 1)
        end = LogEnd(end.term, record.next_id, last_tick, end.open_txn_id)
        if draft.batch is not None:
            state.producers.replay(record)
        if draft.session is None:
            _answer(draft, record, messages, outcomes)
        else:
            _answer_in_txn(draft.session, draft, record, outcomes)
            if draft.commits is not None:
                _answer_whole(draft.commits[0], record, outcomes)
            _update(state, draft, record, messages)
            # At each record, because the last confirmed id of the next one depends on it.
            end = LogEnd(end.term, end.next_id, end.last_tick, transactions.oldest_begin_id)
    return tuple(records), end


def _record(draft: RecordDraft, tick: TimeTick, end: LogEnd) -> Record:
    batch = draft.batch
    return Record(
        term=end.term,
        base_id=end.next_id,
        base_tick=tick,
        last_confirmed_id=last_confirmed(end.next_id, end),
        kind=draft.kind,
        vchannel=draft.vchannel,
        sizes=tuple(map(len, draft.bodies)) if batch is None else batch.sizes,
        body=b"".join(draft.bodies) if batch is None else batch.body,
        txn=None if draft.session is None else draft.session.part(),
        batch=None if batch is None else _part(batch, draft.properties),
    )


def _part(batch: NewBatch, properties: bytes | None) -> BatchPart:
    part = batch.part
    if properties is None:
        return part
    # Not `replace`, which takes four times as long.
    return BatchPart(properties, part.codec, part.keys, part.producer, part.own)


def _answer(
    draft: RecordDraft,
    record: Record,
    messages: Sequence[NewMessage],
    outcomes: list[Appended | Refusal | None],
) -> None:
    next_id, next_tick, confirmed = record.base_id, record.base_tick, record.last_confirmed_id
    if draft.batch is not None:  # it has a record of its own
        outcomes[draft.indexes[0]] = Appended(next_id, next_tick, confirmed)
        return
    # The record holds one last confirmed id, that of its first message. While no transaction is
    # open, each message behind it confirms itself.
    confirms_itself = confirmed == next_id
    for index in draft.indexes:
        outcomes[index] = Appended(next_id, next_tick, next_id if confirms_itself else confirmed)
        count = ticks_of(messages[index])
        next_id, next_tick = MessageId(next_id + count), TimeTick(next_tick + count)


def _answer_in_txn(
    session: TxnSession,
    draft: RecordDraft,
    record: Record,
    outcomes: list[Appended | Refusal | None],
) -> None:
    own, confirmed = record.base_id, record.last_confirmed_id
    confirms_itself = confirmed == own  # a begin while no other transaction is open
    for offset, index in enumerate(draft.indexes):
        landed_id, tick = MessageId(own + offset), TimeTick(record.base_tick + offset)
        last_confirmed = landed_id if confirms_itself else confirmed
        outcomes[index] = AppendedInTxn(landed_id, tick, last_confirmed, session.context)


def _answer_whole(index: int, commit: Record, outcomes: list[Appended | Refusal | None]) -> None:
    """The answer to the batch is where its first body is, at the tick at which all are read."""
    bodies = outcomes[index]
    assert isinstance(bodies, Appended), bodies
    outcomes[index] = Appended(bodies.id, commit.base_tick, bodies.last_confirmed_id)


def _update(
    state: WriterState, draft: RecordDraft, record: Record, messages: Sequence[NewMessage]
) -> None:
    session, transactions = draft.session, state.transactions
    assert session is not None
    if record.kind in TXN_ENDS:
        transactions.ended(session, outcome_of(record, session))
    elif record.kind == PREPARE_TXN:
        transactions.prepared(session, outcome_of(record, session))
    elif record.kind in BODY_TYPES:
        transactions.grown(session, len(record.sizes), record.last_tick)
    elif record.kind == GROUP_CHANGE:
        _hold(state, messages[draft.indexes[0]], record)


def _hold(state: WriterState, message: NewMessage, record: Record) -> None:
    """Keep what a transaction acknowledges; any other change is applied by who has asked for it."""
    session = None if message.txn is None else state.transactions.find(message.txn.id)
    if session is None:
        return
    change = decode_change(record.body)
    assert isinstance(change, AckedInTxn), change
    state.groups.hold(record.vchannel, change, record.base_tick)
    state.transactions.grown(session, 0, record.base_tick)
