"""Admits a group of messages and gives them ids and time ticks, both in one order.

It owns the write path's decision and nothing else: ticks come in, records and outcomes go out.
Why records: messages of one group that share vchannel and type are stored as one record, which
makes storing and skipping cheap. Order within a vchannel is kept; appends in flight together on
different vchannels never had a promised order.
Why ids and ticks in one order: the last confirmed id of a message is then the smaller of its own
id and the begin of the oldest open transaction (facts, wire 4.2).
Next: broker/core/delivery.py
"""

from collections.abc import Sequence
from dataclasses import dataclass

from broker.core.naming import belongs_to
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import MessageId, PChannelName, Term, TimeTick
from broker.model.message import (
    KNOWN_TYPES,
    SELF_CONTROLLED_TYPES,
    TXN_TYPES,
    Appended,
    MessageType,
    NewMessage,
)
from broker.model.record import Record

APPENDABLE_TYPES = frozenset(KNOWN_TYPES - SELF_CONTROLLED_TYPES - TXN_TYPES)
"""What a client may append as it is."""


@dataclass(frozen=True, slots=True)
class Admission:
    """What one pchannel accepts now. `closed`: the answer to everything, when it is not None.

    A record's limits keep what a reader must hold at once small; one message may exceed them.
    """

    pchannel: PChannelName
    message_bytes_max: int
    record_bytes_max: int = 1024 * 1024
    record_messages_max: int = 4096
    closed: Refusal | None = None


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Where the log goes on. `open_txn_id`: the begin of the oldest unresolved transaction."""

    term: Term
    next_id: MessageId
    last_tick: TimeTick
    open_txn_id: MessageId | None = None


@dataclass(frozen=True, slots=True)
class Sequenced:
    """`outcomes[i]` is for `messages[i]`; the Appended ones hold once `records` are durable."""

    records: tuple[Record, ...]
    outcomes: tuple[Appended | Refusal, ...]
    end: LogEnd


def sequence(
    messages: Sequence[NewMessage], first_tick: TimeTick, end: LogEnd, admission: Admission
) -> Sequenced:
    """Sequence a group with the ticks `first_tick`, `first_tick + 1`, …, one for each message.

    A message whose barrier tick is not below `first_tick` is refused: the caller brings ticks
    past every barrier that the oracle knows (`barrier_of`).
    """
    assert first_tick > end.last_tick, (first_tick, end.last_tick)
    outcomes: list[Appended | Refusal | None] = [None] * len(messages)
    runs: list[_Run] = []
    growing: dict[str, _Run] = {}
    for index, message in enumerate(messages):
        refusal = _refusal(message, first_tick, admission)
        if refusal is not None:
            outcomes[index] = refusal
            continue
        run = growing.get(message.vchannel)
        if run is None or not run.takes(message, admission):
            run = growing[message.vchannel] = _Run(message.vchannel, message.type)
            runs.append(run)
        run.add(index, message.body)
    records = _place(runs, first_tick, end, outcomes)
    return Sequenced(
        records, tuple([outcome for outcome in outcomes if outcome]), end_after(records, end)
    )


def time_tick_record(tick: TimeTick, end: LogEnd) -> Record:
    """The record that says: every tick up to `tick` is closed."""
    assert tick > end.last_tick, (tick, end.last_tick)
    return Record(
        term=end.term,
        base_id=end.next_id,
        base_tick=tick,
        last_confirmed_id=_last_confirmed(end.next_id, end),
        kind=MessageType.TIME_TICK,
        vchannel="",
        sizes=(0,),
        body=b"",
    )


def end_after(records: Sequence[Record], end: LogEnd) -> LogEnd:
    """Where the log goes on after these records."""
    if not records:
        return end
    last = records[-1]
    return LogEnd(end.term, last.next_id, last.last_tick, end.open_txn_id)


def barrier_of(messages: Sequence[NewMessage]) -> TimeTick:
    """The tick that every tick given to the group must exceed; 0 when any will do."""
    return TimeTick(max([message.barrier_tick for message in messages], default=0))


class _Run:
    """A record in the making: indexes into the group, and their bodies."""

    __slots__ = ("bodies", "body_bytes", "indexes", "kind", "vchannel")

    def __init__(self, vchannel: str, kind: int) -> None:
        self.vchannel, self.kind = vchannel, kind
        self.indexes: list[int] = []
        self.bodies: list[bytes] = []
        self.body_bytes = 0

    def takes(self, message: NewMessage, admission: Admission) -> bool:
        return (
            message.type == self.kind
            and self.body_bytes + len(message.body) <= admission.record_bytes_max
            and len(self.indexes) < admission.record_messages_max
        )

    def add(self, index: int, body: bytes) -> None:
        self.indexes.append(index)
        self.bodies.append(body)
        self.body_bytes += len(body)


def _refusal(message: NewMessage, first_tick: TimeTick, admission: Admission) -> Refusal | None:
    """Every reason to say no, in order: closed, size, type, transaction, name, barrier."""
    if admission.closed is not None:
        return admission.closed
    if message.size > admission.message_bytes_max:
        return _never(
            f"a message of {message.size} bytes is over the limit of"
            f" {admission.message_bytes_max}; split it"
        )
    if message.type not in APPENDABLE_TYPES:
        return _type_refusal(message.type)
    if message.in_txn:
        return _never("transactions are not supported yet; append without one")
    if message.vchannel and not belongs_to(message.vchannel, admission.pchannel):
        return _never(f"vchannel {message.vchannel!r} is not on pchannel {admission.pchannel!r}")
    if message.barrier_tick >= first_tick:
        return Refusal(
            StreamingCode.INVALID_ARGUMENT,
            f"barrier tick {message.barrier_tick} lies ahead of the oracle, which is at"
            f" {first_tick}; a barrier must be a tick that was given out",
        )
    return None


def _type_refusal(kind: int) -> Refusal:
    if kind in TXN_TYPES:
        return _never("transactions are not supported yet; append without one")
    if kind in KNOWN_TYPES:
        return _never(f"{MessageType(kind).name} messages are written by the log itself")
    return Refusal(StreamingCode.INNER, f"message type {kind} is not known")


def _never(cause: str) -> Refusal:
    return Refusal(StreamingCode.UNRECOVERABLE, cause)


def _place(
    runs: Sequence[_Run],
    first_tick: TimeTick,
    end: LogEnd,
    outcomes: list[Appended | Refusal | None],
) -> tuple[Record, ...]:
    records: list[Record] = []
    next_id, next_tick = end.next_id, first_tick
    for run in runs:
        confirmed = _last_confirmed(next_id, end)
        record = Record(
            term=end.term,
            base_id=next_id,
            base_tick=next_tick,
            last_confirmed_id=confirmed,
            kind=run.kind,
            vchannel=run.vchannel,
            sizes=tuple(map(len, run.bodies)),
            body=b"".join(run.bodies),
        )
        confirms_itself = confirmed == next_id
        for index in run.indexes:
            outcomes[index] = Appended(
                next_id, next_tick, next_id if confirms_itself else confirmed
            )
            next_id, next_tick = MessageId(next_id + 1), TimeTick(next_tick + 1)
        records.append(record)
    return tuple(records)


def _last_confirmed(own_id: MessageId, end: LogEnd) -> MessageId:
    return own_id if end.open_txn_id is None else min(own_id, end.open_txn_id)
