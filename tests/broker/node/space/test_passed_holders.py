"""Who loses messages by the retention of a collection is told, also by the next owner."""

from dataclasses import replace

import pytest

from actors.testing import run_seeded
from broker.meta.memory_store import MemoryMetaStore
from broker.meta.stored_recovery import StoredRecovery
from broker.model.failure import Refusal, StreamingCode
from broker.model.groups.consumer_group import GroupKey, GroupSnapshot
from broker.model.retention.holders import Hold, HolderKind
from broker.wal.memory_wal import MemoryWal
from tests.broker.node.space.test_held_space import LIMITS, HoldsOf
from tests.broker.node.space.test_purging import MINE, land, read
from tests.broker.node.space.test_readers_of_purged import end_scanner, take
from tests.broker.node.space.test_reclamation import SEGMENT_BYTES, fill
from tests.broker.node.space.test_retention_keeper import RetentionsFake, channel
from tests.broker.node.world import Reader, World, running_node

STRICT = replace(LIMITS, hold_bytes_max=SEGMENT_BYTES)
NAMED = [("cursor", "late"), ("group", f"slow on {MINE}")]
DAY_MS = 24 * 3600 * 1000


def named(world: World) -> list[tuple[str, str]]:
    return sorted((it.kind, it.name) for _, it in channel(world).passed())


@pytest.mark.parametrize("how", ["restart", "move, without the snapshot"])
def test_whoever_was_passed_is_told_and_named_by_the_next_owner(how: str) -> None:
    async def scenario() -> None:
        wal, held, limits = MemoryWal(segment_bytes=SEGMENT_BYTES), HoldsOf(), RetentionsFake()
        recovery = StoredRecovery(MemoryMetaStore())
        async with running_node(
            wal, STRICT, holds=held, retentions=limits, recovery=recovery
        ) as world:
            await world.assign()
            first, *_ = await land(world, "one", "two", "three")
            reader = Reader(world, MINE)
            await take(reader, 1)
            await end_scanner(world, reader)
            held.holds = [Hold(HolderKind.CURSOR, "late", tick=first.tick, until_ms=1)]
            saved = GroupSnapshot(GroupKey(MINE, "slow"), 30_000, at := first.tick, (), at, at)
            table = channel(world).groups.table
            table.groups = type(table)([saved]).groups
            await fill(world)
            limits.put(MINE, ms=1000)
            await world.clock.sleep(10)
            assert named(world) == NAMED
            clock = world.clock
        kept = recovery if how == "restart" else StoredRecovery(MemoryMetaStore())
        async with running_node(wal, LIMITS, clock=clock, recovery=kept) as world:
            await world.assign(term=5)
            await world.locate()
            assert named(world) == NAMED
            told = sorted(it for it in world.node.warnings() if "was passed" in it)
            assert ["'late'" in it for it in told] == [True, False]
            again = Reader(world, MINE)
            again.cursor = reader.cursor
            answer = await again.pull()
            assert isinstance(answer, Refusal), "two and three would be missing"
            assert answer.code is StreamingCode.UNRECOVERABLE
            assert await read(world, MINE) == []
            later_ms = clock.wall_ms() + 3 * DAY_MS
            assert list(channel(world).purges.passed(later_ms)) == [], "it is told for three days"

    run_seeded(1, scenario)
