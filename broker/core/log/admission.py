"""Which messages a pchannel accepts: all checks that need nothing but the message itself.

Checks that depend on transactions, collections or producers are made by the sequencer.
"""

from dataclasses import dataclass

from broker.core.log.carried_types import is_carried
from broker.core.naming import belongs_to
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import PChannelName, TimeTick
from broker.model.message import (
    ALL_PCHANNEL_TYPES,
    BODY_TYPES,
    COMPACTION,
    GROUP_CHANGE,
    PREPARE_TXN,
    PURGE,
    RELEASED,
    MessageType,
    NewMessage,
    NewRun,
)

TXN_ENDS = (MessageType.COMMIT_TXN, MessageType.ROLLBACK_TXN)
_TAKES_SPACE = BODY_TYPES | {MessageType.BEGIN_TXN}
_TXN_STEPS = frozenset({MessageType.BEGIN_TXN, PREPARE_TXN, *TXN_ENDS})


@dataclass(frozen=True, slots=True)
class AdmissionPolicy:
    """What one pchannel accepts. `closed`: if set, the refusal of every message; `full`: of those
    that take space: rows, and begins of transactions.

    The limits of a record bound what a reader holds at once; a single message may exceed them.
    """

    pchannel: PChannelName
    message_bytes_max: int
    record_bytes_max: int = 1024 * 1024
    record_messages_max: int = 4096
    closed: Refusal | None = None
    full: Refusal | None = None


def admission_refusal(
    message: NewMessage, first_tick: TimeTick, admission: AdmissionPolicy
) -> Refusal | None:
    """Why the message itself cannot be appended, checked in this order; None if it can."""
    if admission.closed is not None:
        return admission.closed
    if admission.full is not None and message.type in _TAKES_SPACE:
        return admission.full
    size = max(message.sizes) if isinstance(message, NewRun) else message.size
    if size > admission.message_bytes_max and not (_is_word(message) or message.type == RELEASED):
        return _never(
            f"message of {size} bytes exceeds the limit of"
            f" {admission.message_bytes_max} bytes; split it"
        )
    if not is_carried(message.type) and not (_is_prepare(message) or _is_of_log(message)):
        return _never(f"a log does not take messages of type {message.type} from outside")
    if message.txn is None and message.type in _TXN_STEPS:
        return Refusal(StreamingCode.INVALID_ARGUMENT, "transaction ID is missing")
    if message.vchannel and not belongs_to(message.vchannel, admission.pchannel):
        return _never(f"vchannel {message.vchannel!r} is not on pchannel {admission.pchannel!r}")
    if message.barrier_tick >= first_tick:
        return Refusal(
            StreamingCode.INVALID_ARGUMENT,
            f"barrier tick {message.barrier_tick} is ahead of the oracle, which is at"
            f" {first_tick}; a barrier must be a tick that was issued",
        )
    return None


def _is_prepare(message: NewMessage) -> bool:
    return message.type == PREPARE_TXN and _is_word(message)


def _is_of_log(message: NewMessage) -> bool:
    # Only parts of the node make these; the edge refuses the types.
    if message.type in (PURGE, COMPACTION):
        return bool(message.vchannel) and message.txn is None
    return message.type in (GROUP_CHANGE, RELEASED) and bool(message.vchannel)


def _is_word(message: NewMessage) -> bool:
    """Whether this is a coordinator's command to a staged transaction: it has a stage, no begin.

    Its size is not checked: refusing it could leave a batch visible in part.
    """
    return message.stage is not None and message.type != MessageType.BEGIN_TXN


def _never(cause: str) -> Refusal:
    # The only code on which no Milvus client retries at once.
    return Refusal(StreamingCode.UNRECOVERABLE, cause)


def covers_pchannel(message: NewMessage, pchannel: PChannelName) -> bool:
    """Whether an exclusive message covers every vchannel of the pchannel."""
    return (
        message.pchannel_level
        or message.type in ALL_PCHANNEL_TYPES
        or message.vchannel in ("", pchannel)
    )
