"""What other actors and the edge ask of the Appender of a pchannel."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from actors import Request
from broker.core.segments.segment_sealing import SealReason
from broker.core.txn.txn_view import TxnView
from broker.model.batch import Durability
from broker.model.failure import Refusal
from broker.model.ids import MessageId, SegmentId, TimeTick
from broker.model.master.reservation import SegmentOrders
from broker.model.message import Appended, NewMessage
from broker.value import value

AppendOutcome = Appended | Refusal


@value
class PlacedApart:
    """The outcomes of a run whose messages are placed one by one: rows of a collection."""

    outcomes: tuple[AppendOutcome, ...]


RunOutcome = AppendOutcome | PlacedApart


@value
class AppendBatch(Request[tuple[RunOutcome, ...]]):
    """Append messages that take `ticks` ticks; answered with one outcome each, in order.

    The answer waits only for `durability`; all messages are written and synced in any case.
    Use `intake.append`, which limits the batch, counts `size_bytes` into the Backlog and maps actor
    errors to refusals. The Appender counts the bytes out.
    """

    messages: tuple[NewMessage, ...]
    size_bytes: int
    ticks: int
    durability: Durability = Durability.FSYNC


@dataclass(frozen=True, slots=True)
class CloseTick(Request[TimeTick | Refusal]):
    """Close a tick now; answered with the newest closed one, or why appends are refused."""


@dataclass(frozen=True, slots=True)
class SealOverdue:
    """A timer of the Appender: seal the segments of collections that are too old or idle."""


@dataclass(frozen=True, slots=True)
class SealSegments:
    """Seal those of these segments of collections that still grow."""

    ids: tuple[SegmentId, ...]
    why: SealReason


@dataclass(frozen=True, slots=True)
class ObeySegmentOrders:
    """Carry out what the master orders about growing segments."""

    orders: SegmentOrders


@dataclass(frozen=True, slots=True)
class Truncate:
    """Drop the segments below this id that retention allows to drop."""

    before_id: MessageId


@dataclass(frozen=True, slots=True)
class SealLog:
    """Start a new segment of the log, so that the active one can give space back."""


@dataclass(frozen=True, slots=True)
class DoAtRest(Request[Exception | None]):
    """Do this between two groups, while nobody appends; answered with the error it returns."""

    work: Callable[[], Awaitable[Exception | None]]


@dataclass(frozen=True, slots=True)
class ShowTxns(Request[tuple[TxnView, ...]]):
    """Every open transaction, oldest first."""


@dataclass(frozen=True, slots=True)
class ExpireTxns:
    """A transaction's lease seems over: roll back those whose lease is over by ticks."""


@dataclass(frozen=True, slots=True)
class FinishTxns(Request[None]):
    """Refuse new transactions; answered when none is open. Sent before the channel closes.

    The deadline of the request is the time clients have to finish; transactions still open then
    continue with the next owner.
    """


@dataclass(frozen=True, slots=True)
class ResumeTxns:
    """Undo FinishTxns: the channel stays open after all."""


TxnRequest = ShowTxns | ExpireTxns | FinishTxns | ResumeTxns
SealRequest = SealOverdue | SealSegments | ObeySegmentOrders
LogUpkeep = Truncate | SealLog
AppenderMessage = AppendBatch | CloseTick | SealRequest | LogUpkeep | DoAtRest | TxnRequest
