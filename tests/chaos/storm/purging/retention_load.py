"""Who writes to a collection with a retention during a storm, changes its limits, and lags behind.

A group reads one of its vchannels: what it has not acknowledged stays, however old. Nobody reads
the other one, so that it is empty in the end.
"""

import random
from collections.abc import Mapping, Sequence

import anyio
from anyio.abc import TaskGroup

from actors import SystemClock
from broker.core.time.tso import physical_ms_of
from broker.model.ids import TimeTick
from tests.chaos.storm.checkers import Violation
from tests.chaos.storm.patience import MOST_S, patient
from tests.chaos.storm.purging.purge_load import FAILURES, LOOK_S, PurgeLoad

NAME = "retained"
LIMITS = (
    {"retention_ms": 1000},
    {"retention_ms": 3000, "retention_bytes": 1 << 17},
    {"retention_ms": -1, "retention_bytes": 1 << 17},
    {"retention_ms": -1, "retention_bytes": -1},
)
SHORT = LIMITS[0]
ALTER_S, EVERY_S = 20.0, 4.0


def old_enough(found: Mapping[bytes, int], wall_ms: int) -> Mapping[bytes, int]:
    """Those that the shortest limit gives up by now: by the time of their ticks.

    After a clock was minutes ahead, ticks are, too, and what has them is kept for so much longer.
    """
    upto_ms = wall_ms - SHORT["retention_ms"]
    return {it: tick for it, tick in found.items() if physical_ms_of(TimeTick(tick)) < upto_ms}


class RetentionLoad(PurgeLoad):
    """Made without vchannels: they are those of its collection."""

    async def found(self) -> None:
        """Make the collection, and the group, which needs all of one vchannel."""
        # Without limits yet: nothing may go before the group is there.
        made = await self.log.collections.create(NAME, shards=2)
        self.vchannels, self.unread = made.vchannels, made.vchannels[1:]
        self.recorder.history.purges.retained |= set(made.vchannels)
        await super().found()

    def start(self, tasks: TaskGroup) -> None:
        """Workers that end by themselves once there is `enough`."""
        for vchannel in self.vchannels:
            reads = () if vchannel in self.unread else (self._reads, self._looks)
            for work in (self._writes, self._transacts, *reads):
                tasks.start_soon(self._again, work, vchannel)
        tasks.start_soon(self._again, self._alters, NAME)

    async def empty(self) -> Sequence[Violation]:
        """Wait until nothing is left where nobody reads. Raises TidemarkError, TimeoutError."""
        await self.recorder.call(
            "alter retention",
            MOST_S,
            lambda: self.log.collections.alter(NAME, **SHORT),  # type: ignore[arg-type]
        )
        (vchannel,) = self.unread
        looks = self.recorder.history.purges.looks
        with patient() as patience:
            while True:
                await self.look(vchannel, MOST_S)
                left = old_enough(looks[-1].found, SystemClock().wall_ms())
                if not left and not looks[-1].torn:
                    return []
                patience.saw(len(left))
                await anyio.sleep(0.2)
        text = f"{len(left)} messages are left {patience.waited}: {looks[-1].torn}"
        return [Violation("purge by retention left out", text, vchannel)]

    async def _looks(self, _: random.Random, vchannel: str, __: int) -> None:
        await anyio.sleep(EVERY_S)
        try:
            await self.look(vchannel, LOOK_S)
        except TimeoutError:
            return

    async def _alters(self, chosen: random.Random, name: str, _: int) -> None:
        limits = chosen.choice(LIMITS)
        try:
            await self.recorder.call(
                "alter retention",
                ALTER_S,
                lambda: self.log.collections.alter(name, **limits),  # type: ignore[arg-type]
            )
        except FAILURES:
            return
        finally:
            await anyio.sleep(chosen.uniform(0.5, EVERY_S))
