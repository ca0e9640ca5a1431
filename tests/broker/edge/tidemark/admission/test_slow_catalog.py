"""A drop by another process is noticed also over a metadata store that takes long for each read."""

import random
from collections.abc import Sequence

import anyio
import pytest

from actors.testing import run_seeded
from broker.coordinator.catalog.collection_records import CollectionRecords
from broker.coordinator.catalog.stored_row_schemas import StoredRowSchemas
from broker.edge.tidemark.admission.shard_admission import REFRESH_S, ShardAdmission
from broker.meta.memory_store import MemoryMetaStore
from broker.model.collection import Collection
from broker.model.failure import Dropped
from broker.model.ids import TimeTick, VChannelName
from broker.ports.meta import MetaEntry

VCHANNEL = VChannelName("by-dev-rootcoord-dml_0_100v0")
ALIVE = VChannelName("by-dev-rootcoord-dml_0_101v0")
APPEND_EVERY_S = 0.1


class SlowStore(MemoryMetaStore):
    """Each read of one key, or of one page, takes about `read_s`."""

    read_s = 0.0
    reads = 0

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.chance = random.Random(seed)

    async def get(self, key: str) -> MetaEntry | None:
        self.reads += 1
        await anyio.sleep(self.read_s * self.chance.uniform(0.8, 1.2))
        return await super().get(key)

    async def list(
        self, prefix: str, *, limit: int, after: str = ""
    ) -> Sequence[tuple[str, MetaEntry]]:
        self.reads += 1
        await anyio.sleep(self.read_s * self.chance.uniform(0.8, 1.2))
        return await super().list(prefix, limit=limit, after=after)


async def with_collections(seed: int = 0) -> tuple[SlowStore, CollectionRecords]:
    store = SlowStore(seed)
    records = CollectionRecords(store)
    for name, vchannel in (("trains", VCHANNEL), ("ships", ALIVE)):
        counter, loads = await records.next_id(), await records.loads()
        await records.create(Collection(name, counter.id, (vchannel,), 1, None), counter, loads)
    return store, records


async def drop(records: CollectionRecords) -> None:
    found = await records.by_name("trains")
    assert found is not None
    await records.drop(found, await records.loads(), TimeTick(7))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("read_ms", "within_s"), [(1, 1), (10, 1), (20, 1), (30, 4), (60, 8), (100, 12), (190, 32)]
)
def test_a_producer_is_refused_soon_after_a_drop(read_ms: int, within_s: int, seed: int) -> None:
    async def scenario() -> None:
        store, records = await with_collections(seed)
        admission = ShardAdmission(StoredRowSchemas(store))
        assert await admission.refusal(VCHANNEL, rows=False) is None
        await drop(records)
        store.read_s = read_ms / 1000
        began_s = anyio.current_time()
        while await admission.refusal(VCHANNEL, rows=False) is None:
            assert anyio.current_time() - began_s <= within_s + REFRESH_S
            await anyio.sleep(APPEND_EVERY_S)
        assert isinstance(await admission.refusal(VCHANNEL, rows=False), Dropped)

    run_seeded(seed, scenario)


@pytest.mark.parametrize("read_ms", [1, 17, 60, 190])
def test_a_collection_that_lives_is_looked_at_once_after_the_drop_of_another_one(
    read_ms: int,
) -> None:
    async def scenario() -> None:
        store, records = await with_collections()
        admission = ShardAdmission(StoredRowSchemas(store))
        assert await admission.refusal(ALIVE, rows=False) is None
        await drop(records)
        store.read_s = read_ms / 1000
        began_s, later = anyio.current_time(), 0
        while (now_s := anyio.current_time()) < began_s + 100:
            store.reads = 0
            assert await admission.refusal(ALIVE, rows=False) is None
            later += store.reads > 1 and now_s > began_s + 50
            await anyio.sleep(APPEND_EVERY_S)
        assert not later, "only the version is read"

    run_seeded(1, scenario)


def test_a_store_that_hangs_takes_a_small_part_of_the_time_of_appends() -> None:
    async def scenario() -> None:
        store, records = await with_collections()
        admission = ShardAdmission(StoredRowSchemas(store))
        assert await admission.refusal(VCHANNEL, rows=False) is None
        await drop(records)
        store.read_s = 3600.0
        began_s, waited_s = anyio.current_time(), 0.0
        while (now_s := anyio.current_time()) < began_s + 300:
            assert await admission.refusal(VCHANNEL, rows=False) is None
            waited_s += anyio.current_time() - now_s
            await anyio.sleep(APPEND_EVERY_S)
        assert waited_s < 0.06 * 300

    run_seeded(2, scenario)


def test_that_a_collection_was_dropped_takes_two_reads() -> None:
    async def scenario() -> None:
        store, records = await with_collections()
        await drop(records)
        store.reads = 0
        assert isinstance(
            await ShardAdmission(StoredRowSchemas(store)).refusal(VCHANNEL, rows=False), Dropped
        )
        assert store.reads <= 3, "and one of the version"

    run_seeded(3, scenario)
