"""A pass that could change nothing does not begin, whatever the limits of a collection are."""

import pytest

from actors.testing import run_seeded
from broker.model.message import Appended
from broker.wal.memory_wal import MemoryWal
from schemas.encoding.entries import write_entry
from tests.broker.node.compaction.keyed_world import (
    LIMITS,
    CompactedCatalog,
    Keyed,
    everything,
    statistics,
)
from tests.broker.node.compaction.keyed_world import keyed as batch_of
from tests.broker.node.world import PCHANNEL, running_node

PASSES_MAX = 8


@pytest.mark.parametrize("tombstone_ms", [0, 100])
def test_a_tombstone_that_has_to_stay_has_no_pass_after_the_other(tombstone_ms: int) -> None:
    async def scenario() -> None:
        keyed, catalog = Keyed(), CompactedCatalog(tombstone_ms=tombstone_ms)
        async with running_node(MemoryWal(segment_bytes=2000), LIMITS, catalog=catalog) as world:
            keyed.world = world
            await world.assign()
            # What the tombstone deletes stays: it is delayed, and no group was given it.
            properties = write_entry(b"\x1a", "_deliver_at", f"{10**14}")
            (held,) = await world.append(batch_of([(b"gone", b"y")], properties=properties))
            assert isinstance(held, Appended)
            await keyed.append([(b"gone", b"")])
            for number in range(40):
                await keyed.append([(b"other", b"%03d" % number * 50)])
            await world.clock.sleep(60)
            found = await everything(world)
            assert [it.payload for it in found if it.key == b"gone"] == [b"y", b""]
            assert 1 <= int(statistics(world)["passes"]) <= PASSES_MAX

    run_seeded(1, scenario)


def test_what_is_too_young_to_go_is_not_looked_at_again_and_again() -> None:
    async def scenario() -> None:
        keyed, catalog = Keyed(), CompactedCatalog(lag_ms=60_000)
        async with running_node(MemoryWal(segment_bytes=2000), LIMITS, catalog=catalog) as world:
            keyed.world = world
            await world.assign()
            for number in range(40):
                await keyed.append([(b"k", b"%03d" % number * 50)])
                await world.clock.sleep(1)
            await world.clock.sleep(15)
            assert int(statistics(world)["passes"]) <= PASSES_MAX
            await world.clock.sleep(120)
            found = await everything(world)
            assert len(found) < 20
            assert keyed.state(found) == keyed.state()

    run_seeded(2, scenario)


def test_the_more_segments_there_are_the_seldomer_one_is_sealed() -> None:
    async def scenario() -> None:
        keyed, catalog, turns = Keyed(), CompactedCatalog(), 200
        async with running_node(MemoryWal(segment_bytes=64_000), LIMITS, catalog=catalog) as world:
            keyed.world = world
            await world.assign()
            for number in range(turns):
                for _ in range(4):
                    await keyed.append([(b"k", b"%03d" % number * 100)])
                await world.clock.sleep(1.1)
            found = world.node.open_channels.find(PCHANNEL)
            assert found is not None
            assert 50 < len(found.log.segments()) < turns * 3 // 4
            assert found.log.bounds().size_bytes < 30_000
            assert keyed.state(await everything(world)) == keyed.state()

    run_seeded(3, scenario)
