"""Passes that a log cannot serve now: nothing is taken for done, and other pchannels go on."""

from collections.abc import Callable

import pytest

from actors.testing import run_seeded
from broker.model.ids import PChannelName, Term
from broker.model.message import Appended
from broker.model.record import Record
from broker.model.retention.policy import SealedSegment
from broker.ports.wal import Judge, WalError
from broker.wal.alter.placed_log import PlacedLog
from broker.wal.memory_wal import MemoryLog, MemoryWal
from tests.broker.node.compaction.keyed_world import (
    LIMITS,
    CompactedCatalog,
    Keyed,
    everything,
    keyed,
    statistics,
)
from tests.broker.node.compaction.test_left_alone import fill
from tests.broker.node.space.test_readers_of_purged import MovedWal
from tests.broker.node.world import OTHER, PCHANNEL, World, running_node

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
        sent, catalog = Keyed(), CompactedCatalog()
        wal = SealsBeforeWal(segment_bytes=SEGMENT_BYTES)
        async with running_node(wal, LIMITS, catalog=catalog) as world:
            await world.assign()
            await fill(world, sent)
            before = (await world.offsets()).size_bytes
            await world.clock.sleep(30)
            assert SealsBefore.seals < 100
            assert statistics(world)["failures"] == 0
            SealsBefore.seals = 0
            await world.clock.sleep(60)
            assert (await world.offsets()).size_bytes < 0.7 * before
            assert sent.state(await everything(world)) == sent.state()

    run_seeded(1, scenario)


def test_tombstones_go_also_from_an_idle_log_that_was_sealed_after_its_last_record() -> None:
    async def scenario() -> None:
        sent, catalog = Keyed(), CompactedCatalog(tombstone_ms=50_000)
        async with running_node(MemoryWal(segment_bytes=2000), LIMITS, catalog=catalog) as world:
            sent.world = world
            await world.assign()
            await sent.append([(b"gone", b"1")])
            await sent.append([(b"gone", b"")])
            for number in range(40):
                await sent.append([(b"other", b"%03d" % number * 100)])
            await world.clock.sleep(20)
            (channel,) = world.node.open_channels.all()
            await channel.log.seal()  # as truncation does with an old active segment
            assert channel.log.segments()[-1].next_id == channel.log.bounds().next_id
            assert b"gone" in {it.key for it in await everything(world)}
            await world.clock.sleep(100)
            assert b"gone" not in {it.key for it in await everything(world)}

    run_seeded(4, scenario)


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
        sent, catalog, wal = Keyed(), CompactedCatalog(), HeldWal()
        async with running_node(wal, LIMITS, catalog=catalog) as world:
            await world.assign()
            await fill(world, sent)
            before = (await world.offsets()).size_bytes
            await world.clock.sleep(30)
            assert wal.logs[0].held
            wal.logs[0].release()
            await world.clock.sleep(60)
            assert (await world.offsets()).size_bytes < 0.7 * before
            assert sent.state(await everything(world)) == sent.state()

    run_seeded(2, scenario)


class Sick(MemoryLog):
    """While it is sick, nothing can be rewritten in the log of the first pchannel."""

    sick = True
    tries = 0

    async def thin(self, segment: SealedSegment, judge: Judge) -> int:
        if Sick.sick and self._channel == PCHANNEL:
            Sick.tries += 1
            raise WalError("cannot give back space: Input/output error")
        return await super().thin(segment, judge)


class SickWal(MemoryWal):
    async def open(self, channel: PChannelName, term: Term) -> MemoryLog:
        opened = await super().open(channel, term)
        opened.__class__ = Sick
        return opened


async def fill_both(world: World) -> list[int]:
    """Two logs with superseded messages, and their sizes."""
    for name in (PCHANNEL, OTHER):
        await world.assign(name)
        for number in range(60):
            rows = [(b"%d" % (number % 4), b"%03d" % number * 100)]
            (done,) = await world.append(keyed(rows, vchannel=f"{name}_7v0"), name=name)
            assert isinstance(done, Appended)
    return [(await world.offsets(it)).size_bytes for it in (PCHANNEL, OTHER)]


def test_a_pchannel_that_cannot_be_rewritten_holds_up_no_other_and_its_log_does_not_grow() -> None:
    async def scenario() -> None:
        Sick.sick, Sick.tries = True, 0
        wal, catalog = SickWal(segment_bytes=SEGMENT_BYTES), CompactedCatalog()
        async with running_node(wal, LIMITS, catalog=catalog) as world:
            before = await fill_both(world)
            await world.clock.sleep(60)
            assert (await world.offsets(OTHER)).size_bytes < 0.6 * before[1]
            assert 3 < Sick.tries < 9, "each time it waits for twice as long"
            passed = statistics(world)["passes"]
            grown_to = (await world.offsets()).next_id
            await world.clock.sleep(300)
            assert (await world.offsets()).next_id - grown_to < 3
            assert statistics(world)["passes"] == passed
            Sick.sick = False
            await world.clock.sleep(70)
            assert (await world.offsets()).size_bytes < 0.6 * before[0]

    run_seeded(3, scenario)
