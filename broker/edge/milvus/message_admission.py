"""Decide which produced messages an Appender takes, and say why the others are refused.

A message's bytes stay as they are, except that a message without a header property gets an empty
one. Whether a transaction exists is for the Appender to say.
"""

from functools import lru_cache
from typing import Final

from broker.codec.stored_stages import stage_of
from broker.core.log.carried_types import client_refusal
from broker.core.naming import new_vchannel_fault
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import PChannelName, TxnId
from broker.model.message import (
    BODY_TYPES,
    EXCLUSIVE_TYPES,
    TXN_TYPES,
    MessageType,
    NewMessage,
    NewRun,
)
from broker.model.stage import StageName
from broker.model.txn import TxnContext
from schemas.properties.keys import BARRIER_WAIT_MS, HEADER, PCHANNEL_LEVEL, TXN, BadProperty
from schemas.properties.txn_context import begin_keepalive_ms
from schemas.wire import Malformed, ScannedMessage, ScannedRun, stored_properties

EMPTY_HEADER: Final = b"\x1a\x06\x0a\x02_h\x12\x00"
"""The stored form of `_h` with no value: Milvus's consumers fail to decode a message without it."""

NEW_TXN: Final = TxnId(0)

VCHANNELS_REMEMBERED_MAX: Final = 4096
_TXN_LENGTH_MAX: Final = 128
"""Of a text that is remembered; those of clients have 28 characters."""
NOT_A_REPLICA: Final = "property _rh: this cluster is not a replica; append without it"


class MessageAdmission:
    """The checks of one Produce stream, whose pchannel is `pchannel`."""

    def __init__(self, pchannel: PChannelName, message_bytes_max: int) -> None:
        self._pchannel = pchannel
        self._message_bytes_max = message_bytes_max
        # The empty name stands for the whole pchannel.
        self._vchannels: set[str] = {""}

    def judge_run(self, run: ScannedRun) -> NewRun | None:
        """The run as an Appender takes it; None if its messages are to be judged one by one."""
        facts = run.facts
        # All that `judge` checks of a plain message. A vchannel is known from the second run on.
        if (
            facts.type in BODY_TYPES
            and facts.version > 0
            and facts.vchannel in self._vchannels
            and max(run.sizes) <= self._message_bytes_max
            and facts.txn is None
            and not facts.broadcast
            and not facts.replicate
            and not facts.barrier_tick
        ):
            bodies = run.bodies
            if not facts.has_header:
                bodies = [body + EMPTY_HEADER for body in bodies]
            return NewRun(
                facts.vchannel,
                facts.type,
                b"",
                sum(run.sizes),
                bodies=tuple(bodies),
                sizes=tuple(run.sizes),
            )
        return None

    def judge(self, message: ScannedMessage) -> NewMessage | Refusal:
        """The message as an Appender takes it, or the refusal for its producer."""
        return self._refusal(message) or self._with_properties(message)

    def _refusal(self, message: ScannedMessage) -> Refusal | None:
        code = StreamingCode
        if message.size > self._message_bytes_max:
            return Refusal(
                code.UNRECOVERABLE,
                f"the message has {message.size} bytes, the limit is {self._message_bytes_max};"
                " split it",
            )
        if message.type <= 0:
            return Refusal(code.INVALID_ARGUMENT, f"property _t is {_shown(message.type)}")
        if message.version <= 0:
            return Refusal(code.INVALID_ARGUMENT, f"property _v is {_shown(message.version)}")
        refusal = client_refusal(message.type)
        if refusal is not None:
            return refusal
        if message.barrier_tick < 0:
            return Refusal(code.INVALID_ARGUMENT, "property _btt is not a number in base 36")
        return _not_for_producers(message) or self._misplaced(message)

    def _misplaced(self, message: ScannedMessage) -> Refusal | None:
        if message.vchannel in self._vchannels:
            return None
        fault = new_vchannel_fault(message.vchannel, self._pchannel)
        return Refusal(StreamingCode.INVALID_ARGUMENT, fault) if fault else None

    def _with_properties(self, message: ScannedMessage) -> NewMessage | Refusal:
        """The message with what its further properties say: transaction, stage, pchannel level."""
        # Remembered, so that the next run of this vchannel passes the check of the common case.
        if len(self._vchannels) < VCHANNELS_REMEMBERED_MAX:
            self._vchannels.add(message.vchannel)
        txn: TxnContext | None = None
        stage: StageName | None = None
        pchannel_level = False
        try:
            if message.type == MessageType.BEGIN_TXN:
                # 0: the Appender assigns the ID.
                txn = TxnContext(NEW_TXN, _keepalive_ms(message))
                stage = stage_of(message.stored)
            elif message.txn is not None:
                short = len(message.txn) <= _TXN_LENGTH_MAX
                txn = (_remembered_txn if short else _txn)(message.txn)
            elif message.type in EXCLUSIVE_TYPES:
                pchannel_level = PCHANNEL_LEVEL.read(stored_properties(message.stored))
        except (BadProperty, Malformed) as error:
            return Refusal(StreamingCode.INVALID_ARGUMENT, str(error))
        return NewMessage(
            message.vchannel,
            message.type,
            _stored(message),
            message.size,
            message.barrier_tick,
            txn,
            pchannel_level,
            stage,
        )


def barrier_wait_s(message: NewMessage) -> float | Refusal | None:
    """How long it may wait for its barrier tick; None: its producer does not say."""
    try:
        wait_ms = BARRIER_WAIT_MS.read(stored_properties(message.body))
    except (BadProperty, Malformed) as error:
        return Refusal(StreamingCode.INVALID_ARGUMENT, str(error))
    return None if wait_ms is None else wait_ms / 1000


def _stored(message: ScannedMessage) -> bytes:
    return message.stored if message.has_header else message.stored + EMPTY_HEADER


def _txn(text: str) -> TxnContext:
    """Raises BadProperty."""
    context = TXN.decode(text)
    return TxnContext(TxnId(context.txn_id), context.keepalive_ms)


_remembered_txn = lru_cache(maxsize=1024)(_txn)
"""Every message of a transaction has the same text."""


def _keepalive_ms(begin: ScannedMessage) -> int:
    """The keepalive that a begin asks for; 0 for the default. Raises BadProperty, Malformed."""
    if begin.txn is not None:
        raise BadProperty(
            TXN.key, begin.txn, "a begin must not have it: the log assigns the transaction ID"
        )
    header = HEADER.read(stored_properties(begin.stored))
    return begin_keepalive_ms(header) if header else 0


def _not_for_producers(message: ScannedMessage) -> Refusal | None:
    """Refuse what producers may not send, and the end of a transaction that names none."""
    if message.type in TXN_TYPES and message.type != MessageType.BEGIN_TXN and message.txn is None:
        return Refusal(
            StreamingCode.INVALID_ARGUMENT, "property _tx, the transaction ID, is missing"
        )
    if message.broadcast:
        cause = "property _bh: only the coordinator appends copies of a broadcast; call Broadcast"
        return Refusal(StreamingCode.UNRECOVERABLE, cause)
    if message.replicate:
        return Refusal(
            StreamingCode.REPLICATE_VIOLATION,
            NOT_A_REPLICA,
        )
    return None


def _shown(number: int) -> str:
    """What is wrong with a scanned property: 0 stands for absent, below 0 for not a number."""
    return "not a decimal number" if number < 0 else "missing or 0"
