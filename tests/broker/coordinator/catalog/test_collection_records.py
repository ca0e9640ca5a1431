"""Collections in the store: found with a few reads each, and never by halves."""

import json
import random
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from broker.coordinator.catalog.collection_records import (
    ID_PREFIX,
    LOADS_KEY,
    CollectionRecords,
    Loads,
    RecordedCollection,
    ensure_indexes,
    gone_key,
)
from broker.coordinator.catalog.stored_row_schemas import StoredRowSchemas
from broker.coordinator.json_records import encode_fields
from broker.coordinator.records import COLLECTION_ID_KEY, COLLECTION_PREFIX, encode_number
from broker.core.naming import pchannel_of, vchannel_name
from broker.meta.memory_store import MemoryMetaStore
from broker.meta.sqlite import SqliteMetaStore
from broker.model.collection import Collection, RowSchema
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import CollectionId, TimeTick, VChannelName
from broker.ports.meta import Conflict, MetaEntry, MetaError, MetaStore
from broker.ports.meta_writes import VALUE_BYTES_MAX, all_entries, split_write
from broker.ports.row_schemas import NoShard, Shard
from tests.broker.meta.flaky import Flaky

TICK = TimeTick(77)
EARLIER = Path(__file__).with_name("earlier_release.json")
"""Keys, values and revisions that a broker of the release without indexes has left."""


class Counting(MemoryMetaStore):
    """Counts reads, and entries that were listed."""

    def __init__(self) -> None:
        super().__init__()
        self.gets = self.listed = 0

    async def get(self, key: str) -> MetaEntry | None:
        self.gets += 1
        return await super().get(key)

    async def list(
        self, prefix: str, *, limit: int, after: str = ""
    ) -> Sequence[tuple[str, MetaEntry]]:
        found = await super().list(prefix, limit=limit, after=after)
        self.listed += len(found)
        return found


def collection(name: str, number: int, shards: int = 1, schema: bytes = b"") -> Collection:
    names = [VChannelName(f"dml_{(number + it) % 4}_{number}v{it}") for it in range(shards)]
    rows = RowSchema(schema, (1,)) if schema else None
    return Collection(name, CollectionId(number), tuple(names), 1, rows)


async def created(records: CollectionRecords, name: str, shards: int = 1) -> Collection:
    counter = await records.next_id()
    made = collection(name, counter.id, shards)
    await records.create(made, counter, await records.loads())
    return made


async def named(records: CollectionRecords, name: str) -> RecordedCollection:
    found = await records.by_name(name)
    assert found is not None
    return found


async def judge(records: CollectionRecords, naive: dict[str, Collection], given: int) -> None:
    """Whatever is asked gets the answer of a list of all collections."""
    assert list(await records.page("", 1000)) == [naive[name] for name in sorted(naive)]
    by_id = {each.id: each for each in naive.values()}
    for number in range(98, 100 + given + 2):
        id = CollectionId(number)
        assert await records.by_id(id) == by_id.get(id)
        assert await records.was_dropped(id) == (100 <= number < 100 + given and id not in by_id)
    vchannels = {it: each for each in naive.values() for it in each.vchannels}
    for vchannel, each in vchannels.items():
        assert await records.by_vchannel(vchannel) == each
        assert await records.by_vchannel(f"other_{vchannel}") is None
    for other in ("dml_0", "dml_0_99v0", "dml_0_vcchan", "x", ""):
        assert await records.by_vchannel(other) is None
    counts = Counter(pchannel_of(it) for it in vchannels)
    assert (await records.loads()).vchannels == counts


