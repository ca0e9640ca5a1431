"""Time synchronisation as a tree of its own, over pchannels whose ticks a test sets."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from actors import System
from actors.testing import EPOCH_MS, VirtualClock, run_seeded
from broker.core.naming import pchannel_names
from broker.core.time import tso
from broker.meta.memory_store import MemoryMetaStore
from broker.model.barrier import BarrierKind, BarrierView
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import PChannelName, TimeTick
from broker.timesync.messages import (
    Join,
    ListBarriers,
    NextTicks,
    PassedTicks,
    Reported,
    ReportTick,
)
from broker.timesync.timing import TimesyncTiming
from broker.timesync.tree import TimesyncParts, timesync_tree

ROOT = "/timesync"
SOFT, HARD, PRODUCER = f"{ROOT}/soft_barrier", f"{ROOT}/hard_barrier", f"{ROOT}/tick_producer"
NAMES = pchannel_names("by-dev", 3)
WITHIN_S = 5.0
TIMING = TimesyncTiming(poll_s=0.2, interval_ms=500, pchannel_lease_s=10.0)


@dataclass
class FakePChannels:
    """Pchannels that are closed up to now, but those in `stuck`; `absent` ones serve nowhere."""

    clock: VirtualClock
    names: Sequence[PChannelName] = NAMES
    stuck: dict[PChannelName, TimeTick] = field(default_factory=dict)
    absent: set[PChannelName] = field(default_factory=set)
    down: bool = False
    looks: int = 0

    async def closed_ticks(self) -> Mapping[PChannelName, TimeTick]:
        self.looks += 1
        if self.down:
            raise Refused(StreamingCode.INNER, "the node is down")
        tick = now_tick(self.clock)
        return {it: self.stuck.get(it, tick) for it in self.names if it not in self.absent}


@dataclass
class World:
    """What a test holds."""

    clock: VirtualClock
    pchannels: FakePChannels
    system: System

    async def join(
        self,
        barrier: str,
        peer: str,
        *,
        kind: BarrierKind = BarrierKind.HARD,
        lease_s: float = 10.0,
        interval_ms: int = 0,
    ) -> int:
        path = SOFT if kind is BarrierKind.SOFT else HARD
        join = Join(barrier, kind, peer, lease_s, interval_ms)
        return (await self.system.find(path).ask(join, deadline_s=WITHIN_S)).lease_id

    async def report(
        self, barrier: str, peer: str, lease_id: int, tick: int, path: str = HARD
    ) -> Reported:
        report = ReportTick(barrier, peer, lease_id, TimeTick(tick))
        return await self.system.find(path).ask(report, deadline_s=WITHIN_S)

    async def next_ticks(
        self, barrier: str, after: int = 0, path: str = HARD
    ) -> PassedTicks | None:
        question = NextTicks(barrier, TimeTick(after))
        answer = await self.system.find(path).ask(question, deadline_s=WITHIN_S)
        assert answer is None or isinstance(answer, PassedTicks)
        return answer

    async def barriers(self, path: str = HARD) -> dict[str, BarrierView]:
        found = await self.system.find(path).ask(ListBarriers(), deadline_s=WITHIN_S)
        return {view.name: view for view in found}

    def statistics(self, path: str) -> Mapping[str, object]:
        (found,) = [it.extra for it in self.system.statistics() if it.path == path]
        return found


def now_tick(clock: VirtualClock) -> TimeTick:
    return tso.compose(clock.wall_ms(), 0)


def tick_at(seconds: float) -> TimeTick:
    """The tick of a moment of virtual time."""
    return tso.compose(EPOCH_MS + round(seconds * 1000), 0)


def play(seed: int, test: Callable[[World], Awaitable[None]]) -> None:
    """Run it on a seeded loop, with the pchannels looked at for the first time."""

    async def main() -> None:
        clock = VirtualClock()
        pchannels = FakePChannels(clock)
        spec = timesync_tree(TimesyncParts(MemoryMetaStore(), pchannels, NAMES, TIMING), "")
        async with System(spec, clock=clock) as system:
            await clock.sleep(0.3)
            await test(World(clock, pchannels, system))

    run_seeded(seed, main)
