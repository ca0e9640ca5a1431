"""What nodes tell each other of what collections store: one read while nothing changes."""

from dataclasses import replace

import pytest

from broker.coordinator.catalog.collection_records import CollectionRecords
from broker.coordinator.catalog.stored_sizes import SIZES_KEY, STORED_PREFIX, StoredSizes
from broker.meta.memory_store import MemoryMetaStore
from broker.model.failure import Refused
from broker.model.ids import TimeTick
from tests.broker.coordinator.catalog.test_collection_records import (
    Counting,
    collection,
    created,
    named,
)
from tests.broker.coordinator.catalog.test_stored_retentions import Away


async def test_what_one_node_tells_the_others_hear_and_forget() -> None:
    store = Counting()
    teller, hearer = StoredSizes(store), StoredSizes(store)
    nothing = await hearer.newer(-1)
    assert nothing is not None
    assert nothing.bytes == {}
    await teller.tell({"p_1v0": 5, "q_1v1": 7}, [])
    first = await hearer.newer(nothing.revision)
    assert first is not None
    assert first.bytes == {"p_1v0": 5, "q_1v1": 7}
    store.gets = store.listed = 0
    assert await hearer.newer(first.revision) is None
    assert (store.gets, store.listed) == (1, 0)
    await teller.tell({"p_1v0": 6}, ["q_1v1"])
    second = await hearer.newer(first.revision)
    assert second is not None
    assert second.bytes == {"p_1v0": 6}
    assert await hearer.of(["p_1v0", "q_1v1"]) == 6


async def test_more_than_one_write_takes_is_told_all_the_same() -> None:
    store = MemoryMetaStore()
    sizes = {f"p_{it}v0": it for it in range(250)}
    await StoredSizes(store).tell(sizes, [])
    found = await StoredSizes(store).newer(-1)
    assert found is not None
    assert found.bytes == sizes
    await StoredSizes(store).tell({}, [*sizes])
    found = await StoredSizes(store).newer(found.revision)
    assert found is not None
    assert found.bytes == {}


async def test_all_collections_of_all_databases_come_when_one_was_created_or_dropped() -> None:
    store = Counting()
    records, sizes = CollectionRecords(store), StoredSizes(store)
    made = [await created(records, f"c{it:04}") for it in range(501)]
    counter = await records.next_id()
    shop = replace(collection("clicks", counter.id, 2), database="shop")
    await records.create(shop, counter, await records.loads())
    first = await sizes.shards(-1)
    assert first is not None
    expected = {("", it.name): it.vchannels for it in made}
    assert first.vchannels == {**expected, ("shop", "clicks"): shop.vchannels}
    store.gets = store.listed = 0
    assert await sizes.shards(first.revision) is None
    assert (store.gets, store.listed) == (1, 0)
    await records.drop(await named(records, "c0007"), await records.loads(), TimeTick(5))
    second = await sizes.shards(first.revision)
    assert second is not None
    assert ("", "c0007") not in second.vchannels


async def test_a_damaged_figure_counts_as_nothing_and_is_told_again() -> None:
    store = MemoryMetaStore()
    sizes = StoredSizes(store)
    await store.write({STORED_PREFIX + "p_1v0": b"five", SIZES_KEY: b"1"})
    found = await sizes.newer(0)
    assert found is not None
    assert found.bytes == {"p_1v0": 0}
    assert await sizes.of(["p_1v0"]) == 0


async def test_a_store_without_an_answer_is_a_refusal() -> None:
    sizes = StoredSizes(Away())
    for call in (sizes.newer(0), sizes.shards(0), sizes.of(["p_1v0"])):
        with pytest.raises(Refused, match="the store is away"):
            await call
