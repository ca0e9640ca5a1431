"""Where a reader starts, what it wants to see, and how far it has come."""

from dataclasses import dataclass

from broker.model.ids import MessageId, TimeTick


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


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """Everything below `next_id` is done with, and so is every tick up to `tick`.

    But for transactions that are open there: their messages lie from `open_id` on, and are handed
    over at their commit. `open_id` is `next_id` when there are none, and None when nobody has
    looked yet. `inside` messages of the transaction that commits at `next_id` were handed over.
    `partial`: it began at the first message that was left, so that a transaction whose begin was
    removed before is none of its business; to any other reader it is a loss.
    """

    next_id: MessageId
    tick: TimeTick = TimeTick(0)
    open_id: MessageId | None = None
    inside: int = 0
    partial: bool = False
