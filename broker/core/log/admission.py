"""What one pchannel accepts now, and every reason to refuse a message that lies in the message.

It owns the order of these checks. What depends on transactions, collections or producers is asked
by the sequencer, of whoever knows.
Next: broker/core/log/sequencer.py
"""

from dataclasses import dataclass

from broker.core.naming import belongs_to
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import PChannelName, TimeTick
from broker.model.message import (
    ALL_PCHANNEL_TYPES,
    KNOWN_TYPES,
    PREPARE_TXN,
    SELF_CONTROLLED_TYPES,
    MessageType,
    NewMessage,
)

APPENDABLE_TYPES = frozenset(KNOWN_TYPES - SELF_CONTROLLED_TYPES - {MessageType.TXN})
"""What a client may append."""

TXN_ENDS = (MessageType.COMMIT_TXN, MessageType.ROLLBACK_TXN)
_TXN_STEPS = frozenset({MessageType.BEGIN_TXN, PREPARE_TXN, *TXN_ENDS})


@dataclass(frozen=True, slots=True)
class AdmissionPolicy:
    """What one pchannel accepts now. `closed`: the answer to everything, when it is not None.

    A record's limits keep what a reader must hold at once small; one message may exceed them.
    """

    pchannel: PChannelName
    message_bytes_max: int
    record_bytes_max: int = 1024 * 1024
    record_messages_max: int = 4096
    closed: Refusal | None = None


def admission_refusal(
    message: NewMessage, first_tick: TimeTick, admission: AdmissionPolicy
) -> Refusal | None:
    """Every reason to say no that lies in the message, in order."""
    if admission.closed is not None:
        return admission.closed
    if message.size > admission.message_bytes_max and not _is_word(message):
        return _never(
            f"a message of {message.size} bytes is over the limit of"
            f" {admission.message_bytes_max}; split it"
        )
    if message.type not in APPENDABLE_TYPES and not _is_prepare(message):
        return _type_refusal(message.type)
    if message.txn is None and message.type in _TXN_STEPS:
        return Refusal(StreamingCode.INVALID_ARGUMENT, "which transaction it is about is not said")
    if message.vchannel and not belongs_to(message.vchannel, admission.pchannel):
        return _never(f"vchannel {message.vchannel!r} is not on pchannel {admission.pchannel!r}")
    if message.barrier_tick >= first_tick:
        return Refusal(
            StreamingCode.INVALID_ARGUMENT,
            f"barrier tick {message.barrier_tick} lies ahead of the oracle, which is at"
            f" {first_tick}; a barrier must be a tick that was given out",
        )
    return None


def _is_prepare(message: NewMessage) -> bool:
    return message.type == PREPARE_TXN and _is_word(message)


def _is_word(message: NewMessage) -> bool:
    """Only the coordinator's word on a staged transaction has a stage and is no begin.

    Its size is no reason to refuse it: when the batch is decided, some of it may be visible.
    """
    return message.stage is not None and message.type != MessageType.BEGIN_TXN


def _type_refusal(kind: int) -> Refusal:
    if kind in KNOWN_TYPES:
        return _never(f"{MessageType(kind).name} messages are written by the log itself")
    return Refusal(StreamingCode.INNER, f"message type {kind} is not known")


def _never(cause: str) -> Refusal:
    return Refusal(StreamingCode.UNRECOVERABLE, cause)


def covers_pchannel(message: NewMessage, pchannel: PChannelName) -> bool:
    """Whether an exclusive message concerns every vchannel."""
    return (
        message.pchannel_level
        or message.type in ALL_PCHANNEL_TYPES
        or message.vchannel in ("", pchannel)
    )
