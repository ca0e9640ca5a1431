"""What an append with a barrier tick needs to know of the oracle."""

from dataclasses import dataclass

from actors import Clock
from broker.model.ids import TimeTick
from broker.node.state.tick_cache import TickCache


@dataclass(frozen=True, slots=True)
class OracleView:
    """The oracle, seen through the tick cache of a node.

    `wait_s_max`: how long an append may wait for it to pass a barrier tick.
    """

    ticks: TickCache
    clock: Clock
    wait_s_max: float

    def passed(self, barrier: TimeTick) -> bool:
        """Whether the next tick is known to be above `barrier`."""
        return self.ticks.passed(barrier)

    async def position(self) -> TimeTick:
        """A tick that was issued within the last milliseconds. Raises Refused."""
        return await self.ticks.take(1, self.clock.monotonic_s())
