"""Appends that wait until the oracle has passed their barrier ticks; the lowest tick goes first.

They wait in front of the Appender, so that they hold up nothing else of their pchannel, and so that
giving up a wait leaves nothing behind: an append that waits here is certainly not stored.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, Generic, TypeVar

import anyio

from broker.core.time.tick_lead import lead_s, not_reached, unreachable
from broker.model.failure import Refusal, Refused
from broker.model.ids import TimeTick
from broker.node.state.oracle_view import OracleView

RETRY_S: Final = 0.2
"""Between two requests to an oracle that does not answer."""
CLOCK_SLACK_S: Final = 0.001
"""The least pause between two looks at the oracle, for clocks that run at different speeds."""

T = TypeVar("T")


@dataclass(slots=True)
class _Waiting(Generic[T]):
    barrier: TimeTick
    number: int
    item: T
    within_s: float
    deadline_s: float

    def __lt__(self, other: "_Waiting[T]") -> bool:
        """By barrier tick; appends with the same one keep their order."""
        return (self.barrier, self.number) < (other.barrier, other.number)


class BarrierQueue(Generic[T]):
    """The waiting appends of one stream. `run` must run in a task while anything is put."""

    def __init__(
        self,
        oracle: OracleView,
        release: Callable[[T], Awaitable[None]],
        refuse: Callable[[T, Refusal], None],
    ) -> None:
        """Each item that was put is handed once, to `release` or to `refuse`."""
        self._oracle = oracle
        self._release = release
        self._refuse = refuse
        self._waiting: list[_Waiting[T]] = []
        self._new: list[_Waiting[T]] = []
        """Not yet compared with the oracle."""
        self._put_count = 0
        self._changed = anyio.Event()
        self._closed: Refusal | None = None
        self._issued = TimeTick(0)

    def __len__(self) -> int:
        return len(self._waiting) + len(self._new)

    def put(self, barrier: TimeTick, item: T, within_s: float | None = None) -> None:
        """Let `item` wait for `barrier`: `within_s` at most, and never longer than the setting.

        Refused: UNRECOVERABLE, at once, when the oracle cannot be there in time; INNER when it
        should have been, but was not.
        """
        if self._closed is not None:
            self._refuse(item, self._closed)
            return
        limit_s = self._oracle.wait_s_max
        within_s = limit_s if within_s is None else min(within_s, limit_s)
        self._put_count += 1
        deadline_s = self._oracle.clock.monotonic_s() + within_s
        self._new.append(_Waiting(barrier, self._put_count, item, within_s, deadline_s))
        self._changed.set()

    def close(self, refusal: Refusal) -> None:
        """Refuse what waits, and what is put from now on."""
        self._closed = refusal
        waiting, self._waiting, self._new = self._all(), [], []
        for each in waiting:
            self._refuse(each.item, refusal)

    async def run(self) -> None:
        """Release appends as the oracle passes their ticks, until cancelled."""
        while True:
            self._changed = anyio.Event()
            pause_s = await self._step() if len(self) else None
            with anyio.move_on_after(pause_s):
                await self._changed.wait()

    async def _step(self) -> float | None:
        """Look at the oracle and act on it; returns how long nothing will change."""
        try:
            self._issued = await self._oracle.position()
        except Refused:
            # A coordinator that restarts is back soon; each append has its own deadline.
            self._expire()
            return RETRY_S
        self._judge_new()
        while self._waiting and lead_s(self._waiting[0].barrier, self._issued) == 0.0:
            # Popped first: when this wait is cancelled, nothing is released twice.
            await self._release(heappop(self._waiting).item)
        self._expire()
        if not self._waiting:
            return None
        now_s = self._oracle.clock.monotonic_s()
        soonest_s = min([each.deadline_s for each in self._waiting]) - now_s
        pause_s = min(lead_s(self._waiting[0].barrier, self._issued), soonest_s)
        return max(pause_s, CLOCK_SLACK_S)

    def _judge_new(self) -> None:
        """Refuse new ones that are too far ahead. Later the oracle is only nearer to the others."""
        new, self._new = self._new, []
        for each in new:
            refusal = unreachable(each.barrier, self._issued, each.within_s)
            if refusal is None:
                heappush(self._waiting, each)
            else:
                self._refuse(each.item, refusal)

    def _expire(self) -> None:
        now_s = self._oracle.clock.monotonic_s()
        expired = [each for each in self._all() if each.deadline_s <= now_s]
        if not expired:
            return
        # What is left of a sorted list is a heap.
        self._waiting = sorted([each for each in self._waiting if each.deadline_s > now_s])
        self._new = [each for each in self._new if each.deadline_s > now_s]
        for each in expired:
            self._refuse(each.item, not_reached(each.barrier, self._issued, each.within_s))

    def _all(self) -> list[_Waiting[T]]:
        return [*sorted(self._waiting), *self._new]
