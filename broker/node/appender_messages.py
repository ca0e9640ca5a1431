"""What other actors and the edge ask of the Appender of a pchannel."""

from dataclasses import dataclass

from actors import Request
from broker.core.segments.segment_sealing import SealReason
from broker.core.txn.txn_view import TxnView
from broker.model.batch import Durability
from broker.model.failure import Refusal
from broker.model.ids import SegmentId, TimeTick
from broker.model.message import Appended, NewMessage

AppendOutcome = Appended | Refusal


@dataclass(frozen=True, slots=True)
class AppendBatch(Request[tuple[AppendOutcome, ...]]):
    """Append these, which take `ticks` ticks; answered with an outcome for each, in their order.

    The answer waits for no more than `durability`; all of them are stored and synced in any case.
    Go through `intake.append`, which bounds the messages, counts `size_bytes` into the Backlog and
    turns actor errors into refusals. The Appender counts them out when it answers.
    """

    messages: tuple[NewMessage, ...]
    size_bytes: int
    ticks: int
    durability: Durability = Durability.FSYNC


@dataclass(frozen=True, slots=True)
class CloseTick(Request[TimeTick | Refusal]):
    """Close a tick now. Answered with the newest one; a refusal when it writes no more."""


@dataclass(frozen=True, slots=True)
class SealOverdue:
    """A timer of an Appender: seal segments that are too old, or idle."""


@dataclass(frozen=True, slots=True)
class SealSegments:
    """An Appender is to seal those of these that still grow."""

    ids: tuple[SegmentId, ...]
    why: SealReason


@dataclass(frozen=True, slots=True)
class ShowTxns(Request[tuple[TxnView, ...]]):
    """Every open transaction as it is now, the oldest first."""


@dataclass(frozen=True, slots=True)
class ExpireTxns:
    """The lease of some transaction is over, as far as its actor can see: look, and end it."""


@dataclass(frozen=True, slots=True)
class FinishTxns(Request[None]):
    """Let no transaction begin any more; answered when none is open.

    The channel is about to be closed. Ask with the deadline that its clients have; what is open
    after that goes on with the next owner.
    """


@dataclass(frozen=True, slots=True)
class ResumeTxns:
    """Let transactions begin again: whoever wanted to close the channel is gone."""


TxnRequest = ShowTxns | ExpireTxns | FinishTxns | ResumeTxns
AppenderMessage = AppendBatch | CloseTick | SealOverdue | SealSegments | TxnRequest
