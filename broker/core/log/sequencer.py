"""Admits a group of messages and assigns their ids and time ticks, both in the same order.

Why records: messages of one group with the same vchannel, type and transaction are stored as one
record, so storing them and skipping them is cheap. Messages of one vchannel keep their order, and
so do an exclusive message and everything in its scope. Concurrent appends have no other order.

Why one order for ids and ticks: the last confirmed id of a message is then the smaller of its own
id and the begin of the oldest open transaction. A reader that starts there misses no message with
a larger tick, and sees every transaction that is open there from its begin.

Why no locks: a pchannel has one writer, which sequences one group after another. An exclusive
message therefore never overlaps another append of its vchannel or, if it covers the whole pchannel,
any other append.

Next: broker/wal/segmented/log.py
"""

from collections.abc import Sequence
from dataclasses import replace

from broker.core.groups.group_changes import AckedInTxn, decode_change
from broker.core.groups.group_rules import ack_refusal
from broker.core.groups.tick_spans import TickSpans
from broker.core.log.admission import AdmissionPolicy, admission_refusal, covers_pchannel
from broker.core.log.log_end import LogEnd
from broker.core.log.numbered_producers import GroupSequences
from broker.core.log.record_drafts import (
    RecordDraft,
    WriterState,
    commit_draft,
    internal_draft,
    place_drafts,
    rollback_drafts,
    unseen_draft,
    whole_drafts,
)
from broker.core.segments.segment_assigner import SegmentAssigner
from broker.core.txn.txn_session import TxnScope, TxnSession, undecided_refusal
from broker.core.txn.whole_txns import repeated, whole_refusal
from broker.model.batch import NewBatch, ticks_of
from broker.model.failure import Refusal
from broker.model.groups.consumer_group import GroupKey
from broker.model.ids import SegmentId, TimeTick
from broker.model.message import (
    BODY_TYPES,
    COMPACTION,
    EXCLUSIVE_TYPES,
    GROUP_CHANGE,
    PURGE,
    RELEASED,
    Appended,
    AppendedFlush,
    MessageType,
    NewMessage,
    NewRun,
)
from broker.model.producer_numbers import ProducerPart
from broker.model.record import Record
from broker.value import value

_OF_LOG = frozenset({COMPACTION, GROUP_CHANGE, PURGE, RELEASED})
_ALONE = EXCLUSIVE_TYPES | _OF_LOG
"""Types that share no record with other messages."""


@value
class Sequenced:
    """`outcomes[i]` is that of `messages[i]`; Appended ones hold once `records` are durable."""

    records: tuple[Record, ...]
    outcomes: tuple[Appended | Refusal, ...]
    end: LogEnd


def sequence(
    messages: Sequence[NewMessage],
    first_tick: TimeTick,
    end: LogEnd,
    admission: AdmissionPolicy,
    state: WriterState,
    assigner: SegmentAssigner | None = None,
) -> Sequenced:
    """Sequence a group with the ticks `first_tick`, `first_tick + 1`, …, one for each message.

    A batch or a run takes one tick for each of its messages; its outcome is that of its first one.

    The caller reserves `transactions.rollbacks_due(messages)` ticks more, and with an `assigner`
    its `records_due` as well. A message whose barrier tick is not below `first_tick` is refused:
    the caller reserves ticks above every barrier that the oracle has issued (`barrier_of`).
    """
    assert first_tick > end.last_tick, (first_tick, end.last_tick)
    transactions = state.transactions
    due = transactions.rollbacks_due(messages)
    ours = 0 if assigner is None else assigner.records_due
    latest = TimeTick(first_tick + sum(map(ticks_of, messages)) + due + ours)
    group = _Group(messages, (first_tick, latest), admission, state, assigner)
    flushes = [] if assigner is None else [internal_draft(each) for each in assigner.flushes()]
    for index, message in enumerate(messages):
        group.admit(index, message)
    drafts = [
        *flushes,
        *(rollback_drafts(transactions.take_expired(due)) if due else ()),
        *group.drafts,
        *group.begins,
    ]
    records, end = place_drafts(drafts, first_tick, end, state, messages, group.outcomes)
    # After the placing, because the message that is repeated may be in this group.
    for index, session in group.repeats:
        group.outcomes[index] = session.answer_to(messages[index])
        assert group.outcomes[index] is not None, messages[index]
    for index, session in group.whole_repeats:
        bodies, commit = group.outcomes[index], session.outcome
        assert isinstance(bodies, Appended), bodies
        assert commit is not None, "it was placed in this group or before"
        group.outcomes[index] = replace(bodies, tick=commit.tick)
    for index, same in group.same_as:
        group.outcomes[index] = group.outcomes[same]
    if assigner is not None:
        for index, segment_ids in assigner.flushed.items():
            group.outcomes[index] = _with_flushed(group.outcomes[index], segment_ids)
    return Sequenced(records, tuple([outcome for outcome in group.outcomes if outcome]), end)


