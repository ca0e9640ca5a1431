"""The owner of a log that asks the Cursors who holds what, and removes the rest.

The log has a tick a message. Each step of a removal is one function, so that anything may happen
between two of them.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from actors import ActorError, Request, System
from actors.testing import VirtualClock, run_seeded
from broker.core.space.removal import removal
from broker.meta.memory_store import MemoryMetaStore
from broker.model.failure import Refusal, Refused
from broker.model.ids import MessageId, PChannelName, TimeTick
from broker.model.named_cursor import ChannelPosition
from broker.model.retention.holders import Hold, Removal
from broker.model.retention.policy import HoldLimits, LogStart
from broker.ports.meta import MetaStore
from broker.timesync.holds.ledger import HeldFigures, HoldRule
from broker.timesync.messages import (
    AllowRemovals,
    FindHolds,
)
from broker.timesync.tree import TimesyncParts, timesync_tree
from tests.broker.coordinator.fakes import ShakyStore
from tests.broker.timesync.fakes import NAMES, TIMING, FakePChannels

PATH = "/timesync/cursors"
P: PChannelName = NAMES[0]
SHARD = f"{P}_7v0"
LIMITS = HoldLimits(bytes_max=12, age_s_max=5)
WITHIN_S = 5.0
CURSORS = ("a", "b", "c")
T = TypeVar("T")


@dataclass(frozen=True)
class Segment:
    next_id: MessageId
    last_tick: TimeTick
    size_bytes: int


@dataclass
class Log:
    """Ids and ticks are the same number, two a segment, each of a byte."""

    first_id: int = 1
    next_id: int = 1

    def due(self, kept: int) -> list[Segment]:
        ends = range(self.first_id + 2, self.next_id - kept + 1, 2)
        return [Segment(MessageId(end), TimeTick(end - 1), 2) for end in ends]

    def start(self) -> LogStart:
        return LogStart(MessageId(self.first_id), TimeTick(self.first_id - 1))


@dataclass
class World:
    clock: VirtualClock
    store: ShakyStore
    rule: HoldRule
    figures: HeldFigures
    system: System
    log: Log = field(default_factory=Log)
    known: list[Hold] | None = None
    decided: Removal | None = None
    allowed: bool = False
    promised: int = 1
    """Ids below it may be removed at any time: that was allowed, whoever died since."""

    async def ask(self, request: Request[T]) -> T:
        return await self.system.find(PATH).ask(request, deadline_s=WITHIN_S)

    async def refused(self, request: Request[T]) -> Refusal | None:
        """Why the request was refused; None if it was not."""
        try:
            await self.ask(request)
        except Refused as error:
            return error.refusal
        return None


def at(tick: int) -> dict[str, ChannelPosition]:
    return {SHARD: ChannelPosition(TimeTick(tick), from_id=MessageId(tick + 1))}


def parts(world_store: MetaStore, clock: VirtualClock, rule: HoldRule, held: HeldFigures):  # type: ignore[no-untyped-def]
    return timesync_tree(
        TimesyncParts(world_store, FakePChannels(clock), NAMES, TIMING, holds=rule, held=held), ""
    )


def play(test: Callable[[World], Awaitable[None]], limits: HoldLimits = LIMITS) -> None:
    async def main() -> None:
        clock, store = VirtualClock(), ShakyStore(MemoryMetaStore())
        rule, held = HoldRule(limits), HeldFigures()
        async with System(parts(store, clock, rule, held), clock=clock) as system:
            await test(World(clock, store, rule, held, system))

    run_seeded(1, main)


async def die(world: World, _: str, __: int) -> None:
    before = world.system.find(PATH)
    world.system.kill(PATH)
    while True:
        try:
            if world.system.find(PATH) != before:
                return
        except ActorError:
            pass
        await world.clock.sleep(0.05)


async def find(world: World, _: str, __: int) -> None:
    found = await world.ask(FindHolds({P: world.log.start()}))
    world.known, world.decided, world.allowed = list(found[P]), None, False


async def decide(world: World, _: str, number: int) -> None:
    if world.known is None or world.decided is not None:
        return
    due = world.log.due(number % 7)
    holds = [replace(it, from_id=MessageId(max(it.from_id, it.tick + 1))) for it in world.known]
    first_id = MessageId(world.log.first_id)
    world.decided = removal(due, first_id, holds, world.clock.wall_ms())


async def allow(world: World, _: str, __: int) -> None:
    if world.decided is not None and not world.allowed:
        world.allowed = P in await world.ask(AllowRemovals({P: world.decided}))
        if world.allowed:
            world.promised = max(world.promised, int(world.decided.first_id))
        else:
            world.known = world.decided = None


async def remove(world: World, _: str, number: int) -> None:
    if world.decided is not None and world.allowed:
        # The owner may die before that, too; then the next one asks again.
        if number % 5:
            world.log.first_id = max(world.log.first_id, int(world.decided.first_id))
        world.known, world.decided, world.allowed = None, None, False


async def round_of(world: World, kept: int = 0) -> bool:
    """One round of an owner, to the end; whether it removed what it had decided."""
    await find(world, "", 0)
    await decide(world, "", kept)
    await allow(world, "", 0)
    allowed = world.allowed
    await remove(world, "", 1)
    return allowed
