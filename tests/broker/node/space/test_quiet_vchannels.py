"""Retention of vchannels that nobody appends to, after a restart: nothing is done for them."""

import anyio

from actors.testing import run_seeded
from broker.model.ids import PChannelName, Term
from broker.model.message import MessageType, NewMessage
from broker.model.retention.dead import Contents
from broker.model.retention.policy import Retention, SealedSegment
from broker.ports.space.collection_retentions import Retentions
from broker.wal.memory_wal import MemoryLog, MemoryWal
from tests.broker.node.space.test_held_space import LIMITS
from tests.broker.node.space.test_purging import MINE, land, read
from tests.broker.node.space.test_reclamation import SEGMENT_BYTES
from tests.broker.node.space.test_retention_keeper import RetentionsFake, channel, statistics
from tests.broker.node.world import PCHANNEL, message, running_node


def test_after_a_restart_a_vchannel_is_purged_only_if_it_has_messages() -> None:
    async def scenario() -> None:
        wal, limits = MemoryWal(segment_bytes=SEGMENT_BYTES), RetentionsFake(ms=10_000)
        async with running_node(wal, LIMITS, retentions=limits) as world:
            await world.assign()
            await land(world, "old")
            await world.clock.sleep(20)
            assert await read(world, MINE) == []
            upto = channel(world).purges.upto(MINE)
        async with running_node(wal, LIMITS, retentions=limits) as world:
            await world.assign(term=5)
            await world.clock.sleep(60)
            assert channel(world).purges.upto(MINE) == upto
            await land(world, "late")
        async with running_node(wal, LIMITS, retentions=limits) as world:
            await world.clock.sleep(1)
            await world.assign(term=9)
            assert await read(world, MINE) == [b"late"]
            await world.clock.sleep(20)
            assert await read(world, MINE) == []

    run_seeded(4, scenario)


class CountsReads(MemoryLog):
    """How often its active segment was read, which takes its time."""

    reads = 0

    async def contents(self, segment: SealedSegment | None) -> Contents:
        CountsReads.reads += segment is None
        await anyio.sleep(0.05)
        return await super().contents(segment)


class CountingWal(MemoryWal):
    async def open(self, channel: PChannelName, term: Term) -> MemoryLog:
        log = await super().open(channel, term)
        log.__class__ = CountsReads
        return log


def test_after_a_restart_of_a_busy_log_its_quiet_vchannels_are_looked_at_together() -> None:
    async def scenario() -> None:
        wal, limits = CountingWal(segment_bytes=64 << 20), RetentionsFake()
        quiet = [f"{PCHANNEL}_{number}v0" for number in range(100, 160)]
        limits.now = Retentions(1, dict.fromkeys(quiet, Retention(age_ms_max=5000)))
        async with running_node(wal, LIMITS, retentions=limits) as world:
            await world.assign()
            for it in quiet:
                await world.append(NewMessage(it, MessageType.INSERT, b"a", 1))
            await world.clock.sleep(20)
            assert all(channel(world).purges.upto(it) for it in quiet)
        async with running_node(wal, LIMITS, retentions=limits) as world:
            await world.assign(term=5)
            CountsReads.reads = 0
            for _ in range(500):
                await world.append(message("busy", shard=1))
                await world.clock.sleep(0.02)
            assert CountsReads.reads < 5
            assert statistics(world)["purges"] == 0

    run_seeded(1, scenario)