def barrier_of(messages: Sequence[NewMessage]) -> TimeTick:
    """The tick that all ticks of the group must exceed; 0 for no constraint."""
    return TimeTick(max([message.barrier_tick for message in messages], default=0))


class _Group:
    """One group: admits its messages in order and collects them into drafts."""

    _acked: dict[GroupKey, TickSpans] | None = None
    """What transactions acknowledge in it; made when one does, as most groups have none."""

    def __init__(
        self,
        messages: Sequence[NewMessage],
        ticks: tuple[TimeTick, TimeTick],
        admission: AdmissionPolicy,
        state: WriterState,
        assigner: SegmentAssigner | None,
    ) -> None:
        """`ticks`: the first tick of the group, and an exclusive upper bound of all."""
        self.messages = messages
        self.outcomes: list[Appended | Refusal | None] = [None] * len(messages)
        self.drafts: list[RecordDraft] = []
        self.begins: list[RecordDraft] = []
        """Placed last, so that no exclusive message of the group lies within a transaction."""
        self.repeats: list[tuple[int, TxnSession]] = []
        self.whole_repeats: list[tuple[int, TxnSession]] = []
        self.same_as: list[tuple[int, int]] = []
        """Indexes of repeated batches, each with the index of the first one in the group."""
        self._first_tick, self._latest_tick = ticks
        self._admission = admission
        self._transactions = state.transactions
        self._numbers = GroupSequences(state.producers)
        self._groups = state.groups
        self._assigner = assigner
        self._growing: dict[str | int, RecordDraft] = {}

    def admit(self, index: int, message: NewMessage) -> None:
        """Check the message itself, then its collection, transaction and scope; then place it."""
        refusal = admission_refusal(message, self._first_tick, self._admission)
        # A batch may be a repeat, whose answer does not depend on the collection as it is now.
        if refusal is None and not isinstance(message, NewBatch):
            refusal = self._collection_refusal(index, message)
        if refusal is not None:
            self.outcomes[index] = refusal
        elif isinstance(message, NewBatch):
            self._admit_batch(index, message)
        elif message.txn is not None:
            self._admit_in_txn(index, message)
        elif message.type in _ALONE:
            self._admit_alone(index, message)
        else:
            self._place_with(message.vchannel, index, message, None)

    def _collection_refusal(self, index: int, message: NewMessage) -> Refusal | None:
        assigner = self._assigner
        if assigner is None or index not in assigner.effects:
            return None
        return assigner.refusal(index, message)

    def _admit_batch(self, index: int, batch: NewBatch) -> None:
        """Give the batch a record of its own, unless it repeats one that is stored.

        A repeat gets the first answer, whatever happened to its transaction or collection since,
        and is not counted in a segment again. A refused batch consumes no sequence numbers.
        """
        numbered, session = batch.part.producer, None
        if numbered is not None and self._is_repeat(index, batch, numbered):
            return
        refusal: Refusal | TxnSession | None = self._collection_refusal(index, batch)
        if refusal is None and batch.whole is not None:
            refusal = whole_refusal(batch, self._transactions)
        elif refusal is None and batch.txn is not None:
            refusal = self._transactions.admit(batch, self._latest_tick)
        if isinstance(refusal, Refusal):
            self.outcomes[index] = refusal
            return
        if batch.txn is not None:
            session = self._transactions.find(batch.txn.id)
            self._growing.pop(batch.txn.id, None)
        if numbered is not None:
            self._numbers.take(index, numbered, len(batch.sizes))
        # Later messages must not join a record that lies before this batch.
        self._growing.pop(batch.vchannel, None)
        draft = RecordDraft(batch.vchannel, batch.type, session)
        draft.batch = batch
        if self._assigner is not None and index in self._assigner.effects:
            draft.properties = self._placed(self._assigner, index, batch, session)
        draft.indexes.append(index)
        self.drafts += [draft] if batch.whole is None else whole_drafts(index, batch, draft)

    def _is_repeat(self, index: int, batch: NewBatch, numbered: ProducerPart) -> bool:
        """Whether the number is not new; then the batch has its outcome, or will get it."""
        earlier = self._numbers.look_up(numbered, len(batch.sizes))
        if isinstance(earlier, int):
            self.same_as.append((index, earlier))
            return True
        self.outcomes[index] = earlier
        if batch.whole is not None and isinstance(earlier, Appended):
            self._repeat_whole(index, batch, earlier)
        return earlier is not None

    def _repeat_whole(self, index: int, batch: NewBatch, earlier: Appended) -> None:
        """Answer a batch whose bodies are stored by its commit; place that if a crash lost it."""
        found = repeated(batch, earlier, self._transactions, self._latest_tick)
        if isinstance(found, Refusal):
            self.outcomes[index] = found
            return
        session, missing = found
        if missing:
            self.drafts.append(commit_draft(index, batch, session))
        else:
            self.whole_repeats.append((index, session))

    def _admit_in_txn(self, index: int, message: NewMessage) -> None:
        if message.stage is not None:
            self.drafts += rollback_drafts(self._transactions.supersede(message))
        # Judged by the largest tick it may get, so that no admitted message exceeds its lease.
        verdict = self._transactions.admit(message, self._latest_tick)
        assert message.txn is not None
        if isinstance(verdict, Refusal):
            self.outcomes[index] = verdict
        elif isinstance(verdict, TxnSession):
            self.repeats.append((index, verdict))
        elif message.type == MessageType.BEGIN_TXN:
            draft = RecordDraft(message.vchannel, message.type)
            draft.add(index, (message.body,))
            self.begins.append(draft)
        elif message.type in BODY_TYPES:
            session = self._transactions.find(message.txn.id)
            # Bodies of transactions that interleave gather in one record for each transaction.
            self._place_with(message.txn.id, index, message, session)
        elif message.type == GROUP_CHANGE:
            self._admit_ack(index, message)
        else:
            session = self._transactions.find(message.txn.id)
            self._place_with(message.vchannel, index, message, session)

    def _admit_ack(self, index: int, message: NewMessage) -> None:
        """Have its transaction acknowledge, unless the messages have another owner by now.

        The Group that took them from a lease has decided that; this holds whatever became of it.
        """
        change = decode_change(message.body)
        assert isinstance(change, AckedInTxn), change
        key = GroupKey(message.vchannel, change.name)
        self._acked = {} if self._acked is None else self._acked
        state, own = self._groups.groups.get(key), self._acked.setdefault(key, TickSpans())
        if state is None or not state.has_free(change.spans) or any(map(own.within, change.spans)):
            self.outcomes[index] = ack_refusal(change)
            return
        for span in change.spans:
            own.add(span)
        self.drafts.append(unseen_draft(index, message))

    def _admit_alone(self, index: int, message: NewMessage) -> None:
        """Give it a record of its own, after the transactions it ends and before later messages."""
        if message.type in _OF_LOG:  # they end none, and have no place among the others
            self.drafts.append(unseen_draft(index, message))
            return
        whole = covers_pchannel(message, self._admission.pchannel)
        scope = TxnScope() if whole else self._scope_of(index, message)
        prepared = self._transactions.prepared_in(scope)
        if prepared is not None:
            self.outcomes[index] = undecided_refusal(prepared)
            return
        failed = self._transactions.exclude(scope)
        self.drafts += rollback_drafts(failed)
        if whole:
            self._growing.clear()
        else:
            self._growing.pop(message.vchannel, None)
        if scope.only is not None:
            # Later bodies of the transactions that go on must not join a record that lies before.
            self._growing = {
                key: it for key, it in self._growing.items() if it.vchannel != message.vchannel
            }
        self._place_with(message.vchannel, index, message, None)
        self._growing.pop(message.vchannel)

    def _scope_of(self, index: int, message: NewMessage) -> TxnScope:
        only = None if self._assigner is None else self._assigner.ends(index, message)
        return TxnScope(message.vchannel, only)

    def _place_with(
        self, key: str | int, index: int, message: NewMessage, session: TxnSession | None
    ) -> None:
        assigner = self._assigner
        bodies: tuple[bytes, ...] = (message.body,)
        if isinstance(message, NewRun):
            # Not in a collection, or it was refused: nothing is written into its headers.
            bodies = message.bodies
        elif assigner is not None and index in assigner.effects:
            bodies = (self._placed(assigner, index, message, session),)
        draft = self._growing.get(key)
        if (
            draft is None
            or draft.session is not session
            or not draft.takes(message, bodies, self._admission)
        ):
            draft = self._growing[key] = RecordDraft(message.vchannel, message.type, session)
            self.drafts.append(draft)
        draft.add(index, bodies)

    def _placed(
        self, assigner: SegmentAssigner, index: int, message: NewMessage, session: TxnSession | None
    ) -> bytes:
        placed = assigner.place(index, message, None if session is None else session.context.id)
        if placed.before is not None:
            # Rows of the new segment must not join a record that lies before its CreateSegment.
            self._growing.clear()
            self.drafts.append(internal_draft(placed.before))
        return placed.body


def _with_flushed(
    outcome: Appended | Refusal | None, segment_ids: tuple[SegmentId, ...]
) -> AppendedFlush:
    assert isinstance(outcome, Appended), outcome
    return AppendedFlush(outcome.id, outcome.tick, outcome.last_confirmed_id, segment_ids)
