"""The messages of the time tick producer. Failed requests raise Refused."""

from dataclasses import dataclass

from actors import Request
from broker.model.ids import TimeTick
from broker.model.master.time_ticks import TickSettings, TimeTicksView


@dataclass(frozen=True, slots=True)
class SetTicks(Request[TimeTicksView]):
    """Who reports, and which channels get the ticks. Durable when answered.

    Refused: INVALID_ARGUMENT for bad settings; CHANNEL_NOT_EXIST for an unknown channel or proxy;
    INNER when the store fails; UNKNOWN when its answer was lost: describe the ticks, and repeat the
    change if it is not there.
    """

    settings: TickSettings


@dataclass(frozen=True, slots=True)
class CloseTicks(Request[TimeTicksView]):
    """No tick passes any more. Durable when answered; no effect when there are none.

    Refused: INNER and UNKNOWN, as SetTicks.
    """


@dataclass(frozen=True, slots=True)
class DescribeTicks(Request[TimeTicksView]):
    """The settings, the reports, and how far the ticks are.

    Refused: INNER while it is not read again what a change without an answer has stored.
    """


@dataclass(frozen=True, slots=True)
class PeerReported:
    """`passed`: the newest tick that passed. `late`: not above the last report, and dropped."""

    passed: TimeTick
    late: bool


@dataclass(frozen=True, slots=True)
class ReportPeerTick(Request[PeerReported]):
    """The peer will add no message with a timestamp up to `tick`.

    Refused: CHANNEL_NOT_EXIST for an unknown peer, or while no ticks are set; INVALID_ARGUMENT for
    a tick of 0 or of the future; INNER while too many ticks wait to be sent.
    """

    peer: int
    tick: TimeTick


@dataclass(frozen=True, slots=True)
class TickToSend:
    """A tick that passed, and the channels that get it."""

    tick: TimeTick
    channels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NextTick(Request[TickToSend | None]):
    """The tick to send now; the same again until it is reported as sent. None: there is none."""


@dataclass(frozen=True, slots=True)
class TickSent:
    """Every channel has the tick."""

    tick: TimeTick


@dataclass(frozen=True, slots=True)
class TickDelayed:
    """The tick is not on every channel yet, and why; the sender tries again."""

    cause: str


@dataclass(frozen=True, slots=True)
class ReadTickSettings:
    """A timer: a write whose answer was lost may have changed the settings."""


CollectorMessage = (
    SetTicks
    | CloseTicks
    | DescribeTicks
    | ReportPeerTick
    | NextTick
    | TickSent
    | TickDelayed
    | ReadTickSettings
)


@dataclass(frozen=True, slots=True)
class SendTicks:
    """Look for a tick to send: a wake-up of the collector, or a timer."""


SenderMessage = SendTicks
