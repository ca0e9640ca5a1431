"""What the Broadcaster keeps of each unfinished broadcast, and its limits."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from actors import Envelope
from broker.coordinator.broadcast.broadcast_records import record_problem
from broker.coordinator.broadcast.messages import BroadcasterMessage
from broker.coordinator.cuts.messages import BROADCASTS, RestoreShared
from broker.core.cluster.broadcast_state import BroadcastState
from broker.core.cluster.resource_locks import LockTicket
from broker.model.broadcast import Broadcast
from broker.model.failure import Refused, StreamingCode
from broker.model.master.ddl import PlannedRequest

Caller = Envelope[BroadcasterMessage]


@dataclass(frozen=True, slots=True)
class BroadcasterLimits:
    """Bounds on unfinished broadcasts, callers and tombstones."""

    unfinished_max: int = 8192
    """Waiting and running ones; more are refused."""
    key_waits_max: int = 1024
    """Calls that wait for the broadcasts on a resource key."""
    tombstones_max: int = 8192
    """Finished broadcasts that are remembered, so that a repeat gets the first answer."""
    tombstone_age_ms: int = 24 * 3600 * 1000
    """An older tombstone is removed."""
    tombstone_check_s: float = 300.0
    """Time between two checks for old tombstones."""
    planned_max: int = 1024
    """Requests that wait to be planned; more are refused."""
    sweep_s: float = 1.0
    """Time between two checks for callers that have left."""


@dataclass(slots=True)
class WaitingBroadcast:
    """A broadcast that waits for its keys: without an id and without a record.

    A planned one is a request until it holds them.
    """

    request: Broadcast | PlannedRequest
    callers: list[Caller]
    since_s: float

    @property
    def fingerprint(self) -> str:
        return self.request.fingerprint

    @property
    def wanted(self) -> bool:
        """Whether a caller still waits for it."""
        return any(caller.wanted() for caller in self.callers)


@dataclass(slots=True)
class RunningBroadcast:
    """A broadcast with a record. `ticket`: its keys; `order`: its place in the order of callbacks.

    `since_s`: when it was requested; None for one restored from its record.
    """

    task: BroadcastState
    ticket: LockTicket | None
    callers: list[Caller] = field(default_factory=list)
    order: LockTicket | None = None
    failures: int = 0
    last_error: str = ""
    since_s: float | None = None

    @property
    def fingerprint(self) -> str:
        return self.task.broadcast.fingerprint

    def answer(self, answer: object) -> None:
        """Answer all callers; an exception is raised to them."""
        for caller in self.callers:
            if isinstance(answer, Exception):
                caller.fail(answer)
            else:
                caller.reply(answer)
        self.callers.clear()


def under_way(running: Iterable[RunningBroadcast]) -> RestoreShared:
    """Broadcasts that a cut could split: some copies may be durable, others not."""
    tasks = [it.task for it in running]
    entries = {it.name: it.broadcast.vchannels for it in tasks if it.appends}
    return RestoreShared(BROADCASTS, entries)


def room_refusal(
    request: Broadcast | PlannedRequest,
    waiting: Collection[WaitingBroadcast],
    running: int,
    limits: BroadcasterLimits,
) -> Refused | None:
    """Why there is no room for one more; None if there is."""
    if len(waiting) + running >= limits.unfinished_max:
        cause = f"{limits.unfinished_max} broadcasts are unfinished; try again later"
        return Refused(StreamingCode.INNER, cause)
    if isinstance(request, Broadcast):
        problem = record_problem(request)
        return Refused(StreamingCode.INVALID_ARGUMENT, problem) if problem else None
    # Counted only when it may matter: with each request it would cost the square of them.
    if len(waiting) >= limits.planned_max:
        planned = sum(isinstance(it.request, PlannedRequest) for it in waiting)
        if planned >= limits.planned_max:
            cause = f"{planned} changes of definitions wait; try again later"
            return Refused(StreamingCode.INNER, cause)
    return None
