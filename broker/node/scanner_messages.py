"""What the edge and the tail tell the Scanner of one consumer."""

from dataclasses import dataclass

from actors import Request
from broker.core.log.delivery import DeliveredItem
from broker.model.failure import Refusal
from broker.model.message import ClosedTick
from broker.model.position import ReadPosition


@dataclass(frozen=True, slots=True)
class Delivery:
    """What one Pull gives.

    `items`: messages in tick order, and persisted ticks among them, each exactly once.
    `tick`: an announced (not persisted) tick after all of them, or None. Both may be empty.
    `cursor`: what to pull next.
    """

    items: tuple[DeliveredItem, ...]
    tick: ClosedTick | None
    cursor: ReadPosition


@dataclass(frozen=True, slots=True)
class Pull(Request[Delivery | Refusal]):
    """Give up to about `bytes_max` bytes of message bodies from `cursor` on (one message at least).

    Answered when there is something, else with an announced tick, else empty after about a second:
    ask with a deadline of at least 5 s. The next Pull carries the cursor of the answer; a Scanner
    remembers no position, so an unanswered Pull is simply asked again. One Pull at a time.
    """

    cursor: ReadPosition
    bytes_max: int


@dataclass(frozen=True, slots=True)
class Wake:
    """Something new may be readable: the tail grew, or a tick was closed."""


@dataclass(frozen=True, slots=True)
class CloseScanner:
    """The consumer is gone."""


ScannerMessage = Pull | Wake | CloseScanner
