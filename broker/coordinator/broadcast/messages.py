"""The messages of Broadcaster and BroadcastTask.

The edge sends the requests of the Broadcaster. Those that fail raise Refused.
"""

from dataclasses import dataclass

from actors import Envelope, Request
from broker.core.cluster.broadcast_state import BroadcastState
from broker.model.broadcast import Broadcast, Broadcasted, ResourceKey
from broker.model.ids import BroadcastId, VChannelName
from broker.model.master.ddl import PlannedRequest
from broker.model.message import Appended

# ---- Broadcaster: locks and order --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartBroadcast(Request[Broadcasted]):
    """Lock the keys, append a copy to each vchannel, await acknowledgements and the callback.

    Answered when the broadcast has finished; a repeat with the same request key gets the same
    answer, from a later incarnation too. A caller that leaves before the keys are granted
    withdraws the request; later the broadcast continues without it. Refused: INVALID_ARGUMENT when
    the request key was used for other content; INNER when it could not be recorded or too many
    wait; UNRECOVERABLE when it is in quarantine.
    """

    broadcast: Broadcast


@dataclass(frozen=True, slots=True)
class PlanBroadcast(Request[Broadcasted]):
    """As StartBroadcast, of a broadcast that is planned once the keys of the request are held.

    Raises what the planner refuses too; then nothing has changed. At most 1,024 wait, more are
    refused: INNER.
    """

    request: PlannedRequest


@dataclass(frozen=True, slots=True)
class AckBroadcast(Request[None]):
    """A consumer has processed one vchannel's copy; durable when answered.

    `where`: the copy, None when the caller does not know it. `copied`: the broadcast of another
    cluster that the message belongs to; a new one becomes a task. An unknown or finished id is no
    error. Refused(INVALID_ARGUMENT) for a vchannel that the broadcast does not have.
    """

    id: BroadcastId
    vchannel: VChannelName
    where: Appended | None
    origin: str = ""
    copied: Broadcast | None = None


@dataclass(frozen=True, slots=True)
class WaitForKey(Request[None]):
    """Wait until each broadcast that holds this key has one acknowledged vchannel, or all.

    A broadcast that is skipped counts as acknowledged. Shared and exclusive holders count alike.
    """

    key: ResourceKey
    all_acked: bool


@dataclass(frozen=True, slots=True)
class BroadcastView:
    """One unfinished broadcast, for people. `acked_by`: "write", "node" or "consumer"."""

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
    acked_by: str


@dataclass(frozen=True, slots=True)
class ListBroadcasts(Request[tuple[BroadcastView, ...]]):
    """Every unfinished broadcast: first those that wait for keys, then by id."""


@dataclass(frozen=True, slots=True)
class LockView:
    """One request for keys. `owner`: the name of the broadcast, empty while it waits."""

    owner: str
    keys: tuple[ResourceKey, ...]
    held: bool


@dataclass(frozen=True, slots=True)
class ListLocks(Request[tuple[LockView, ...]]):
    """Holders of keys and waiting requests, in the order of arrival."""


@dataclass(frozen=True, slots=True)
class RetryBroadcast(Request[None]):
    """Take a broadcast out of quarantine and retry what failed.

    Refused(INVALID_ARGUMENT) when there is no such broadcast in quarantine.
    """

    name: str


@dataclass(frozen=True, slots=True)
class SkipBroadcast(Request[None]):
    """Take a broadcast out of quarantine and finish it as it is; refused as above.

    Durable when answered.
    """

    name: str


@dataclass(frozen=True, slots=True)
class TaskChanged:
    """The stored state of a task, sent after each change and from time to time."""

    task: BroadcastState
    failures: int
    last_error: str


@dataclass(frozen=True, slots=True)
class ResumeBroadcasts:
    """A timer, once: start the tasks of the records that were found."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SweepBroadcasts:
    """A timer: drop callers that left, and delete old tombstones."""


BroadcasterMessage = (
    StartBroadcast
    | PlanBroadcast
    | AckBroadcast
    | WaitForKey
    | ListBroadcasts
    | ListLocks
    | RetryBroadcast
    | SkipBroadcast
    | TaskChanged
    | ResumeBroadcasts
    | SweepBroadcasts
)

# ---- BroadcastTask: one per broadcast ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Work:
    """A timer: do what is possible now."""


@dataclass(frozen=True, slots=True)
class Announce:
    """A timer: send the state to the Broadcaster again, in case a message was lost."""


@dataclass(frozen=True, slots=True)
class MayFinish:
    """No conflicting broadcast comes first: run the callback and finish."""


@dataclass(frozen=True, slots=True)
class TakeAck:
    """An AckBroadcast forwarded to the task, which answers `caller` when it is durable."""

    vchannel: VChannelName
    where: Appended | None
    caller: Envelope[BroadcasterMessage]


@dataclass(frozen=True, slots=True)
class LeaveQuarantine:
    """An operator takes the task out of quarantine: retry, or skip what failed."""

    skip: bool
    caller: Envelope[BroadcasterMessage]


BroadcastTaskMessage = Work | Announce | MayFinish | TakeAck | LeaveQuarantine
