"""Moves the logs of a node's pchannels to another driver while they serve."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from broker.model.ids import PChannelName
from broker.ports.wal import Log

Work = Callable[[], Awaitable[None]]
AtRest = Callable[[Work], Awaitable[None]]
"""Runs the work while nobody appends to the log, and raises what it raises."""


class LogSwitch(Protocol):
    """What the metadata says is to be done, done in steps. One call at a time."""

    async def look(self) -> bool:
        """Whether there is something to do for the pchannels here; one read. Raises MetaError."""
        ...

    async def step(self, name: PChannelName, log: Log, at_rest: AtRest) -> bool:
        """Do a step for an open log, some 0.2 s of work; whether the next one should follow soon.

        Failures are recorded with the switch, and tried again by the next step. Raises MetaError.
        """
        ...

    async def advance(self) -> None:
        """Enter the next stage if all pchannels of the cluster are through. Raises MetaError."""
        ...

    def warnings(self) -> Sequence[str]:
        """What keeps the switch from going on, for the operator; a sentence each. No I/O."""
        ...


class NoLogSwitch:
    """Of a node whose logs stay where they are."""

    async def look(self) -> bool:
        return False

    async def step(self, name: PChannelName, log: Log, at_rest: AtRest) -> bool:
        return False

    async def advance(self) -> None:
        pass

    def warnings(self) -> Sequence[str]:
        return ()
