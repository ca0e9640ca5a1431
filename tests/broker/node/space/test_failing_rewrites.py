"""A segment or a pchannel whose space cannot be given back keeps no other from giving theirs."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from actors.testing import run_seeded
from broker.model.ids import MessageId, PChannelName, Term
from broker.model.message import MessageType, NewMessage
from broker.model.record import Record
from broker.model.retention.dead import Dead
from broker.model.retention.policy import SealedSegment
from broker.ports.wal import Corrupt, WalError
from broker.wal.memory_wal import MemoryLog, MemoryWal
from tests.broker.node.space.test_held_space import LIMITS, HoldsOf, cursor
from tests.broker.node.space.test_reclamation import (
    BODY,
    DROPPED,
    SEGMENT_BYTES,
    CatalogFake,
    fill,
    size,
    statistics,
)
from tests.broker.node.world import OTHER, PCHANNEL, World, running_node


class FailingLog(MemoryLog):
    """As its wal says."""

    wal: "FailingWal"

    async def give_back(self, segment: SealedSegment, dead: Dead) -> int:
        wal = self.wal
        if wal.world is not None and segment.next_id == (wal.too_large or segment.next_id):
            wal.too_large = segment.next_id
            wal.tries.append(wal.world.clock.monotonic_s())
            await wal.world.clock.sleep(0.3)
            raise WalError("No space left on device")
        return await super().give_back(segment, dead)

    async def read(self, from_id: MessageId, bytes_max: int) -> Sequence[Record]:
        if self._channel in self.wal.damaged:
            raise Corrupt("c/1.log", 4096, "the checksum does not match")
        return await super().read(from_id, bytes_max)


class FailingWal(MemoryWal):
    """From when `world` is set, there is no room to rewrite the segment that is tried first."""

    world: World | None = None
    too_large = MessageId(0)

    def __init__(self) -> None:
        super().__init__(segment_bytes=SEGMENT_BYTES)
        self.tries: list[float] = []
        self.damaged: set[PChannelName] = set()

    async def open(self, channel: PChannelName, term: Term) -> MemoryLog:
        log = await super().open(channel, term)
        log.__class__ = FailingLog
        assert isinstance(log, FailingLog)
        log.wal = self
        return log


def test_a_held_segment_that_finds_no_room_is_tried_each_period_and_holds_up_no_other() -> None:
    async def scenario() -> None:
        catalog, held, wal = CatalogFake(), HoldsOf(cursor(1)), FailingWal()
        limits = replace(LIMITS, retention_period_s=10.0)
        async with running_node(wal, limits, catalog=catalog, holds=held) as world:
            await world.assign()
            await fill(world)
            before = await size(world)
            catalog.drop(DROPPED)
            await world.clock.sleep(30)
            assert int(statistics(world)["held_segments"]) > 2
            wal.world, held.holds = world, []
            await world.clock.sleep(100)
            assert await size(world) < 0.5 * before
            assert statistics(world)["held_segments"] == 1
            assert "No space left" in str(statistics(world)["error"])
            gaps = [after - at for at, after in zip(wal.tries, wal.tries[1:], strict=False)]
            assert len(gaps) > 5
            assert max(gaps) < 12

    run_seeded(10, scenario)


@pytest.mark.parametrize("is_held", [True, False])
def test_a_damaged_pchannel_holds_up_no_other(is_held: bool) -> None:
    async def scenario() -> None:
        catalog, wal = CatalogFake(), FailingWal()
        held = HoldsOf(*([cursor(1)] if is_held else []))
        async with running_node(wal, LIMITS, catalog=catalog, holds=held) as world:
            for name in (PCHANNEL, OTHER):
                await world.assign(name)
                for _ in range(100):
                    one = NewMessage(f"{name}_7v0", MessageType.INSERT, BODY.encode(), len(BODY))
                    await world.append(one, name=name)
            await world.clock.sleep(2)
            before = (await world.offsets(OTHER)).size_bytes
            if not is_held:
                wal.damaged.add(PCHANNEL)
            catalog.drop(f"{PCHANNEL}_7v0", f"{OTHER}_7v0")
            await world.clock.sleep(10)
            wal.damaged.add(PCHANNEL)
            held.holds = []
            await world.clock.sleep(60)
            assert (await world.offsets(OTHER)).size_bytes < 0.3 * before

    run_seeded(3, scenario)
