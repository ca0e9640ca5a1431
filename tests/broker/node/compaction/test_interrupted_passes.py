"""Passes that a log cannot serve now: nothing is taken for done, and other pchannels go on."""

from collections.abc import Callable

import pytest

from actors.testing import run_seeded
from broker.model.ids import PChannelName, Term
from broker.model.record import Record
from broker.model.retention.policy import SealedSegment
from broker.ports.wal import Judge
from broker.wal.alter.placed_log import PlacedLog
from broker.wal.memory_wal import MemoryLog, MemoryWal
from tests.broker.node.compaction.keyed_world import (
    LIMITS,
    CompactedCatalog,
    Keyed,
    everything,
    statistics,
)
from tests.broker.node.compaction.test_left_alone import fill
from tests.broker.node.space.test_readers_of_purged import MovedWal
from tests.broker.node.world import running_node

SEGMENT_BYTES = 8192


class SealsBefore(MemoryLog):
    """Another actor has the log sealed just before a segment is rewritten; so many times."""

    seals = 0

    async def thin(self, segment: SealedSegment, judge: Judge) -> int:
        if SealsBefore.seals:
            SealsBefore.seals -= 1
            self._stored.seal()
        return await super().thin(segment, judge)


class SealsBeforeWal(MemoryWal):
    async def open(self, channel: PChannelName, term: Term) -> MemoryLog:
        opened = await super().open(channel, term)
        opened.__class__ = SealsBefore
        return opened


def test_what_cannot_be_rewritten_right_after_a_seal_is_rewritten_by_a_later_pass() -> None:
    async def scenario() -> None:
        SealsBefore.seals = 100
        keyed, catalog = Keyed(), CompactedCatalog()
        wal = SealsBeforeWal(segment_bytes=SEGMENT_BYTES)
        async with running_node(wal, LIMITS, catalog=catalog) as world:
            await world.assign()
            await fill(world, keyed)
            before = (await world.offsets()).size_bytes
            await world.clock.sleep(30)
            assert SealsBefore.seals < 100
            assert statistics(world)["failures"] == 0
            SealsBefore.seals = 0
            await world.clock.sleep(60)
            assert (await world.offsets()).size_bytes < 0.7 * before
            assert keyed.state(await everything(world)) == keyed.state()

    run_seeded(1, scenario)


class HeldAfterLook(PlacedLog):
    """A switch of the log begins while a segment is looked at: after `looks` of them."""

    looks = 0

    async def look(self, segment: SealedSegment, use: Callable[[Record], bool]) -> bool:
        found = await super().look(segment, use)
        HeldAfterLook.looks -= 1
        if not HeldAfterLook.looks:
            await self.hold()
        return found


class HeldWal(MovedWal):
    async def open(self, channel: PChannelName, term: Term) -> PlacedLog:
        opened = await MemoryWal(segment_bytes=SEGMENT_BYTES).open(channel, term)
        self.logs.append(HeldAfterLook(opened, "here"))
        return self.logs[-1]


@pytest.mark.parametrize("looks", [1, 3, 4, 5])
def test_what_a_switch_interrupts_is_compacted_after_it_was_aborted(looks: int) -> None:
    async def scenario() -> None:
        HeldAfterLook.looks = looks
        keyed, catalog, wal = Keyed(), CompactedCatalog(), HeldWal()
        async with running_node(wal, LIMITS, catalog=catalog) as world:
            await world.assign()
            await fill(world, keyed)
            before = (await world.offsets()).size_bytes
            await world.clock.sleep(30)
            assert wal.logs[0].held
            wal.logs[0].release()
            await world.clock.sleep(60)
            assert (await world.offsets()).size_bytes < 0.7 * before
            assert keyed.state(await everything(world)) == keyed.state()

    run_seeded(2, scenario)