@pytest.mark.parametrize("seed", range(20))
async def test_after_any_changes_and_failures_it_answers_like_a_list_of_all(seed: int) -> None:
    chance = random.Random(seed)
    store = Flaky(MemoryMetaStore(), lambda: chance.choice(["", "", "before", "after"]))
    records = CollectionRecords(store)
    naive: dict[str, Collection] = {}
    given = 0
    for _ in range(40):
        name = chance.choice("abcdef")
        found = await records.by_name(name)
        made: Collection | None = None
        try:
            if found is None:
                given_before = await records.next_id()
                made = collection(name, given_before.id, chance.randrange(1, 6))
                await records.create(made, given_before, await records.loads())
            else:
                await records.drop(found, await records.loads(), TICK)
        except MetaError as error:
            if "answer is lost" not in str(error):
                continue
        if made is None:
            del naive[name]
        else:
            naive[name], given = made, given + 1
    store.fails = lambda: ""
    await judge(records, naive, given)
    assert await ensure_indexes(store) is False, "each creation writes the loads with the counter"


async def test_two_writers_at_once_conflict_and_change_nothing_by_halves() -> None:
    store = MemoryMetaStore()
    records = CollectionRecords(store)
    first = await created(records, "a", 3)
    counter, loads = await records.next_id(), await records.loads()
    second = await created(records, "b")
    for stale in (collection("c", counter.id), collection("a", counter.id)):
        with pytest.raises(Conflict):
            await records.create(stale, counter, loads)
    before = await named(records, "a")
    with pytest.raises(Conflict):
        await records.drop(before, loads, TICK)
    await judge(records, {"a": first, "b": second}, 2)
    await records.drop(before, await records.loads(), TICK)
    with pytest.raises(Conflict):
        await records.drop(before, await records.loads(), TICK)
    await judge(records, {"b": second}, 2)


async def test_a_drop_remembers_its_tick_for_the_vchannels_that_the_collection_had() -> None:
    store = MemoryMetaStore()
    records = CollectionRecords(store)
    made = await created(records, "a", 2)
    first, second = made.vchannels
    assert await records.dropped_at(first) is None
    await records.drop(await named(records, "a"), await records.loads(), TICK)
    assert [await records.dropped_at(it) for it in (first, second)] == [TICK, TICK]
    other = vchannel_name(pchannel_of(first), made.id, 7)
    assert await records.dropped_at(other) is None, "it had no such shard"
    assert await records.dropped_at("of-no-collection") is None
    # As a release wrote it that did not remember the vchannels.
    await store.write({gone_key(made.id): encode_fields({})})
    assert await records.dropped_at(first) is None


async def test_drops_are_counted_and_every_change_has_a_larger_revision() -> None:
    records = CollectionRecords(MemoryMetaStore())
    seen = [await records.loads()]
    for name in "ab":
        await created(records, name)
        seen.append(await records.loads())
    await records.drop(await named(records, "a"), await records.loads(), TICK)
    seen.append(await records.loads())
    assert [it.drops for it in seen] == [0, 0, 0, 1]
    assert sorted({it.revision for it in seen}) == [it.revision for it in seen]


