"""Finished broadcasts, remembered so that a repeated request gets the first answer."""

from collections.abc import Sequence

import structlog

from actors import Clock
from broker.coordinator.broadcast.broadcast_records import BroadcastRecords
from broker.coordinator.broadcast.pending_broadcasts import BroadcasterLimits
from broker.core.cluster.broadcast_state import BroadcastState, forgettable
from broker.core.cluster.forgotten_broadcasts import ForgottenIds
from broker.model.ids import BroadcastId
from broker.ports.meta import MetaError

log = structlog.get_logger(__name__)


class Tombstones:
    """The tombstones of one Broadcaster incarnation; deletes those that are too old or too many."""

    def __init__(self, records: BroadcastRecords, limits: BroadcasterLimits) -> None:
        self._records = records
        self._limits = limits
        self._tasks: dict[str, BroadcastState] = {}
        self._forgotten: dict[str, ForgottenIds] = {}
        self._next_check_s = 0.0

    def __len__(self) -> int:
        return len(self._tasks)

    async def start(self, clock: Clock) -> None:
        """Read which tombstones of other clusters were deleted; MetaError."""
        self._forgotten = await self._records.forgotten()
        self._next_check_s = clock.monotonic_s() + self._limits.tombstone_check_s

    def add(self, task: BroadcastState) -> None:
        """Remember a finished broadcast."""
        self._tasks[task.name] = task

    def find(self, name: str) -> BroadcastState | None:
        """The finished broadcast; None when it is not remembered."""
        return self._tasks.get(name)

    def of(self, name: str) -> BroadcastState:
        """The finished broadcast, which is remembered."""
        return self._tasks[name]

    def covers(self, id: BroadcastId, origin: str) -> bool:
        """Whether a broadcast of this cluster with this id had a tombstone that was deleted."""
        forgotten = self._forgotten.get(origin)
        return forgotten is not None and forgotten.covers(id)

    async def sweep(self, clock: Clock) -> Sequence[BroadcastState]:
        """Delete old tombstones when a check is due; those that were deleted."""
        now_s = clock.monotonic_s()
        # The early check bounds memory when broadcasts finish faster than checks are due; twice
        # the limit, so that it does not write the store for each further broadcast.
        if now_s < self._next_check_s and len(self._tasks) <= 2 * self._limits.tombstones_max:
            return ()
        self._next_check_s = now_s + self._limits.tombstone_check_s
        return await self._forget_old(clock.wall_ms())

    async def _forget_old(self, now_ms: int) -> Sequence[BroadcastState]:
        limits, tasks = self._limits, tuple(self._tasks.values())
        old = forgettable(tasks, now_ms, limits.tombstones_max, limits.tombstone_age_ms)
        if not old:
            return ()
        ids: dict[str, list[BroadcastId]] = {}
        for task in old:
            if task.origin:
                ids.setdefault(task.origin, []).append(task.id)
        changed = {
            origin: self._forgotten.get(origin, ForgottenIds()).and_also(more)
            for origin, more in ids.items()
        }
        try:
            # One write: with a record deleted and its id lost, a copy would run again.
            await self._records.forget(old, changed)
        except MetaError as error:
            # The next check tries again; until then the tombstones only take memory.
            log.warning("cannot delete tombstones of broadcasts", error=str(error))
            return ()
        self._forgotten |= changed
        for task in old:
            del self._tasks[task.name]
        return old
