"""One transaction in the writer's memory, and who may end it.

A client ends its own transaction. A staged one is ended by the coordinator, except that its client
may abort it before it is prepared.
"""

from dataclasses import dataclass

from broker.core.txn.txn_lease import is_over
from broker.core.txn.txn_limits import TxnLimits
from broker.core.txn.txn_state import NEXT, TxnEvent, TxnState
from broker.core.txn.txn_view import TxnView
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import MessageId, TimeTick, TxnId
from broker.model.message import PREPARE_TXN, AppendedInTxn, MessageType, NewMessage
from broker.model.record import Record
from broker.model.snapshot import FinishedTxn, TxnEnd
from broker.model.stage import StageName
from broker.model.txn import TxnContext, TxnPart

_STATE_OF = {
    TxnEnd.COMMITTED: TxnState.COMMITTED,
    TxnEnd.ROLLED_BACK: TxnState.ROLLED_BACK,
    TxnEnd.EXPIRED: TxnState.EXPIRED,
}
_UNDECIDED = (TxnState.IN_FLIGHT, TxnState.PREPARED)


@dataclass(slots=True)
class TxnSession:
    """One transaction. `outcome`: where its commit or rollback is, `prepared`: its prepare."""

    context: TxnContext
    vchannel: str
    begin_id: MessageId
    last_tick: TimeTick
    bodies: int = 0
    size_bytes: int = 0
    state: TxnState = TxnState.IN_FLIGHT
    outcome: AppendedInTxn | None = None
    stage: StageName | None = None
    prepared: AppendedInTxn | None = None
    whole: bool = False
    """Begun and committed in one group: nobody watches it, as it is never open between groups."""

    def part(self) -> TxnPart:
        """The transaction's part of its next record."""
        return TxnPart(self.context.id, self.context.keepalive_ms, self.begin_id, self.bodies)

    def overdue(self, tick: TimeTick, age_ms_max: int) -> bool:
        """Whether its keepalive or maximum age is over at this tick."""
        return is_over(self.context, self.last_tick, tick, age_ms_max)

    def answer_to(self, message: NewMessage) -> AppendedInTxn | None:
        """The answer to a repeated message: where the first one was placed; None: not yet."""
        return self.prepared if message.type == PREPARE_TXN else self.outcome

    def view(self) -> TxnView:
        """The transaction as watchers see it."""
        return TxnView(
            self.context,
            self.vchannel,
            self.last_tick,
            self.bodies,
            self.size_bytes,
            self.state,
            self.stage,
        )


@dataclass(frozen=True, slots=True)
class TxnScope:
    """The transactions that an exclusive message is about.

    Those of `vchannel` ("": of the whole pchannel), or `only` some of them.
    """

    vchannel: str = ""
    only: frozenset[TxnId] | None = None

    def has(self, session: TxnSession) -> bool:
        if self.vchannel not in ("", session.vchannel):
            return False
        return self.only is None or session.context.id in self.only


def state_refusal(session: TxnSession, event: TxnEvent) -> Refusal | None:
    """Why the state table refuses this event; None if it does not."""
    code = NEXT[session.state][event]
    if not isinstance(code, StreamingCode):
        return None
    name = f"transaction {session.context.id}"
    return Refusal(code, f"{name} is {session.state.value}; {event.value} is not possible")


def sender_refusal(session: TxnSession, message: NewMessage) -> Refusal | None:
    """Why the sender of this message may not prepare or end the transaction; None if it may.

    For an ended transaction the state table decides alone.
    """
    plain = session.stage is None and message.stage is None
    if plain or session.state not in _UNDECIDED:
        return None
    name = f"transaction {session.context.id}"
    if session.stage is None:
        return _bad(f"{name} is not staged: its own client commits it")
    if message.stage is None:
        return _client_refusal(session, message)
    if session.stage != message.stage:
        return _bad(f"{name} belongs to {session.stage}, not to {message.stage}")
    if message.type == MessageType.COMMIT_TXN and session.state is not TxnState.PREPARED:
        return _wrong(f"{name} is not prepared; a commit is not possible")
    return None


def _client_refusal(session: TxnSession, message: NewMessage) -> Refusal | None:
    """A client may abort what it staged until the batch is prepared."""
    name = f"transaction {session.context.id} of {session.stage}"
    if message.type != MessageType.ROLLBACK_TXN:
        return _bad(f"{name} is staged; only the commit of the whole batch commits it")
    if session.state is TxnState.PREPARED:
        return _wrong(f"{name} is being committed with its batch; a rollback is not possible")
    return None


def no_room_refusal(session: TxnSession, open_bytes: int, limits: TxnLimits) -> Refusal:
    """A staged transaction ends only with its whole batch, so waiting may never make room."""
    cause = f"open transactions hold {open_bytes} of {limits.open_bytes_max} bytes"
    if session.stage is None:
        return Refusal(StreamingCode.INNER, f"{cause}; try again when one has ended")
    return Refusal(
        StreamingCode.UNRECOVERABLE,
        f"{cause} of this pchannel: make the batches smaller, spread them over more pchannels,"
        " or raise TIDEMARK_OPEN_TXN_BYTES_MAX",
    )


def undecided_refusal(session: TxnSession) -> Refusal:
    """The refusal of an exclusive message while a prepared transaction awaits its decision."""
    return Refusal(
        StreamingCode.RESOURCE_ACQUIRED,
        f"transaction {session.context.id} on {session.vchannel} is being committed with its batch;"
        " try again in a moment",
    )


def finished_session(txn: FinishedTxn) -> TxnSession:
    """An ended transaction from a snapshot."""
    return TxnSession(
        context=txn.outcome.txn,
        vchannel=txn.vchannel,
        begin_id=txn.begin_id,
        last_tick=txn.outcome.tick,
        bodies=txn.bodies,
        state=_STATE_OF[txn.end],
        outcome=txn.outcome,
    )


def outcome_of(record: Record, session: TxnSession) -> AppendedInTxn:
    """The answer to the append of the single message of this record."""
    return AppendedInTxn(
        record.base_id, record.base_tick, record.last_confirmed_id, session.context
    )


def replayed_end(record: Record) -> TxnState:
    """The state by an end record; a rollback that the log itself wrote has no body."""
    if record.kind == MessageType.COMMIT_TXN:
        return TxnState.COMMITTED
    return TxnState.ROLLED_BACK if record.body else TxnState.EXPIRED


def unknown_txn(txn_id: TxnId, why: str) -> Refusal:
    """The refusal for a transaction that is not known here."""
    return Refusal(StreamingCode.TRANSACTION_EXPIRED, f"transaction {txn_id} {why}")


def _bad(cause: str) -> Refusal:
    return Refusal(StreamingCode.INVALID_ARGUMENT, cause)


def _wrong(cause: str) -> Refusal:
    return Refusal(StreamingCode.INVALID_TRANSACTION_STATE, cause)
