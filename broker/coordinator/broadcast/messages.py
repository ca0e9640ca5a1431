"""Everything the actors of the broadcaster can be told or asked. Owns the vocabulary, nothing else.

For the edge: the requests of the Broadcaster. Those that fail raise Refused.
"""

from dataclasses import dataclass

from actors import Envelope, Request
from broker.core.cluster.broadcast_state import BroadcastState
from broker.model.broadcast import Broadcast, Broadcasted, ResourceKey
from broker.model.ids import BroadcastId, VChannelName
from broker.model.message import Appended

# ---- Broadcaster: who may go on ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartBroadcast(Request[Broadcasted]):
    """Lock the keys, put a copy on each vchannel, wait for its acks and its callback.

    Answered when the broadcast took effect; with one request key as often as it is asked, also by
    a later incarnation. An caller that leaves while it waits for its keys is forgotten; after that
    the broadcast goes on without it. Refused: INVALID_ARGUMENT when the key was used for something
    else; INNER when it could not be recorded or too many wait; UNRECOVERABLE when it is in
    quarantine.
    """

    broadcast: Broadcast


@dataclass(frozen=True, slots=True)
class AckBroadcast(Request[None]):
    """One vchannel's copy has been processed, as a consumer says; durable when answered.

    `where` may be None when the caller does not know. `copied`: the broadcast of another cluster
    that the message is part of, which becomes a task of its own when it is new. An id that is not
    known, or is done with, is no error. Refused(INVALID_ARGUMENT) for a vchannel it never had.
    """

    id: BroadcastId
    vchannel: VChannelName
    where: Appended | None
    origin: str = ""
    copied: Broadcast | None = None


@dataclass(frozen=True, slots=True)
class WaitForKey(Request[None]):
    """Until each broadcast that holds this key now has one acknowledged vchannel, or all of them.

    Whether the key is shared does not matter.
    """

    key: ResourceKey
    all_acked: bool


@dataclass(frozen=True, slots=True)
class BroadcastView:
    """One broadcast that is not done, or in quarantine, for people."""

    name: str
    state: str
    type: int
    keys: tuple[ResourceKey, ...]
    vchannels: int
    appended: int
    acked: int
    poison: str
    failures: int
    last_error: str


@dataclass(frozen=True, slots=True)
class ListBroadcasts(Request[tuple[BroadcastView, ...]]):
    """Every broadcast that is not finished, in the order of their ids; first those that wait."""


@dataclass(frozen=True, slots=True)
class LockView:
    """One place in the line for keys. `owner` is a broadcast's name, empty while it waits."""

    owner: str
    keys: tuple[ResourceKey, ...]
    held: bool


@dataclass(frozen=True, slots=True)
class ListLocks(Request[tuple[LockView, ...]]):
    """Who holds which keys and who waits, in the order they came."""


@dataclass(frozen=True, slots=True)
class RetryBroadcast(Request[None]):
    """Take a broadcast out of quarantine and try again what failed.

    Refused(INVALID_ARGUMENT) when there is no such broadcast in quarantine.
    """

    name: str


@dataclass(frozen=True, slots=True)
class SkipBroadcast(Request[None]):
    """Take a broadcast out of quarantine and call it done as it is; refusals as above.

    Answered when that is durable.
    """

    name: str


@dataclass(frozen=True, slots=True)
class TaskChanged:
    """How a task stands, told by itself whenever that changed and from time to time."""

    task: BroadcastState
    failures: int
    last_error: str


@dataclass(frozen=True, slots=True)
class Resume:
    """A timer, once: bring the tasks back that were found in the store."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SweepBroadcasts:
    """A timer: forget those who left, and tombstones that are old enough."""


BroadcasterMessage = (
    StartBroadcast
    | AckBroadcast
    | WaitForKey
    | ListBroadcasts
    | ListLocks
    | RetryBroadcast
    | SkipBroadcast
    | TaskChanged
    | Resume
    | SweepBroadcasts
)

# ---- BroadcastTask: one per broadcast ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Work:
    """A timer: do what can be done now."""


@dataclass(frozen=True, slots=True)
class Announce:
    """A timer: tell the Broadcaster once more how this stands, should it have missed that."""


@dataclass(frozen=True, slots=True)
class MayFinish:
    """No conflicting broadcast is before this one: call back and finish."""


@dataclass(frozen=True, slots=True)
class TakeAck:
    """An AckBroadcast on its way to the task; `asked` is answered when it is durable."""

    vchannel: VChannelName
    where: Appended | None
    asked: Envelope[BroadcasterMessage]


@dataclass(frozen=True, slots=True)
class LeaveQuarantine:
    """An operator's word about a task in quarantine: try its callback again, or do without."""

    skip: bool
    asked: Envelope[BroadcasterMessage]


BroadcastTaskMessage = Work | Announce | MayFinish | TakeAck | LeaveQuarantine
