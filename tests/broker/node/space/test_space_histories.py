"""Random appends, purges, limits, holds, drops and kills, against a list of messages.

What somebody holds stays, and so does what no purge or limit has reached. What nobody needs is gone
in the end, and its space is back.
"""

import random
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf

import pytest

from actors import ActorError
from actors.testing import run_seeded
from broker.meta.memory_store import MemoryMetaStore
from broker.meta.stored_recovery import StoredRecovery
from broker.model.ids import TICK_LOGICAL_BITS, TimeTick
from broker.model.message import Appended
from broker.model.retention.holders import Hold, HolderKind
from broker.model.retention.purge import Purge
from broker.node.space.purging import PurgeVChannel
from broker.wal.memory_wal import MemoryWal
from tests.broker.node.space.test_held_space import LIMITS, HoldsOf
from tests.broker.node.space.test_purging import MINE, OTHERS, read
from tests.broker.node.space.test_reclamation import SEGMENT_BYTES, CatalogFake, size
from tests.broker.node.space.test_retention_keeper import RetentionsFake, channel
from tests.broker.node.world import World, message, running_node

STEPS, LIVES = 25, 4
KILLED = (
    "/root/node/retention_keeper",
    "/root/node/purging",
    "/root/node/reclamation",
    "recovery",
    "appender",
)
BODY = "x" * 3000


@dataclass
class Naive:
    """`stored`: what is in MINE, by tick. `reach`: up to there it may be gone; `gone`: it is."""

    stored: dict[TimeTick, bytes] = field(default_factory=dict)
    reach: float = 0
    gone: int = 0
    held: float = inf

    def reaches(self, upto: float) -> None:
        self.reach = max(self.reach, min(upto, self.held))

    def check(self, found: list[bytes]) -> None:
        bodies = list(self.stored.values())
        assert found == bodies[len(bodies) - len(found) :], "the newest, each once, in order"
        first = len(bodies) - len(found)
        lost = list(self.stored)[:first]
        assert not lost or lost[-1] <= self.reach, "what is held or not due is still there"
        assert all(tick > self.gone for tick in list(self.stored)[first:]), "what is purged is gone"


@dataclass
class Story:
    """Random steps on one node at a time, whose log, metadata and holders outlive it."""

    chosen: random.Random
    wal: MemoryWal = field(default_factory=lambda: MemoryWal(segment_bytes=SEGMENT_BYTES))
    recovery: StoredRecovery = field(default_factory=lambda: StoredRecovery(MemoryMetaStore()))
    limits: RetentionsFake = field(default_factory=RetentionsFake)
    holds: HoldsOf = field(default_factory=HoldsOf)
    catalog: CatalogFake = field(default_factory=CatalogFake)
    naive: Naive = field(default_factory=Naive)
    number: int = 0
    age_ms: int = 0

    async def live(self, world: World) -> None:
        steps = (self.append, self.append, self.purge, self.limit, self.hold, self.kill)
        for _ in range(STEPS):
            await self.chosen.choice(steps)(world)
            await world.clock.sleep(self.chosen.choice((0.0, 0.3, 2.0)))
            self.due(world)
            self.naive.check(await read(world, MINE))

    def due(self, world: World) -> None:
        """What the limit may have removed by now."""
        if self.age_ms:
            self.naive.reaches((world.clock.wall_ms() - self.age_ms) << TICK_LOGICAL_BITS)

    async def append(self, world: World) -> None:
        for shard in (0, 0, 1):
            self.number += 1
            text = f"{self.number} {BODY}"
            (landed,) = await world.append(message(text, shard=shard))
            assert isinstance(landed, Appended), landed
            if not shard:
                self.naive.stored[landed.tick] = text.encode()

    async def purge(self, world: World) -> None:
        ticks = [it for it in self.naive.stored if it <= channel(world).tail.closed.tick]
        if not ticks:
            return
        upto = self.chosen.choice(ticks)
        with suppress(ActorError):
            purging = world.system.find("/root/node/purging")
            done = await purging.ask(PurgeVChannel(MINE, upto), deadline_s=60.0)
            if isinstance(done, Purge):
                assert upto <= max(self.naive.held, self.naive.reach), "held"
                self.naive.gone = max(self.naive.gone, upto)
                self.naive.reach = max(self.naive.reach, upto)

    async def limit(self, world: World) -> None:
        self.due(world)
        self.age_ms = self.chosen.choice((0, 1000, 3000, 10_000))
        self.limits.put(MINE, ms=self.age_ms)
        # The one before may be in force a little longer.
        await world.clock.sleep(2.0)

    async def hold(self, world: World) -> None:
        """A cursor comes where nothing is gone yet, moves on, or ends."""
        self.due(world)
        left = [it for it in self.naive.stored if it > max(self.naive.reach, self.naive.gone)]
        if (self.holds.holds and self.chosen.random() < 0.5) or not left:
            self.holds.holds, self.naive.held = [], inf
            return
        tick = self.chosen.choice(left)
        self.holds.holds = [Hold(HolderKind.CURSOR, "late", tick=tick)]
        self.naive.held = tick

    async def kill(self, world: World) -> None:
        victim = self.chosen.choice(KILLED)
        world.system.kill(victim if victim.startswith("/") else world.path(victim))
        await world.clock.sleep(1.0)
        await world.locate()


@pytest.mark.parametrize("seed", range(12))
def test_nothing_held_is_given_back_and_what_nobody_needs_is(seed: int) -> None:
    story = Story(random.Random(seed))

    async def scenario() -> None:
        clock = None
        for life in range(LIVES):
            async with running_node(
                story.wal,
                LIMITS,
                clock=clock,
                recovery=story.recovery,
                holds=story.holds,
                catalog=story.catalog,
                retentions=story.limits,
            ) as world:
                clock = world.clock
                await world.assign(term=1 + 100 * life)
                await world.locate()
                story.naive.check(await read(world, MINE))
                await story.live(world)
                if life == LIVES - 1:
                    story.holds.holds = []
                    story.limits.put(MINE, ms=1000)
                    story.catalog.drop(OTHERS)
                    await clock.sleep(60)
                    assert await read(world, MINE) == []
                    assert await size(world) < 2 * SEGMENT_BYTES

    run_seeded(seed, scenario)
