"""What a pass leaves alone, and when none begins."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from actors.testing import run_seeded
from broker.model.batch import Codec
from broker.model.groups.consumer_group import TickSpan
from broker.model.ids import CollectionId, TimeTick
from broker.model.retention.compaction import Compaction
from broker.node.compaction.held_messages import HeldMessages
from broker.wal.memory_wal import MemoryWal
from schemas.encoding.entries import write_entry
from tests.broker.core.compaction.compacted_log import batch
from tests.broker.core.txn.test_transactions import V, Writer
from tests.broker.node.compaction.keyed_world import (
    HEADERS,
    LIMITS,
    VCHANNEL,
    CompactedCatalog,
    Keyed,
    everything,
    statistics,
)
from tests.broker.node.world import PCHANNEL, World, running_node


async def fill(world: World, keyed: Keyed, codec: Codec = Codec.NONE) -> None:
    keyed.world = world
    for number in range(60):
        rows = [(b"%d" % (number % 4), b"%03d" % number * 100), (None, b"no key %d" % number)]
        await keyed.append(rows, codec)


def test_messages_without_a_key_stay_and_what_is_younger_than_the_lag_too() -> None:
    async def scenario() -> None:
        keyed, catalog = Keyed(), CompactedCatalog(lag_ms=60_000)
        async with running_node(MemoryWal(segment_bytes=8192), LIMITS, catalog=catalog) as world:
            await world.assign()
            await fill(world, keyed)
            await world.clock.sleep(20)
            assert await everything(world) == keyed.delivered, "nothing is old enough"
            await world.clock.sleep(80)
            found = await everything(world)
            assert len([it for it in found if it.key is None]) == 60
            assert len(found) < 60 + 30
            assert keyed.state(found) == keyed.state()

    run_seeded(2, scenario)


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_of_a_compressed_batch_the_newest_are_left(codec: Codec) -> None:
    async def scenario() -> None:
        keyed, catalog = Keyed(), CompactedCatalog()
        async with running_node(MemoryWal(segment_bytes=2000), LIMITS, catalog=catalog) as world:
            await world.assign()
            await fill(world, keyed, codec)
            await world.clock.sleep(20)
            found = await everything(world)
            assert keyed.state(found) == keyed.state()
            order = {it: at for at, it in enumerate(keyed.delivered)}
            places = [order[it] for it in found]
            assert places == sorted(set(places))
            assert len(places) < len(keyed.delivered)

    run_seeded(3, scenario)


def test_nothing_is_compacted_that_the_catalog_does_not_name() -> None:
    async def scenario() -> None:
        keyed, catalog = Keyed(), CompactedCatalog()
        catalog.policies = {}
        async with running_node(MemoryWal(segment_bytes=8192), LIMITS, catalog=catalog) as world:
            await world.assign()
            await fill(world, keyed)
            await world.clock.sleep(20)
            assert await everything(world) == keyed.delivered
            found = world.node.open_channels.find(PCHANNEL)
            assert found is not None
            assert found.compactions.of(VCHANNEL).upto == 0

    run_seeded(4, scenario)


class AlteredCatalog(CompactedCatalog):
    """From when `altered` says so on, the collection is compacted no more, or in another way."""

    def __init__(self, after: Mapping[CollectionId, Compaction]) -> None:
        super().__init__()
        self.after = after
        self.altered: Callable[[], bool] = lambda: False

    async def compactions(self) -> Mapping[CollectionId, Compaction]:
        if self.altered():
            self.policies = dict(self.after)
        return self.policies


@pytest.mark.parametrize("after", [{}, {CollectionId(7): Compaction(lag_ms=10**9)}])
def test_a_pass_removes_nothing_any_more_once_its_collection_was_altered(
    after: Mapping[CollectionId, Compaction],
) -> None:
    async def scenario() -> None:
        keyed, catalog = Keyed(), AlteredCatalog(after)
        async with running_node(MemoryWal(segment_bytes=2000), LIMITS, catalog=catalog) as world:
            await world.assign()
            found = world.node.open_channels.find(PCHANNEL)
            assert found is not None
            # When the pass has said what it removes, and has removed nothing yet.
            catalog.altered = lambda: found.compactions.of(VCHANNEL).upto > 0
            await fill(world, keyed)
            await world.clock.sleep(20)
            assert catalog.altered()
            assert await everything(world) == keyed.delivered
            assert found.compactions.of(VCHANNEL).clean == 0
            await keyed.append([(b"later", b"1")])
            assert statistics(world)["passes"] == 0

    run_seeded(6, scenario)


def test_what_is_delayed_or_dying_is_held() -> None:
    writer = Writer()
    writer.one(batch([(b"k", b"1")]))
    (plain,) = writer.records
    tick = plain.base_tick
    nobody = HeldMessages(HEADERS, {}, {})
    assert not nobody.holds(plain, tick, tick)
    dying = HeldMessages(HEADERS, {}, {V[0]: (TickSpan(TimeTick(tick - 1), tick),)})
    assert dying.holds(plain, tick, tick)
    assert not dying.holds(plain, TimeTick(tick + 1), TimeTick(tick + 1))
    properties = write_entry(b"\x1a", "_deliver_at", "99")
    assert plain.batch is not None
    delayed = replace(plain, batch=replace(plain.batch, properties=properties))
    assert nobody.holds(delayed, tick, tick), "without a schedule nobody has released it"
    assert HeldMessages(HEADERS, {V[0]: TimeTick(tick - 1)}, {}).holds(delayed, tick, tick)
    assert not HeldMessages(HEADERS, {V[0]: tick}, {}).holds(delayed, tick, tick)
    properties = write_entry(b"\x1a", "_deliver_ttl", "9")
    lasting = replace(plain, batch=replace(plain.batch, properties=properties))
    assert not nobody.holds(lasting, tick, tick)
