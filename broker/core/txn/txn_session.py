"""One transaction as the writer of its pchannel knows it, and how it is known again from the log.

It owns these values, and who may have the last word on a transaction: its own client, or, when it
is staged, the coordinator. It admits nothing by itself.
Next: broker/core/txn/transactions.py
"""

from dataclasses import dataclass

from broker.core.txn.txn_lease import is_over
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
    """One transaction. `outcome` is where its commit or rollback landed, `prepared` its prepare."""

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

    def part(self) -> TxnPart:
        """What the next record of it says."""
        return TxnPart(self.context.id, self.context.keepalive_ms, self.begin_id, self.bodies)

    def overdue(self, tick: TimeTick, age_ms_max: int) -> bool:
        """Whether its lease, or its life, is over at this tick."""
        return is_over(self.context, self.last_tick, tick, age_ms_max)

    def answer_to(self, message: NewMessage) -> AppendedInTxn | None:
        """Where the first of what is being repeated has landed, once it has a place."""
        return self.prepared if message.type == PREPARE_TXN else self.outcome

    def view(self) -> TxnView:
        """As it is now, for who watches it."""
        return TxnView(
            self.context,
            self.vchannel,
            self.last_tick,
            self.bodies,
            self.size_bytes,
            self.state,
            self.stage,
        )


def state_refusal(session: TxnSession, event: TxnEvent) -> Refusal | None:
    """What the table of states has against this event."""
    code = NEXT[session.state][event]
    if not isinstance(code, StreamingCode):
        return None
    name = f"transaction {session.context.id}"
    return Refusal(code, f"{name} is {session.state.value}: {event.value} cannot follow")


def sender_refusal(session: TxnSession, message: NewMessage) -> Refusal | None:
    """Why whoever sent this may not prepare or end the transaction.

    Of one that has ended the table of states says all there is to say.
    """
    plain = session.stage is None and message.stage is None
    if plain or session.state not in _UNDECIDED:
        return None
    name = f"transaction {session.context.id}"
    if session.stage is None:
        return _bad(f"{name} is no stage's: its own client commits it")
    if message.stage is None:
        return _client_refusal(session, message)
    if session.stage != message.stage:
        return _bad(f"{name} is of {session.stage}, not of {message.stage}")
    if message.type == MessageType.COMMIT_TXN and session.state is not TxnState.PREPARED:
        return _wrong(f"{name} was not prepared: a commit cannot follow")
    return None


def _client_refusal(session: TxnSession, message: NewMessage) -> Refusal | None:
    """A client may give up what it has staged, as long as no commit has taken hold of it."""
    name = f"transaction {session.context.id} of {session.stage}"
    if message.type != MessageType.ROLLBACK_TXN:
        return _bad(f"{name} is staged: only a commit of the whole batch makes it visible")
    if session.state is TxnState.PREPARED:
        return _wrong(f"{name} is being committed with its batch: a rollback cannot follow")
    return None


def undecided_refusal(session: TxnSession) -> Refusal:
    """Why an exclusive message may not come now."""
    return Refusal(
        StreamingCode.RESOURCE_ACQUIRED,
        f"transaction {session.context.id} on {session.vchannel} is being committed with its batch;"
        " try again in a moment",
    )


def finished_session(txn: FinishedTxn) -> TxnSession:
    """One that ended, as a snapshot remembers it."""
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
    """What was answered to whoever appended the one message of this record."""
    return AppendedInTxn(
        record.base_id, record.base_tick, record.last_confirmed_id, session.context
    )


def replayed_end(record: Record) -> TxnState:
    """A rollback of our own has no message in it."""
    if record.kind == MessageType.COMMIT_TXN:
        return TxnState.COMMITTED
    return TxnState.ROLLED_BACK if record.body else TxnState.EXPIRED


def unknown_txn(txn_id: TxnId, why: str) -> Refusal:
    """It cannot be committed any more, or was long ago."""
    return Refusal(StreamingCode.TRANSACTION_EXPIRED, f"transaction {txn_id} {why}")


def _bad(cause: str) -> Refusal:
    return Refusal(StreamingCode.INVALID_ARGUMENT, cause)


def _wrong(cause: str) -> Refusal:
    return Refusal(StreamingCode.INVALID_TRANSACTION_STATE, cause)
