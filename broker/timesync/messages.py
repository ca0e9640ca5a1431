"""The messages of the barriers, the TickProducer and the Cursors. Failed requests raise Refused."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from actors import Request
from broker.model.barrier import BarrierKind, BarrierView
from broker.model.ids import PChannelName, TimeTick
from broker.model.named_cursor import ChannelPosition, CursorView
from broker.model.retention.holders import (
    HeldBack,
    Hold,
    Removal,
)
from broker.model.retention.policy import LogStart

CLUSTER_BARRIER = "cluster"
"""The soft barrier whose peers are the pchannels; no one else may join it."""


@dataclass(frozen=True, slots=True)
class Joined:
    """Report with `lease_id`, at least once in `lease_s`. `tick`: the newest that passed."""

    lease_id: int
    lease_s: float
    tick: TimeTick


@dataclass(frozen=True, slots=True)
class Join(Request[Joined]):
    """Join a barrier, which is created with its first peer.

    A peer that joins again starts anew, and its earlier lease is void. `interval_ms` is for a new
    soft barrier. Refused: INVALID_ARGUMENT for a bad name, lease or interval, and for a barrier
    that exists as another kind; RESOURCE_ACQUIRED for the cluster's own; INNER when there are too
    many.
    """

    barrier: str
    kind: BarrierKind
    peer: str
    lease_s: float
    interval_ms: int = 0


@dataclass(frozen=True, slots=True)
class Reported:
    """`tick`: the newest that passed. `late`: not above the last report, and dropped."""

    tick: TimeTick
    late: bool


@dataclass(frozen=True, slots=True)
class ReportTick(Request[Reported]):
    """The peer reports `tick`; 0 only renews its lease. May be repeated.

    Refused: INVALID_REQUEST_SEQ when it is no member (any more): join again; CHANNEL_FENCED when
    someone joined under this name later; INVALID_ARGUMENT for a tick ahead of every pchannel.
    """

    barrier: str
    peer: str
    lease_id: int
    tick: TimeTick


@dataclass(frozen=True, slots=True)
class LeaveBarrier(Request[None]):
    """Leave the barrier; no effect when the lease is not the current one."""

    barrier: str
    peer: str
    lease_id: int


@dataclass(frozen=True, slots=True)
class PassedTicks:
    """Ticks that passed, in order; `view`: the barrier after them."""

    ticks: tuple[TimeTick, ...]
    view: BarrierView


@dataclass(frozen=True, slots=True)
class NextTicks(Request[PassedTicks | None]):
    """The ticks that pass after `after`, once there are any; None after about a second.

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
    """The closed ticks of the pchannels; answered with the tick that is closed on all of them.

    Sent by the TickProducer. A pchannel that was removed rejoins once it is past that tick.
    """

    ticks: Mapping[PChannelName, TimeTick]


@dataclass(frozen=True, slots=True)
class NewestTick:
    """The newest closed tick of any pchannel at the last poll."""

    tick: TimeTick


@dataclass(frozen=True, slots=True)
class SweepBarriers:
    """A timer: remove peers whose lease is over, and answer old watches."""


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
    """A timer: ask how far the pchannels are closed."""


TickProducerMessage = Poll

# ---- Cursors -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MoveCursor(Request[CursorView]):
    """Move a cursor: everything up to `tick` on its channels is processed. Durable when answered.

    A new name makes a cursor. `channels` replaces its channels; empty: as before. The same tick
    again is accepted. Refused: INVALID_REQUEST_SEQ for a tick below the cursor's;
    CHANNEL_NOT_EXIST for a new name without channels, and for an unknown pchannel;
    INVALID_ARGUMENT for a bad name or a tick from the future; INNER while the tick is not known to
    be closed on all channels, when there are too many cursors, or when the store fails; UNKNOWN, as
    for each change of a cursor, when the store's answer was lost: read the cursor, and repeat the
    change if it is not there.
    """

    name: str
    channels: tuple[str, ...]
    tick: TimeTick


@dataclass(frozen=True, slots=True)
class OpenCursor(Request[CursorView]):
    """The cursor of this name as it is, or a new one at these positions. Durable when answered.

    Refused: INVALID_ARGUMENT for a bad name or position; CHANNEL_NOT_EXIST for an unknown pchannel;
    INNER when there are too many cursors; UNRECOVERABLE for a position behind which retention has
    removed messages. `holds`: whether a new one holds back retention.
    """

    name: str
    positions: Mapping[str, ChannelPosition]
    holds: bool = True


@dataclass(frozen=True, slots=True)
class CommitCursor(Request[CursorView]):
    """What a reader has processed of some channels; positions below the cursor's change nothing.

    `epoch`: the cursor's when the reader was started. Durable when answered. Refused:
    INVALID_REQUEST_SEQ when the cursor was reset or made again since; CHANNEL_NOT_EXIST when it was
    dropped; INVALID_ARGUMENT for a channel it does not have, or a tick from the future;
    UNRECOVERABLE when retention has passed the cursor, and these positions lie behind, too.
    """

    name: str
    epoch: int
    positions: Mapping[str, ChannelPosition]


@dataclass(frozen=True, slots=True)
class ResetCursor(Request[CursorView]):
    """Set the cursor to exactly these positions, forward or back, and make it if there is none.

    Readers that were started from it before can no longer commit. Durable when answered. Refused as
    OpenCursor. `holds` None: as before.
    """

    name: str
    positions: Mapping[str, ChannelPosition]
    holds: bool | None = None


@dataclass(frozen=True, slots=True)
class GetCursor(Request[CursorView]):
    """The cursor of this name. Refused(CHANNEL_NOT_EXIST) when there is none."""

    name: str


@dataclass(frozen=True, slots=True)
class ListCursors(Request[tuple[CursorView, ...]]):
    """All cursors, by name."""


@dataclass(frozen=True, slots=True)
class DropCursor(Request[None]):
    """Delete a cursor; durable when answered. Refused(CHANNEL_NOT_EXIST) when there is none."""

    name: str


@dataclass(frozen=True, slots=True)
class FindHolds(Request[Mapping[PChannelName, Sequence[Hold]]]):
    """The holds on these pchannels, whose logs begin there; see `Holds.of`."""

    starts: Mapping[PChannelName, LogStart]


@dataclass(frozen=True, slots=True)
class AllowRemovals(Request[Collection[PChannelName]]):
    """Record what retention will remove; see `Holds.allow`."""

    removals: Mapping[PChannelName, Removal]


@dataclass(frozen=True, slots=True)
class ShowHeldBack(Request[Mapping[PChannelName, HeldBack]]):
    """Who holds back how much of each pchannel, and who was passed; only those with any."""


HoldMessage = FindHolds | AllowRemovals | ShowHeldBack
CursorMessage = (
    MoveCursor
    | OpenCursor
    | CommitCursor
    | ResetCursor
    | GetCursor
    | ListCursors
    | DropCursor
    | HoldMessage
)
