"""Writes down what each call of a client came to, and sees that it comes to anything.

It knows which errors promise that a message is not in the log.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from broker.client import (
    ConnectionLost,
    DeadlineExceeded,
    InvalidArgument,
    OutcomeUnknown,
    TidemarkError,
    TransactionExpired,
)
from tests.chaos.storm.history import Call, History, Operation, Outcome, Seen

T = TypeVar("T")

GIVEN_UP_S = 45.0
"""So long after its deadline a call that has not ended is given up by the harness."""
PULSE_S = 0.05

NOT_WRITTEN = (ConnectionLost, DeadlineExceeded, InvalidArgument, TransactionExpired)
"""What promises that nothing was written and nothing will be."""


class NeverEnded(Exception):
    """A call outlived its deadline by far."""


class Recorder:
    """The history that is being made. `acknowledged`: how many operations of each sort were."""

    def __init__(self) -> None:
        self.history = History()
        self.acknowledged: Counter[str] = Counter()
        self._acknowledged = anyio.Event()
        self._newest = ""
        self._known: dict[Seen, Seen] = {}

    def record(self, done: Operation) -> None:
        """What a client was told."""
        self.history.operations.append(done)
        if done.outcome is Outcome.ACKNOWLEDGED and done.places:
            self.acknowledged[done.sort] += 1
            self._newest = done.targets[0]
            self._acknowledged.set()
            self._acknowledged = anyio.Event()

    async def next_acknowledged(self) -> str:
        """Wait for the next operation to be acknowledged, and say on which vchannel."""
        await self._acknowledged.wait()
        return self._newest

    def one(self, seen: Seen) -> Seen:
        """The same message for everybody who sees it: many readers see many."""
        return self._known.setdefault(seen, seen)

    async def call(self, sort: str, deadline_s: float, work: Callable[[], Awaitable[T]]) -> T:
        """Do it; raises what it raises, and NeverEnded."""
        began_s = anyio.current_time()
        ended_s: float | None = None
        try:
            with anyio.move_on_after(deadline_s + GIVEN_UP_S):
                try:
                    return await work()
                finally:
                    if anyio.current_time() < began_s + deadline_s + GIVEN_UP_S:
                        ended_s = anyio.current_time()
            raise NeverEnded(f"{sort}: no end {GIVEN_UP_S} s after its deadline of {deadline_s} s")
        finally:
            self.history.calls.append(Call(sort, began_s, deadline_s, ended_s))

    async def pulse(self) -> None:
        """For ever: how long this process at most did not get to run."""
        while True:
            before_s = anyio.current_time()
            await anyio.sleep(PULSE_S)
            late_s = anyio.current_time() - before_s - PULSE_S
            self.history.stall_s = max(self.history.stall_s, late_s)


def outcome_of(error: TidemarkError | NeverEnded) -> Outcome:
    """Of a message that ended with this error."""
    if isinstance(error, NOT_WRITTEN) and not isinstance(error, OutcomeUnknown):
        return Outcome.ABSENT
    return Outcome.UNKNOWN
