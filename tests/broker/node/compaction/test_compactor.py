"""When a node compacts by key, what is left, and what never goes."""

import random

import pytest

from actors.testing import run_seeded
from broker.meta.memory_store import MemoryMetaStore
from broker.meta.stored_recovery import StoredRecovery
from broker.model.ids import TICK_LOGICAL_BITS
from broker.node.state.open_channels import OpenChannel
from broker.wal.memory_wal import MemoryWal
from tests.broker.node.compaction.keyed_world import (
    LIMITS,
    VCHANNEL,
    CompactedCatalog,
    Keyed,
    KeyedReader,
    everything,
    statistics,
)
from tests.broker.node.world import PCHANNEL, World, running_node

TOMBSTONE_MS = 3000
KEYS = [b"a", b"b", b"c", b"d", b"e"]


def opened(world: World) -> OpenChannel:
    found = world.node.open_channels.find(PCHANNEL)
    assert found is not None
    return found


def test_of_each_key_the_newest_is_left_and_the_space_of_the_others_is_given_back() -> None:
    async def scenario() -> None:
        keyed, catalog = Keyed(), CompactedCatalog()
        async with running_node(MemoryWal(segment_bytes=8192), LIMITS, catalog=catalog) as world:
            keyed.world = world
            await world.assign()
            for number in range(100):
                await keyed.append([(KEYS[number % 5], b"%03d" % number * 100)])
            before = (await world.offsets()).size_bytes
            await world.clock.sleep(20)
            assert (await world.offsets()).size_bytes < before / 3
            assert int(statistics(world)["given_back_bytes"]) > before / 2
            found = await everything(world)
            assert keyed.state(found) == keyed.state()
            clean = opened(world).compactions.of(VCHANNEL).clean
            assert [it for it in found if it.tick <= clean] == sorted(
                keyed.newest(clean).values(), key=lambda it: it.tick
            )

    run_seeded(1, scenario)


class History:
    """Random appends, transactions, tombstones, passes and restarts."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.keyed = Keyed()
        self.wal = MemoryWal(segment_bytes=3000)
        self.recovery = StoredRecovery(MemoryMetaStore())
        self.catalog = CompactedCatalog(tombstone_ms=TOMBSTONE_MS)
        self.readers: list[KeyedReader] = []
        self.term = 0

    def rows(self) -> list[tuple[bytes | None, bytes]]:
        chance = self.chance
        return [
            (
                chance.choice((*KEYS, *KEYS, *KEYS, b"once %d" % chance.randrange(99))),
                b"" if chance.random() < 0.2 else chance.randbytes(chance.choice((40, 200))),
            )
            for _ in range(chance.randrange(1, 6))
        ]

    async def live(self, steps: int) -> None:
        """One life of the node."""
        limits = LIMITS
        ports = {"recovery": self.recovery, "catalog": self.catalog}
        async with running_node(self.wal, limits, seed=self.term, **ports) as world:  # type: ignore[arg-type]
            self.keyed.world = world
            self.term += 10
            await world.assign(term=self.term)
            self.readers = [KeyedReader(world)]
            for _ in range(steps):
                await self.step(world)
            for txn in list(self.keyed.open):
                await self.keyed.end(txn, commit=self.chance.random() < 0.7)
            await world.clock.sleep(self.chance.choice((0, 6)))
            await self.check(world)

    async def step(self, world: World) -> None:
        chance, keyed = self.chance, self.keyed
        match chance.randrange(10):
            case 0 | 1 | 2 | 3:
                await keyed.append(self.rows())
            case 4 if len(keyed.open) < 3:
                await keyed.begin()
            case 5 | 6 if keyed.open:
                await keyed.append_in(chance.choice(keyed.open), self.rows())
            case 7 if keyed.open:
                await keyed.end(chance.choice(keyed.open), commit=chance.random() < 0.7)
            case 8:
                await world.clock.sleep(chance.choice((0.3, 1.5, 4)))
            case _:
                await chance.choice(self.readers).pull(chance.choice((1, 300, 5000)))

    async def check(self, world: World) -> None:
        await world.clock.sleep(2)  # until the tail has forgotten what a pass has removed
        keyed, now_ms = self.keyed, world.clock.wall_ms()
        clean = opened(world).compactions.of(VCHANNEL).clean
        found = await everything(world, bytes_max=self.chance.choice((1, 500, 1 << 20)))
        upto = opened(world).compactions.of(VCHANNEL).upto  # a pass may run
        order = {it: at for at, it in enumerate(keyed.delivered)}
        places = [order[it] for it in found]
        assert places == sorted(set(places)), "in order, each once, ids and ticks as they were"
        assert keyed.state(found) == keyed.state()
        assert set(found) >= {it for it in keyed.delivered if it.tick > upto}
        left, newest = {it for it in found if it.tick <= clean}, keyed.newest(clean)
        assert left <= set(newest.values()), "only the newest of a key is left"
        kept = [it for key, it in newest.items() if it == keyed.newest(upto)[key]]
        for it in kept:
            old = now_ms - (it.tick >> TICK_LOGICAL_BITS) >= TOMBSTONE_MS
            assert it in left or (not it.payload and old), "a tombstone stays for its time"
        for reader in self.readers:
            had = await reader.read_all(700)
            places = [order[it] for it in had]
            assert places == sorted(set(places)), "nothing torn, twice or out of order"
            assert all(it in had or not it.payload for it in kept)


@pytest.mark.parametrize("seed", range(40))
def test_a_random_history_leaves_what_the_naive_model_says(seed: int) -> None:
    async def scenario() -> None:
        history = History(seed)
        for _ in range(3):
            await history.live(60)

    run_seeded(seed, scenario)
