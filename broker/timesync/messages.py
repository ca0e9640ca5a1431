"""Everything the actors of time synchronisation can be told or asked.

It owns the vocabulary and nothing else. Requests that fail raise Refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from actors import Request
from broker.model.barrier import BarrierKind, BarrierView
from broker.model.ids import PChannelName, TimeTick
from broker.model.named_cursor import CursorView

CLUSTER_BARRIER = "cluster"
"""The soft barrier whose peers are the pchannels; nobody else may join it."""


@dataclass(frozen=True, slots=True)
class Joined:
    """Report under `lease_id`, at least once in `lease_s`. `tick`: the newest that passed."""

    lease_id: int
    lease_s: float
    tick: TimeTick


@dataclass(frozen=True, slots=True)
class Join(Request[Joined]):
    """Take part in a barrier, which comes to be with its first peer.

    A name that takes part already starts anew, and its earlier lease is worth nothing from then
    on. `interval_ms` is for a soft barrier that is new. Refused: INVALID_ARGUMENT for a bad name,
    lease or interval, and for a barrier that exists as another kind; RESOURCE_ACQUIRED for the
    cluster's own; INNER when there are too many.
    """

    barrier: str
    kind: BarrierKind
    peer: str
    lease_s: float
    interval_ms: int = 0


@dataclass(frozen=True, slots=True)
class Reported:
    """`tick`: the newest that passed. `late`: the report said nothing new and was dropped."""

    tick: TimeTick
    late: bool


@dataclass(frozen=True, slots=True)
class ReportTick(Request[Reported]):
    """The peer has come to `tick`; 0 only says that it is there. May be sent again.

    Refused: INVALID_REQUEST_SEQ when it does not take part (any more): join again;
    CHANNEL_FENCED when somebody joined under this name later; INVALID_ARGUMENT for a tick that
    lies ahead of every pchannel.
    """

    barrier: str
    peer: str
    lease_id: int
    tick: TimeTick


@dataclass(frozen=True, slots=True)
class LeaveBarrier(Request[None]):
    """Take part no longer; nothing happens when the lease is not the peer's."""

    barrier: str
    peer: str
    lease_id: int


@dataclass(frozen=True, slots=True)
class PassedTicks:
    """Ticks that passed, in order; `view` is the barrier after them."""

    ticks: tuple[TimeTick, ...]
    view: BarrierView


@dataclass(frozen=True, slots=True)
class NextTicks(Request[PassedTicks | None]):
    """What passed after tick `after`, as soon as something has; None after about a second.

    With `after` 0 the newest alone. A hard barrier remembers its last 1024 ticks, a soft one only
    the newest. Ask with a deadline of at least 5 s. The barrier need not exist yet.
    """

    barrier: str
    after: TimeTick = TimeTick(0)


@dataclass(frozen=True, slots=True)
class ListBarriers(Request[tuple[BarrierView, ...]]):
    """All barriers of this kind, by name."""


@dataclass(frozen=True, slots=True)
class FeedTicks(Request[TimeTick]):
    """How far the pchannels are closed; answered with the tick that is closed on all of them.

    For the TickProducer. A pchannel that was removed takes part again once it is past that tick.
    """

    ticks: Mapping[PChannelName, TimeTick]


@dataclass(frozen=True, slots=True)
class NewestTick:
    """No pchannel was ahead of this tick a moment ago."""

    tick: TimeTick


@dataclass(frozen=True, slots=True)
class SweepBarriers:
    """A timer: remove the overdue, and let go of those who have watched for long."""


BarrierMessage = (
    Join
    | ReportTick
    | LeaveBarrier
    | NextTicks
    | ListBarriers
    | FeedTicks
    | NewestTick
    | SweepBarriers
)


@dataclass(frozen=True, slots=True)
class Poll:
    """A timer: look how far the pchannels are closed."""


TickProducerMessage = Poll

# ---- Cursors -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MoveCursor(Request[CursorView]):
    """Everything up to `tick` on the channels is processed; durable when answered.

    A new name makes a cursor. `channels`: what it is about from now on; none: as before. The same
    tick again is fine. Refused: INVALID_REQUEST_SEQ for a tick below the cursor's;
    CHANNEL_NOT_EXIST without channels for a name that is new, and for a channel of no pchannel;
    INVALID_ARGUMENT for a bad name or a tick from the future; INNER while the tick is not known to
    be closed on all channels, when there are too many cursors, and when nothing can be recorded.
    """

    name: str
    channels: tuple[str, ...]
    tick: TimeTick


@dataclass(frozen=True, slots=True)
class GetCursor(Request[CursorView]):
    """One cursor. Refused(CHANNEL_NOT_EXIST) when there is none."""

    name: str


@dataclass(frozen=True, slots=True)
class ListCursors(Request[tuple[CursorView, ...]]):
    """All of them, by name."""


@dataclass(frozen=True, slots=True)
class DropCursor(Request[None]):
    """Forget it; durable when answered. Refused(CHANNEL_NOT_EXIST) when there is none."""

    name: str


CursorMessage = MoveCursor | GetCursor | ListCursors | DropCursor
