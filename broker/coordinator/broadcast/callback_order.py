"""The order of callbacks: those of conflicting broadcasts run one after another."""

from collections.abc import Iterable

from broker.coordinator.broadcast.pending_broadcasts import RunningBroadcast
from broker.core.cluster.resource_locks import LockTicket, ResourceLocks


class CallbackOrder:
    """Broadcasts with a place in it, which is free when no conflicting one is before it."""

    def __init__(self) -> None:
        self._places = ResourceLocks()
        self._by_place: dict[LockTicket, RunningBroadcast] = {}

    def restore(self, running: Iterable[RunningBroadcast]) -> None:
        """By recorded ticks, so that the order survives a restart."""
        ready = [it for it in running if it.task.order_tick is not None]
        for each in sorted(ready, key=lambda it: it.task.order_tick or 0):
            self.join(each)

    @staticmethod
    def is_that_of_keys(running: Iterable[RunningBroadcast]) -> bool:
        """Whether a new broadcast may `join` before its copies are appended.

        Those with keys exclude each other while they have them. One of another cluster has none:
        its tick decides whether it comes first.
        """
        return all(it.ticket is not None for it in running)

    def join(self, running: RunningBroadcast) -> None:
        """A place behind all that have one; once each."""
        if running.order is None:
            running.order = self._places.request(running.task.keys)
            self._by_place[running.order] = running

    def free(self, running: RunningBroadcast | None) -> bool:
        """Whether its callback may run, as far as others decide."""
        return (
            running is not None and running.order is not None and self._places.holds(running.order)
        )

    def leave(self, running: RunningBroadcast) -> list[RunningBroadcast]:
        """It has ended; those whose place is free now."""
        if running.order is None:
            return []
        del self._by_place[running.order]
        return [self._by_place[place] for place in self._places.release(running.order)]
