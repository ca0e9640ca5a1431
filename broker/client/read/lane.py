"""From one source of a reader to the program: its batches, and the ticks closed behind them.

It owns how far the program has come on that source: a closed tick counts once the program has
taken all that the source gave before it. Next: broker/client/read/scanner.py
"""

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from broker.client.message import Received
from broker.client.net.rendezvous import Rendezvous
from broker.model.ids import TimeTick


class Readable(Protocol):
    """Some messages of one vchannel, and the tick that is closed when they were taken."""

    @property
    def messages(self) -> list[Received]: ...

    @property
    def closed_tick(self) -> TimeTick: ...


B = TypeVar("B", bound=Readable)


class Passed(Generic[B]):
    """A batch on its way. `taken` when the program has all of it."""

    __slots__ = ("_lane", "batch", "closed_tick")

    def __init__(self, batch: B, lane: "Lane[B]") -> None:
        self.batch = batch
        self.closed_tick = batch.closed_tick
        self._lane = lane

    def taken(self) -> None:
        self._lane.settle(self)


class Lane(Generic[B]):
    """For one source, which gives in the order of its ticks, and one program.

    `closed_tick`: nothing with a tick up to it is still to come; 0: not known. It never goes back.
    """

    def __init__(self, ready: Rendezvous[Passed[B]]) -> None:
        self._ready = ready
        self._newest: Passed[B] | None = None
        """What was given last, unless it was taken: a tick that is closed then waits with it."""
        self.closed_tick = TimeTick(0)

    async def give(self, batches: Sequence[B]) -> None:
        """Wait until there is room for batches, and hand all of them over; no-op for none."""
        if not batches:
            return
        passed = [Passed(batch, self) for batch in batches]
        self._newest = passed[-1]
        await self._ready.put(passed)

    def close(self, tick: TimeTick) -> None:
        """The tick is closed once everything that was given is taken."""
        behind = self if self._newest is None else self._newest
        behind.closed_tick = max(behind.closed_tick, tick)

    def settle(self, passed: Passed[B]) -> None:
        """The program has taken it, and what was given before it."""
        self.closed_tick = max(self.closed_tick, passed.closed_tick)
        if self._newest is passed:
            self._newest = None
