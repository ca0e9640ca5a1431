"""The transactions of one pchannel as its writer knows them: admission, leases and limits.

It never assigns ids or ticks. The writer reports what was placed and what became durable, and asks
which transactions must be rolled back.

Why every end is a record: a transaction that expired, or that an exclusive message ended, gets a
rollback record like one that its client rolled back. So a transaction is open exactly until the log
has its commit or rollback, for readers and for the next owner alike, and only the writer needs to
know about leases.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from broker.core.naming import is_physical
from broker.core.txn.txn_lease import tick_after
from broker.core.txn.txn_limits import TxnLimits
from broker.core.txn.txn_session import (
    TxnScope,
    TxnSession,
    finished_session,
    no_room_refusal,
    outcome_of,
    replayed_end,
    sender_refusal,
    state_refusal,
    unknown_txn,
)
from broker.core.txn.txn_state import TxnEvent, TxnState, after
from broker.core.txn.txn_view import TxnView
from broker.model.batch import names_txn
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import MessageId, TimeTick, TxnId
from broker.model.message import (
    BODY_TYPES,
    EXCLUSIVE_TYPES,
    GROUP_CHANGE,
    PREPARE_TXN,
    AppendedInTxn,
    MessageType,
    NewMessage,
)
from broker.model.record import Record
from broker.model.snapshot import FinishedTxn
from broker.model.stage import StageName
from broker.model.txn import TxnContext

StageOf = Callable[[bytes], StageName | None]
"""Decodes the stage of a stored begin; None if it is not staged."""


def _no_stage(_: bytes) -> StageName | None:
    return None


_EVENT_OF = {
    MessageType.COMMIT_TXN: TxnEvent.COMMIT,
    MessageType.ROLLBACK_TXN: TxnEvent.ROLLBACK,
    PREPARE_TXN: TxnEvent.PREPARE,
}


class Transactions:
    """The transactions of one pchannel. Discard it if a write of what it admitted fails."""

    def __init__(self, limits: TxnLimits | None = None, stage_of: StageOf = _no_stage) -> None:
        self.limits = limits or TxnLimits()
        self._stage_of = stage_of
        self.closing = False
        """Refuse new transactions; open ones continue."""
        self._open: dict[TxnId, TxnSession] = {}  # in the order of their begins
        self._prepared: dict[TxnId, TxnSession] = {}
        self._ended: dict[TxnId, TxnSession] = {}
        self._expired: list[TxnSession] = []
        self._placed: list[TxnSession] = []
        self._begun_or_ended: dict[TxnId, TxnSession] = {}
        self._grown: dict[TxnId, TxnSession] = {}
        self._open_bytes = 0
        self._beginning = 0  # begins admitted but not yet placed: they count for `open_max`

    # ---- what is known ----------------------------------------------------------------------

    @property
    def open_count(self) -> int:
        return len(self._open)

    @property
    def prepared_count(self) -> int:
        """Open transactions that are prepared: only the coordinator's decision ends them."""
        return len(self._prepared)

    @property
    def open_bytes(self) -> int:
        """Bytes of bodies of open transactions."""
        return self._open_bytes

    @property
    def oldest_begin_id(self) -> MessageId | None:
        """The begin of the oldest open transaction; None without one."""
        return next((session.begin_id for session in self._open.values()), None)

    def find(self, txn_id: TxnId) -> TxnSession | None:
        """An open or remembered transaction; None if unknown."""
        return self._open.get(txn_id) or self._ended.get(txn_id)

    def views(self) -> tuple[TxnView, ...]:
        """Every open transaction, the oldest first."""
        return tuple([session.view() for session in self._open.values()])

    def unstored_ends(self) -> tuple[TxnView, ...]:
        """Transactions whose commit or rollback is placed and not durable yet."""
        return tuple([session.view() for session in self._placed])

    # ---- admission --------------------------------------------------------------------------

    def admit(self, message: NewMessage, tick: TimeTick) -> Refusal | TxnSession | None:
        """Admit a message of a transaction as of `tick`; a refusal changes nothing.

        None: place the message. A TxnSession: the message is a repeat, and its answer is that of
        `TxnSession.answer_to`, once the first one is placed.
        """
        assert message.txn is not None
        if message.type == MessageType.BEGIN_TXN:
            return self._admit_begin(message.vchannel, message.txn.keepalive_ms)
        session = self.find(message.txn.id)
        if session is None:
            return unknown_txn(message.txn.id, "is unknown: it ended, or never began here")
        if session.vchannel != message.vchannel:
            return _bad(
                f"transaction {message.txn.id} is on vchannel {session.vchannel!r},"
                f" not on {message.vchannel!r}"
            )
        if session.state is TxnState.IN_FLIGHT and self._overdue(session, tick):
            self._expire(session)
        event = _EVENT_OF.get(message.type)
        if event is None:
            return self._admit_body(session, message)
        return self._admit_command(session, message, event)

    def prepared_in(self, scope: TxnScope) -> TxnSession | None:
        """A prepared transaction in this scope; None without one.

        An exclusive message must wait for the coordinator's decision: it may not lie between the
        bodies of a transaction and its commit.
        """
        waiting = (it for it in self._prepared.values() if it.state is TxnState.PREPARED)
        return next((it for it in waiting if scope.has(it)), None)

    def exclude(self, scope: TxnScope) -> list[TxnSession]:
        """An exclusive message was admitted: end the transactions in flight in its scope.

        Their rollback records go right before the message.
        """
        failed = [it for it in self._in_flight() if scope.has(it)]
        for session in failed:
            session.state = after(session.state, TxnEvent.EXCLUDE)
        return failed

    def supersede(self, begin: NewMessage) -> list[TxnSession]:
        """End the transactions that an app staged in an earlier attempt at what it stages now.

        They are never committed: a batch that is being committed is prepared, and those in flight
        are not. Their rollback records go before the begin.
        """
        superseded = self._superseded(begin)
        for session in superseded:
            session.state = after(session.state, TxnEvent.EXCLUDE)
        return superseded

    def expire(self, tick: TimeTick) -> None:
        """End the transactions whose lease is over at this tick."""
        for session in self._in_flight():
            if self._overdue(session, tick):
                self._expire(session)

    def rollbacks_due(self, messages: Sequence[NewMessage]) -> int:
        """An upper bound of the rollback records that the log adds to these messages.

        Transactions that an exclusive message ends must be rolled back in the same group. So must
        those that one of these messages finds expired, because its refusal must hold for the next
        owner of the log too, and those that a begin supersedes, to make room for its bodies.
        """
        if not self._open:
            return 0
        if not EXCLUSIVE_TYPES.isdisjoint([message.type for message in messages]):
            return len(self._open)
        of_txns = [message for message in messages if names_txn(message)]
        superseded = [it for each in of_txns if each.stage for it in self._superseded(each)]
        return min(len(self._open), len(self._expired) + len(of_txns) + len(superseded))

    def take_expired(self, count_max: int) -> list[TxnSession]:
        """The expired transactions to roll back now; they stay open until the record is placed."""
        dead = self._expired[:count_max]
        del self._expired[:count_max]
        return dead

    # ---- placement and durability -----------------------------------------------------------

    def begun(
        self, message: NewMessage, id: MessageId, tick: TimeTick, *, whole: bool = False
    ) -> TxnSession:
        """An admitted begin was placed; its tick becomes the transaction's id. See `TxnSession`."""
        assert message.txn is not None
        asked_ms = message.txn.keepalive_ms or self.limits.keepalive_default_ms
        keepalive_ms = min(asked_ms, self.limits.keepalive_max_ms)
        if message.stage is not None:
            idle_ms = self.limits.stage_idle_ms
            keepalive_ms = min(message.txn.keepalive_ms or idle_ms, idle_ms)
        context = TxnContext(TxnId(tick), keepalive_ms)
        session = TxnSession(context, message.vchannel, id, tick, stage=message.stage, whole=whole)
        self._open[context.id] = session
        if whole:
            session.state = after(session.state, TxnEvent.COMMIT)
        else:
            self._begun_or_ended[context.id] = session
            self._beginning -= 1
        return session

    def grown(self, session: TxnSession, bodies: int, tick: TimeTick) -> None:
        """Admitted bodies, or an acknowledgement, were placed, the last of them at `tick`."""
        session.bodies += bodies
        session.last_tick = tick
        self._grown[session.context.id] = session

    def prepared(self, session: TxnSession, outcome: AppendedInTxn) -> None:
        """The admitted prepare was placed."""
        session.prepared = outcome
        session.last_tick = outcome.tick
        self._grown[session.context.id] = session

    def ended(self, session: TxnSession, outcome: AppendedInTxn) -> None:
        """The commit or rollback was placed: the transaction is not open any more."""
        session.outcome = outcome
        session.last_tick = outcome.tick
        del self._open[session.context.id]
        self._open_bytes -= session.size_bytes
        self._ended[session.context.id] = session
        if not session.whole:
            self._begun_or_ended[session.context.id] = session
        self._grown.pop(session.context.id, None)
        self._prepared.pop(session.context.id, None)
        self._placed.append(session)
        self._forget(outcome.tick)

    def stored(self) -> tuple[TxnSession, ...]:
        """What was placed is durable; returns the transactions that it ended."""
        resolved, self._placed = self._placed, []
        for session in resolved:
            session.state = after(session.state, TxnEvent.STORED)
        return tuple(resolved)

    @property
    def grown_count(self) -> int:
        """Open transactions that have got bodies since the last `take_grown`."""
        return len(self._grown)

    def take_begun_or_ended(self) -> tuple[TxnView, ...]:
        """The transactions that began or ended since the last call."""
        if not self._begun_or_ended:
            return ()
        turned, self._begun_or_ended = self._begun_or_ended, {}
        return tuple([session.view() for session in turned.values()])

    def take_grown(self) -> tuple[TxnView, ...]:
        """The open transactions that have got bodies since the last call."""
        moved, self._grown = self._grown, {}
        return tuple([session.view() for session in moved.values()])

    def _superseded(self, message: NewMessage) -> list[TxnSession]:
        stage = message.stage
        if stage is None or message.type != MessageType.BEGIN_TXN:
            return []
        return [
            it for it in self._in_flight() if it.stage is not None and stage.supersedes(it.stage)
        ]

    def _admit_begin(self, vchannel: str, keepalive_ms: int) -> Refusal | None:
        if is_physical(vchannel):
            return _bad(f"a transaction needs a vchannel, not {vchannel!r}")
        if keepalive_ms < 0:
            return _bad(f"a keepalive of {keepalive_ms} ms; it must be 0 (the default) or more")
        if self.closing:
            return Refusal(
                StreamingCode.TRANSACTION_EXPIRED,
                "the channel is being closed: no new transaction can begin",
            )
        if len(self._open) + self._beginning >= self.limits.open_max:
            cause = f"{len(self._open)} transactions are open, the limit is {self.limits.open_max}"
            return Refusal(StreamingCode.INNER, f"{cause}; try again later")
        self._beginning += 1
        return None

    def _admit_body(self, session: TxnSession, message: NewMessage) -> Refusal | None:
        if message.type not in BODY_TYPES:
            # What a group has acknowledged in it takes no room among its bodies.
            if message.type == GROUP_CHANGE:
                return state_refusal(session, TxnEvent.BODY)
            return _bad(f"a message of type {message.type} cannot be part of a transaction")
        refusal = state_refusal(session, TxnEvent.BODY)
        if refusal is not None:
            return refusal
        if session.size_bytes + message.size > self.limits.txn_bytes_max:
            cause = f"transaction {session.context.id} would exceed {self.limits.txn_bytes_max}"
            return Refusal(StreamingCode.UNRECOVERABLE, f"{cause} bytes; commit earlier")
        if self._open_bytes + message.size > self.limits.open_bytes_max:
            return no_room_refusal(session, self._open_bytes, self.limits)
        session.size_bytes += message.size
        self._open_bytes += message.size
        return None

    def _admit_command(
        self, session: TxnSession, message: NewMessage, event: TxnEvent
    ) -> Refusal | TxnSession | None:
        refusal = sender_refusal(session, message) or state_refusal(session, event)
        if refusal is not None:
            return refusal
        before, session.state = session.state, after(session.state, event)
        if session.state is TxnState.PREPARED:
            self._prepared[session.context.id] = session
        return session if session.state is before else None

    def _overdue(self, session: TxnSession, tick: TimeTick) -> bool:
        return session.overdue(tick, self.limits.age_of(session.stage))

    def _expire(self, session: TxnSession) -> None:
        session.state = after(session.state, TxnEvent.EXPIRE)
        self._expired.append(session)

    def _in_flight(self) -> Iterator[TxnSession]:
        return (it for it in self._open.values() if it.state is TxnState.IN_FLIGHT)

    def _forget(self, tick: TimeTick) -> None:
        """Forget old ends; a transaction that ended at `tick` itself stays."""
        ended, limits = self._ended, self.limits
        while True:
            oldest = next(iter(ended.values()))
            fresh = tick < tick_after(oldest.last_tick, limits.finished_ms)
            if fresh and len(ended) <= max(1, limits.finished_max):
                return
            del ended[oldest.context.id]

    # ---- taking over ------------------------------------------------------------------------

    def replay(self, record: Record) -> None:
        """Learn from a durable record of an earlier writer; call it in log order.

        Bodies and ends of a transaction whose begin was not replayed are skipped.
        """
        part = record.txn
        if part is None:
            return
        if record.kind == MessageType.BEGIN_TXN:
            context = TxnContext(part.id, part.keepalive_ms)
            session = TxnSession(context, record.vchannel, part.begin_id, record.last_tick)
            session.stage = self._stage_of(record.body)
            self._open[part.id] = session
            return
        found = self._open.get(part.id)
        if found is not None:
            self._replay_more(found, record)

    def _replay_more(self, session: TxnSession, record: Record) -> None:
        if record.kind in BODY_TYPES:
            session.bodies += len(record.sizes)
            session.size_bytes += record.body_bytes
            session.last_tick = record.last_tick
            self._open_bytes += record.body_bytes
        elif record.kind == PREPARE_TXN:
            session.state = TxnState.PREPARED
            self._prepared[session.context.id] = session
            self.prepared(session, outcome_of(record, session))
        else:
            session.state = replayed_end(record)
            self.ended(session, outcome_of(record, session))

    def remember(self, finished: Iterable[FinishedTxn]) -> None:
        """Replace the remembered ended transactions with these, in this order."""
        self._ended = {each.outcome.txn.id: finished_session(each) for each in finished}
        self._begun_or_ended.clear()

    def abort(self, txn_ids: Iterable[TxnId]) -> None:
        """Abort those that are in flight, because they may have lost bodies.

        A prepared one is left to the coordinator. If it lost bodies, its readers notice that its
        commit counts more bodies than they have read.
        """
        for txn_id in txn_ids:
            session = self._open.get(txn_id)
            if session is not None and session.state is TxnState.IN_FLIGHT:
                self._expire(session)

    def renew(self, tick: TimeTick) -> None:
        """Restart every lease at `tick`: clients could not reach the log before."""
        self._placed.clear()  # replayed ends are durable already
        for session in self._open.values():
            session.last_tick = tick


def _bad(cause: str) -> Refusal:
    return Refusal(StreamingCode.INVALID_ARGUMENT, cause)