async def test_a_record_that_no_store_takes_is_refused_and_nothing_is_stored() -> None:
    store = MemoryMetaStore()
    records = CollectionRecords(store)
    schema = bytes(VALUE_BYTES_MAX * 3 // 4)
    large = collection("large", 100, 1, schema)
    with pytest.raises(Refused, match=r"'large' takes \d+ bytes, at most 983040") as caught:
        await records.create(large, await records.next_id(), await records.loads())
    assert caught.value.refusal.code is StreamingCode.INVALID_ARGUMENT
    assert await store.list("", limit=1) == []
    small = collection("large", 100, 1, schema[: len(schema) // 2])
    await records.create(small, await records.next_id(), await records.loads())
    with pytest.raises(Refused, match="fewer columns"):
        await records.change(await named(records, "large"), large)
    assert (await named(records, "large")).collection == small


async def with_many(store: MetaStore, count: int) -> CollectionRecords:
    """As an earlier release wrote them, then indexed."""
    puts = {
        f"{COLLECTION_PREFIX}c{number}": _as_earlier(collection(f"c{number}", 100 + number))
        for number in range(count)
    }
    for some, _ in split_write({**puts, COLLECTION_ID_KEY: encode_number(100 + count)}):
        await store.write(some)
    assert await ensure_indexes(store)
    return CollectionRecords(store)


def _as_earlier(it: Collection) -> bytes:
    fields = {"version": 1, "name": it.name, "id": it.id, "vchannels": it.vchannels}
    return json.dumps({**fields, "created_ms": it.created_ms, "schema": None}).encode()


async def test_the_reads_of_a_request_do_not_depend_on_the_number_of_collections() -> None:
    costs = []
    for count in (10, 1000):
        store = Counting()
        records = await with_many(store, count)
        store.gets = store.listed = 0
        cost = []
        for call in (
            lambda it=records: it.by_name("c7"),
            lambda it=records: it.by_name("none"),
            lambda it=records: it.by_id(CollectionId(107)),
            lambda it=records: it.by_vchannel("dml_3_107v0"),
            lambda it=records: it.was_dropped(CollectionId(107)),
            lambda it=records: created(it, "new"),
            lambda it=store: ensure_indexes(it),
        ):
            store.gets = 0
            await call()
            cost.append(store.gets)
        assert store.listed == 0
        costs.append(cost)
    assert costs[0] == costs[1] == [1, 1, 2, 2, 2, 2, 2]


# ---- a store of an earlier release -------------------------------------------------------------


def earlier() -> dict[str, tuple[bytes, int]]:
    stored = json.loads(EARLIER.read_text())
    return {key: (value.encode(), revision) for key, (value, revision) in stored.items()}


async def earlier_store(path: Path) -> SqliteMetaStore:
    """A metadata file with the records of the earlier release, at their revisions."""
    await (await SqliteMetaStore.open(path)).close()
    with sqlite3.connect(path) as connection:
        rows = [(key, *it) for key, it in earlier().items()]
        connection.executemany("INSERT INTO entries VALUES (?, ?, ?)", rows)
        connection.execute("UPDATE head SET revision = 1000")
    connection.close()
    return await SqliteMetaStore.open(path)


EARLIER_LOADS = {0: 1, 1: 1, 2: 1, 3: 1, 4: 1, 7: 1, 8: 1, 9: 1, 10: 1, 11: 1, 12: 1, 14: 1, 15: 1}


async def check_earlier(store: MetaStore) -> None:
    await check_found_by_id(store)
    counts = (await CollectionRecords(store).loads()).vchannels
    assert counts == {f"by-dev-rootcoord-dml_{it}": n for it, n in EARLIER_LOADS.items()}


async def check_found_by_id(store: MetaStore) -> None:
    records = CollectionRecords(store)
    found = {each.name: each for each in await records.page("", 1000)}
    assert {name: int(each.id) for name, each in found.items()} == {
        "c0": 100, "c1": 101, "c2": 107, "c3": 103, "c4": 104, "c6": 106,
    }  # fmt: skip
    for each in found.values():
        assert await records.by_id(each.id) == each
        for vchannel in each.vchannels:
            assert await records.by_vchannel(vchannel) == each
    schema = found["c3"].schema
    assert schema is not None
    assert schema.widths == (2, 3)
    for dropped in (102, 105):
        assert await records.was_dropped(CollectionId(dropped))
    assert not await records.was_dropped(CollectionId(108))


async def test_a_store_of_an_earlier_release_is_indexed_once(tmp_path: Path) -> None:
    async with await earlier_store(tmp_path / "meta.sqlite") as store:
        assert await ensure_indexes(store)
        await check_earlier(store)
        assert not await ensure_indexes(store)
        for key, (value, revision) in earlier().items():
            assert await store.get(key) == MetaEntry(value, revision), "what it knows stays"


async def test_beside_a_coordinator_of_an_earlier_release_collections_are_found_without_indexes(
    tmp_path: Path,
) -> None:
    async with await earlier_store(tmp_path / "meta.sqlite") as store:
        await check_found_by_id(store)
        schemas = StoredRowSchemas(store)
        c3 = (await named(CollectionRecords(store), "c3")).collection
        assert c3.schema is not None
        assert await schemas.newest(c3.id) == c3.schema
        assert await schemas.name_of(c3.id) == "c3"
        assert await schemas.shard(c3.vchannels[0]) == Shard("c3", rows=True)
        assert await schemas.shard("by-dev-rootcoord-dml_0_102v0") is NoShard.DROPPED


async def test_a_collection_is_found_while_the_indexes_are_made() -> None:
    class IndexedAfter(MemoryMetaStore):
        """Makes the indexes after this many reads."""

        reads = -1

        async def get(self, key: str) -> MetaEntry | None:
            found = await super().get(key)
            self.reads -= 1
            if self.reads == 0:
                assert await ensure_indexes(self)
            return found

    for reads in range(1, 5):
        store, made = IndexedAfter(), collection("c", 100)
        await store.write(
            {f"{COLLECTION_PREFIX}c": _as_earlier(made), COLLECTION_ID_KEY: encode_number(101)}
        )
        store.reads = reads
        assert await CollectionRecords(store).by_id(made.id) == made


@pytest.mark.parametrize("how", ["before", "after"])
async def test_indexing_may_fail_at_every_write_and_begins_again(how: str) -> None:
    count = 300
    for failing in range(6):
        inner = MemoryMetaStore()
        store = Flaky(inner)
        for number in range(count):
            each = collection(f"c{number}", 100 + number, 2)
            await inner.write({f"{COLLECTION_PREFIX}{each.name}": _as_earlier(each)})
        await inner.write({COLLECTION_ID_KEY: encode_number(100 + count)})
        store.fails = partial(next, iter([*[""] * failing, how, *[""] * 9]))
        with pytest.raises(MetaError) if failing < 5 else nullcontext():
            await ensure_indexes(store)
        store.fails = lambda: ""
        again = await ensure_indexes(store)
        assert again == (failing < 4 or (failing == 4 and how == "before"))
        naive = {f"c{it}": collection(f"c{it}", 100 + it, 2) for it in range(count)}
        await judge(CollectionRecords(inner), naive, count)


async def test_changes_of_an_earlier_release_in_between_are_found_and_indexed() -> None:
    store = MemoryMetaStore()
    records = await with_many(store, 5)
    drops = (await records.loads()).drops
    # That release knows neither names at ids nor loads.
    await store.write({}, deletes=[f"{COLLECTION_PREFIX}c1"])
    assert await records.by_id(CollectionId(101)) is None
    assert await records.was_dropped(CollectionId(101))
    new = collection("new", 105, 3)
    await store.write(
        {f"{COLLECTION_PREFIX}new": _as_earlier(new), COLLECTION_ID_KEY: encode_number(106)}
    )
    assert await records.by_vchannel(new.vchannels[0]) == new, "found without its name at its id"
    assert not await records.was_dropped(new.id)
    assert await ensure_indexes(store)
    left = {f"c{it}": collection(f"c{it}", 100 + it) for it in (0, 2, 3, 4)}
    await judge(records, {**left, "new": new}, 6)
    assert (await records.loads()).drops > drops, "what nodes remember is looked at again"
    assert len([key async for key, _ in all_entries(store, ID_PREFIX)]) == 5


async def test_a_new_store_needs_no_write() -> None:
    store = Flaky(MemoryMetaStore())
    assert not await ensure_indexes(store)
    assert store.writes == 0
    assert await CollectionRecords(store).loads() == Loads()
    await store.write({LOADS_KEY: b"{}"})
    with pytest.raises(MetaError, match=LOADS_KEY):
        await CollectionRecords(store).loads()


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 100])
async def test_collections_of_all_databases_are_paged_through_each_once(limit: int) -> None:
    records = CollectionRecords(MemoryMetaStore())
    places = [("", "b"), ("", "a"), ("sales", "a"), ("air", "z"), ("sales2", "a"), ("air", "b")]
    for database, name in places:
        counter = await records.next_id()
        made = replace(collection(name, counter.id), database=database)
        await records.create(made, counter, await records.loads())
    found: list[tuple[str, str]] = []
    while page := await records.page_of_all(found[-1] if found else ("", ""), limit):
        assert len(page) <= limit
        found += [(it.database, it.name) for it in page]
    assert found == sorted(places)
