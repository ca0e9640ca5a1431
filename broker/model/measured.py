"""Counts of messages by span of ticks in coarse steps, and the tick chosen from them."""

from collections.abc import Mapping
from dataclasses import dataclass

from broker.model.ids import BroadcastId, MessageId, TimeTick
from broker.model.txn import TxnPart


@dataclass(frozen=True, slots=True)
class RecordHead:
    """What a stored record is, without what is in it.

    `size_bytes`: of its bodies as they are stored. `sizes` and `body` are the record's where its
    messages are in no batch and no transaction, so that each may be the copy of a broadcast, and
    of the commit of a transaction, which may be one of a batch; empty otherwise.
    """

    base_id: MessageId
    base_tick: TimeTick
    last_confirmed_id: MessageId
    messages: int
    kind: int
    vchannel: str
    size_bytes: int
    txn: TxnPart | None = None
    sizes: tuple[int, ...] = ()
    body: bytes = b""

    @property
    def next_id(self) -> MessageId:
        return MessageId(self.base_id + self.messages)

    @property
    def last_tick(self) -> TimeTick:
        return TimeTick(self.base_tick + self.messages - 1)


@dataclass(frozen=True, slots=True)
class SetMark:
    """What a message says of the set it belongs to: copies of a broadcast, or commits of a batch.

    `counts`: members on each vchannel; empty when only the `total` is known.
    """

    id: int
    total: int
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class SpanStep:
    """Messages with ticks in [first_tick, tick]; none lie between two steps.

    `rows` and `bytes` are cumulative: all from the begin of the span to the end of this step.
    """

    first_tick: TimeTick
    tick: TimeTick
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class AtomicMember:
    """One copy of a broadcast that has copies on `of` of the measured vchannels.

    Or one commit of a batch of staged rows that has `of` there: then the id is negative, and the
    transaction's id stands behind the vchannel's name, for there may be several on one.
    """

    id: BroadcastId
    vchannel: str
    tick: TimeTick
    of: int


@dataclass(frozen=True, slots=True)
class MeasuredChannel:
    """`steps` say all there is with ticks up to `exact`; beyond, nobody has looked."""

    steps: tuple[SpanStep, ...]
    exact: TimeTick


@dataclass(frozen=True, slots=True)
class MeasuredSpan:
    """A span of ticks on some vchannels, (after, until], as far as it was looked at."""

    after: TimeTick
    until: TimeTick
    channels: Mapping[str, MeasuredChannel]
    copies: tuple[AtomicMember, ...] = ()

    @property
    def exact(self) -> TimeTick:
        """The largest tick up to which all is known everywhere."""
        return min([it.exact for it in self.channels.values()], default=self.until)


@dataclass(frozen=True, slots=True)
class TickChoice:
    """A tick to stop at. `rows` and `bytes`: at most so many lie in (after, tick], everywhere."""

    tick: TimeTick
    rows: int
    bytes: int
