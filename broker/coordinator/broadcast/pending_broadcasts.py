"""What the Broadcaster holds of each broadcast: one that waits, one on its way; and its limits.

Owns these values, and answering those who asked.
"""

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
    """How much is waited for, and for how long a finished broadcast is remembered."""

    unfinished_max: int = 8192
    """Those that wait for keys and those on their way; more are refused, not kept."""
    key_waits_max: int = 1024
    tombstones_max: int = 8192
    tombstone_age_ms: int = 24 * 3600 * 1000
    tombstone_check_s: float = 300.0
    sweep_s: float = 1.0


@dataclass(slots=True)
class WaitingBroadcast:
    """A broadcast that waits for its keys: it has no id, and there is no record of it."""

    broadcast: Broadcast
    callers: list[Caller]
    since_s: float

    @property
    def fingerprint(self) -> str:
        return self.broadcast.fingerprint

    @property
    def wanted(self) -> bool:
        """Whether anybody still waits for it."""
        return any(asked.wanted() for asked in self.callers)


@dataclass(slots=True)
class RunningBroadcast:
    """A broadcast with a record. `ticket`: its keys; `order`: its place among the callbacks.

    `since_s`: when it was asked for; None for one that was read back.
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
        """Tell everybody who asked; an error is raised to them."""
        for asked in self.callers:
            if isinstance(answer, Exception):
                asked.fail(answer)
            else:
                asked.reply(answer)
        self.callers.clear()


def under_way(running: Iterable[RunningBroadcast]) -> RestoreShared:
    """Those of which a cut could have some copies and not the others."""
    tasks = [it.task for it in running]
    entries = {it.name: it.broadcast.vchannels for it in tasks if it.appends}
    return RestoreShared(BROADCASTS, entries)
