"""A drop by another process is noticed also over a metadata store that takes long for each read."""

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
APPEND_EVERY_S = 0.1


class SlowStore(MemoryMetaStore):
    """Each read of one key, or of one page, takes `read_s`."""

    read_s = 0.0
    reads = 0

    async def get(self, key: str) -> MetaEntry | None:
        self.reads += 1
        await anyio.sleep(self.read_s)
        return await super().get(key)

    async def list(
        self, prefix: str, *, limit: int, after: str = ""
    ) -> Sequence[tuple[str, MetaEntry]]:
        self.reads += 1
        await anyio.sleep(self.read_s)
        return await super().list(prefix, limit=limit, after=after)


async def with_a_collection() -> tuple[SlowStore, CollectionRecords]:
    store = SlowStore()
    records = CollectionRecords(store)
    counter, loads = await records.next_id(), await records.loads()
    await records.create(Collection("trains", counter.id, (VCHANNEL,), 1, None), counter, loads)
    return store, records


async def drop(records: CollectionRecords) -> None:
    found = await records.by_name("trains")
    assert found is not None
    await records.drop(found, await records.loads(), TimeTick(7))


@pytest.mark.parametrize(("read_ms", "within_s"), [(1, 1), (10, 1), (20, 1), (60, 8), (190, 16)])
def test_a_producer_is_refused_soon_after_a_drop(read_ms: int, within_s: int) -> None:
    async def scenario() -> None:
        store, records = await with_a_collection()
        admission = ShardAdmission(StoredRowSchemas(store))
        assert await admission.refusal(VCHANNEL, rows=False) is None
        await drop(records)
        store.read_s = read_ms / 1000
        taken = 0
        while await admission.refusal(VCHANNEL, rows=False) is None:
            taken += 1
            assert taken * APPEND_EVERY_S <= within_s + REFRESH_S
            await anyio.sleep(APPEND_EVERY_S)
        assert isinstance(await admission.refusal(VCHANNEL, rows=False), Dropped)

    run_seeded(1, scenario)


def test_a_store_that_hangs_takes_a_small_part_of_the_time_of_appends() -> None:
    async def scenario() -> None:
        store, records = await with_a_collection()
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
        store, records = await with_a_collection()
        await drop(records)
        store.reads = 0
        assert isinstance(
            await ShardAdmission(StoredRowSchemas(store)).refusal(VCHANNEL, rows=False), Dropped
        )
        assert store.reads <= 3, "and one of the version"

    run_seeded(3, scenario)
