"""Callers that wait until the broadcasts that hold a resource key are acknowledged, or skipped.

Only broadcasts that hold it at the time of the call count.
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
    caller: Envelope[BroadcasterMessage]
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
        caller: Envelope[BroadcasterMessage],
        *,
        all_acked: bool,
    ) -> None:
        """Answer when all of these tasks that hold the key are done; perhaps now."""
        # The names of now: broadcasts that start later would make a busy key wait for ever.
        names = {
            task.name for task in tasks if _holds(task, key) and not _done(task, all_acked)
        }  # fmt: skip
        if not names:
            caller.reply(None)
        elif len(self._waits) >= self._waits_max:
            cause = f"{self._waits_max} callers wait for resource keys; try again later"
            caller.fail(Refused(StreamingCode.INNER, cause))
        else:
            self._waits.append(_Wait(caller, names, all_acked))

    def moved(self, task: BroadcastState) -> None:
        """The state of a task has changed."""
        for wait in self._waits:
            if task.name in wait.names and _done(task, wait.all_acked):
                wait.names.discard(task.name)
                if not wait.names:
                    wait.caller.reply(None)
        self.prune()

    def prune(self) -> None:
        """Drop callers that were answered or have left."""
        self._waits = [wait for wait in self._waits if wait.caller.wanted()]


def _holds(task: BroadcastState, key: ResourceKey) -> bool:
    return any((it.domain, it.key) == (key.domain, key.key) for it in task.keys)


def _done(task: BroadcastState, all_acked: bool) -> bool:
    # One that an operator has skipped is finished without all acknowledgements, and gets no more.
    if not task.unfinished:
        return True
    return task.all_acked if all_acked else any(task.acked)
