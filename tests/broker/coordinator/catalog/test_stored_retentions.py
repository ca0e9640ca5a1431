"""What nodes see of the retention of collections: all of it, and one read while nothing changes."""

from dataclasses import replace

import pytest

from broker.coordinator.catalog.collection_records import CollectionRecords
from broker.coordinator.catalog.stored_retentions import StoredRetentions
from broker.coordinator.records import collection_key, encode_collection
from broker.meta.memory_store import MemoryMetaStore
from broker.model.collection import Collection
from broker.model.failure import Refused
from broker.model.ids import TimeTick
from broker.model.retention.policy import Retention
from broker.ports.meta import MetaEntry, MetaError
from tests.broker.coordinator.catalog.test_collection_records import (
    Counting,
    collection,
    created,
    named,
)

DAY = Retention(0, 86_400_000)


async def with_retention(records: CollectionRecords, name: str, limits: Retention) -> Collection:
    counter = await records.next_id()
    made = replace(collection(name, counter.id, 2), retention=limits)
    await records.create(made, counter, await records.loads())
    return made


async def test_limits_come_with_creation_and_change_and_go_with_a_drop() -> None:
    store = Counting()
    records, seen = CollectionRecords(store), StoredRetentions(store)
    assert await seen.newer(0) is None
    await created(records, "plain")
    assert await seen.newer(0) is None, "without a limit nothing changes"
    made = await with_retention(records, "a", DAY)
    first = await seen.newer(0)
    assert first is not None
    assert first.limits == dict.fromkeys(made.vchannels, DAY)
    store.gets = store.listed = 0
    assert await seen.newer(first.revision) is None
    assert (store.gets, store.listed) == (1, 0)

    before = await named(records, "a")
    await records.change(before, replace(before.collection, retention=Retention(1 << 20)))
    second = await seen.newer(first.revision)
    assert second is not None
    assert set(second.limits.values()) == {Retention(1 << 20)}
    plain = await named(records, "plain")
    await records.change(plain, replace(plain.collection, retention=DAY))
    third = await seen.newer(second.revision)
    assert third is not None
    assert len(third.limits) == 3

    await records.drop(await named(records, "a"), await records.loads(), TimeTick(5))
    fourth = await seen.newer(third.revision)
    assert fourth is not None
    assert set(fourth.limits) == set(plain.collection.vchannels)
    plain = await named(records, "plain")
    await records.change(plain, replace(plain.collection, retention=Retention()))
    last = await seen.newer(fourth.revision)
    assert last is not None
    assert last.limits == {}
    assert await StoredRetentions(store).newer(-1) == last, "after a restart, too"


async def test_a_record_that_an_earlier_release_has_written_anew_has_no_limits() -> None:
    store = MemoryMetaStore()
    records = CollectionRecords(store)
    made = await with_retention(records, "a", DAY)
    await with_retention(records, "b", DAY)
    bare = encode_collection(replace(made, retention=Retention()))
    assert b"retention" not in bare
    await store.write({collection_key("a"): bare}, deletes=[collection_key("b")])
    found = await StoredRetentions(store).newer(0)
    assert found is not None
    assert found.limits == {}


async def test_more_collections_than_one_read_has_are_all_found() -> None:
    store = MemoryMetaStore()
    records = CollectionRecords(store)
    for number in range(600):
        await with_retention(records, f"c{number}", DAY)
    found = await StoredRetentions(store).newer(0)
    assert found is not None
    assert len(found.limits) == 1200


class Away(MemoryMetaStore):
    """Answers no read."""

    async def get(self, key: str) -> MetaEntry | None:
        raise MetaError("the store is away")


async def test_a_store_that_does_not_answer_is_a_refusal() -> None:
    with pytest.raises(Refused, match="the store is away"):
        await StoredRetentions(Away()).newer(0)
