"""Those who wait until the broadcasts that hold a resource key have been acknowledged.

Owns who waits for which broadcasts. A broadcast that comes later is not waited for.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from actors import Envelope
from broker.coordinator.broadcast.messages import BroadcasterMessage
from broker.core.cluster.broadcast_state import BroadcastState
from broker.model.broadcast import ResourceKey
from broker.model.failure import Refused, StreamingCode


@dataclass(slots=True)
class _Wait:
    asked: Envelope[BroadcasterMessage]
    names: set[str]
    all_acked: bool


class KeyWaiters:
    """At most `waits_max` at once."""

    def __init__(self, waits_max: int) -> None:
        self._waits_max = waits_max
        self._waits: list[_Wait] = []

    def ask(
        self,
        key: ResourceKey,
        tasks: Iterable[BroadcastState],
        asked: Envelope[BroadcasterMessage],
        *,
        all_acked: bool,
    ) -> None:
        """Answer `asked` when all of these that hold the key are acknowledged; perhaps now."""
        names = {
            task.name for task in tasks if _holds(task, key) and not _done(task, all_acked)
        }  # fmt: skip
        if not names:
            asked.reply(None)
        elif len(self._waits) >= self._waits_max:
            cause = f"{self._waits_max} callers wait for resource keys; try again later"
            asked.fail(Refused(StreamingCode.INNER, cause))
        else:
            self._waits.append(_Wait(asked, names, all_acked))

    def moved(self, task: BroadcastState) -> None:
        """A task has come further."""
        for wait in self._waits:
            if task.name in wait.names and _done(task, wait.all_acked):
                wait.names.discard(task.name)
                if not wait.names:
                    wait.asked.reply(None)
        self.prune()

    def prune(self) -> None:
        """Forget those who were answered or have left."""
        self._waits = [wait for wait in self._waits if wait.asked.wanted()]


def _holds(task: BroadcastState, key: ResourceKey) -> bool:
    return any((it.domain, it.key) == (key.domain, key.key) for it in task.keys)


def _done(task: BroadcastState, all_acked: bool) -> bool:
    return task.all_acked if all_acked else any(task.acked)
