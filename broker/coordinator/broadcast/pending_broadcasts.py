"""What the Broadcaster keeps of each unfinished broadcast, and its limits."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from actors import Envelope
from broker.coordinator.broadcast.messages import BroadcasterMessage
from broker.coordinator.cuts.messages import BROADCASTS, RestoreShared
from broker.core.cluster.broadcast_state import BroadcastState
from broker.core.cluster.resource_locks import LockTicket
from broker.model.broadcast import Broadcast

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
    sweep_s: float = 1.0
    """Time between two checks for callers that have left."""


@dataclass(slots=True)
class WaitingBroadcast:
    """A broadcast that waits for its keys: without an id and without a record."""

    broadcast: Broadcast
    callers: list[Caller]
    since_s: float

    @property
    def fingerprint(self) -> str:
        return self.broadcast.fingerprint

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
