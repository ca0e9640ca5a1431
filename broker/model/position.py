"""Where a reader starts, what it wants to see, and how far it has read."""

from dataclasses import dataclass

from broker.model.ids import MessageId, TimeTick
from broker.value import value


@dataclass(frozen=True, slots=True)
class FromAll:
    """The first message the log still holds."""


@dataclass(frozen=True, slots=True)
class FromLatest:
    """Only what is appended after the reader was opened."""


@dataclass(frozen=True, slots=True)
class StartFrom:
    """The message with this id, inclusive."""

    id: MessageId


@dataclass(frozen=True, slots=True)
class StartAfter:
    """The message after this id."""

    id: MessageId


DeliverPolicy = FromAll | FromLatest | StartFrom | StartAfter


@dataclass(frozen=True, slots=True)
class TimeTickGt:
    """Only messages with a tick greater than this."""

    tick: TimeTick


@dataclass(frozen=True, slots=True)
class TimeTickGte:
    """Only messages with a tick not less than this."""

    tick: TimeTick


@dataclass(frozen=True, slots=True)
class MessageTypes:
    """Only these message types; system types always pass."""

    types: frozenset[int]


DeliverFilter = TimeTickGt | TimeTickGte | MessageTypes


@value
class ReadPosition:
    """How far a reader has read: everything below `next_id` and every tick up to `tick`.

    Except open transactions: their messages start at `open_id` and are delivered at their commit.
    `open_id` equals `next_id` without open transactions; None: not known yet. `inside` messages of
    the transaction that commits at `next_id` were already delivered. `partial`: the reader started
    at the first message that retention left, so it skips transactions whose begin was removed; for
    other readers such a transaction is lost data. `oldest`: nothing was read yet, and the reader
    takes whatever is left: it begins at the first message that the log holds by then. `purged`: a
    `partial` reader does not miss what was purged up to this tick, before it began.
    """

    next_id: MessageId
    tick: TimeTick = TimeTick(0)
    open_id: MessageId | None = None
    inside: int = 0
    partial: bool = False
    oldest: bool = False
    purged: TimeTick = TimeTick(0)
