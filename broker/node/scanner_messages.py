"""What the edge and the tail tell the Scanner of one consumer."""

from dataclasses import dataclass

from actors import Request
from broker.core.log.delivery import DeliveredItem
from broker.model.failure import Refusal
from broker.model.message import ClosedTick
from broker.model.position import ReadPosition
from broker.value import value


@value
class Delivery:
    """The answer to one Pull.

    `items`: messages and stored ticks in tick order, each exactly once.
    `tick`: a closed tick that is not stored, after all items, or None. Both may be empty.
    `cursor`: for the next Pull.
    """

    items: tuple[DeliveredItem, ...]
    tick: ClosedTick | None
    cursor: ReadPosition


@value
class Pull(Request[Delivery | Refusal]):
    """About `bytes_max` bytes of message bodies from `cursor` on, at least one message.

    Answered with messages, else with a closed tick, else empty after about a second: use a deadline
    of at least 5 s. The Scanner keeps no position, so an unanswered Pull can be repeated as it is.
    One Pull at a time.
    """

    cursor: ReadPosition
    bytes_max: int


@dataclass(frozen=True, slots=True)
class Wake:
    """The tail grew or a tick was closed: there may be something to read."""


@dataclass(frozen=True, slots=True)
class CloseScanner:
    """The consumer is gone."""


ScannerMessage = Pull | Wake | CloseScanner
