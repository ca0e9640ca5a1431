"""The catalog over a real store: what it finds, and what happens when the store fails."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import anyio
import pytest

from actors import ChildSpec, Ref, SupervisorSpec, System
from actors.testing import EPOCH_MS, VirtualClock, run_seeded
from broker.coordinator.catalog.catalog import Catalog
from broker.coordinator.catalog.collection_records import CollectionRecords
from broker.coordinator.catalog.messages import (
    CatalogMessage,
    FindName,
    GetCollection,
    ListCollections,
    all_collections,
)
from broker.coordinator.catalog.stored_row_schemas import StoredRowSchemas
from broker.core.name_lookup import NameKind
from broker.core.naming import vchannel_name
from broker.meta.memory_store import MemoryMetaStore
from broker.model.collection import Collection, RowSchema
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import CollectionId
from broker.ports.meta import MetaStore
from tests.broker.coordinator.fakes import NAMES, ShakyStore

Scenario = Callable[[System, Ref[CatalogMessage], ShakyStore], Awaitable[None]]
WITHIN_S = 5.0


def run(scenario: Scenario) -> None:
    async def main() -> None:
        store = ShakyStore(MemoryMetaStore())
        catalog = ChildSpec("catalog", lambda: Catalog(store, NAMES), patient=True)
        spec = SupervisorSpec("root", children=(catalog,))
        async with System(spec, clock=VirtualClock()) as system:
            await scenario(system, system.find("/root/catalog"), store)

    run_seeded(1, main)


async def created(
    store: MetaStore, name: str, shards: int = 1, schema: RowSchema | None = None
) -> Collection:
    """As the master's table does it."""
    records = CollectionRecords(store)
    counter, loads = await records.next_id(), await records.loads()
    vchannels = tuple(vchannel_name(NAMES[it % 4], counter.id, it) for it in range(shards))
    made = Collection(name, counter.id, vchannels, EPOCH_MS, schema)
    await records.create(made, counter, loads)
    return made


def test_a_collection_is_found_by_its_name_and_by_its_vchannels() -> None:
    async def scenario(_: System, catalog: Ref[CatalogMessage], store: ShakyStore) -> None:
        made = await created(store, "flights", 4)
        assert made.id == 100
        assert await catalog.ask(GetCollection("flights"), deadline_s=WITHIN_S) == made
        for name, kind in (
            ("flights", NameKind.COLLECTION),
            (made.vchannels[2], NameKind.VCHANNEL),
        ):
            found = await catalog.ask(FindName(name), deadline_s=WITHIN_S)
            assert (found.kind, found.collection) == (kind, made)

    run(scenario)


def test_a_schema_is_found_by_the_id_of_its_collection_as_it_is_now() -> None:
    first, second = RowSchema(b"one", (1,)), RowSchema(b"two", (1, 2))

    async def scenario(_: System, catalog: Ref[CatalogMessage], store: ShakyStore) -> None:
        schemas, records = StoredRowSchemas(store), CollectionRecords(store)
        made = await created(store, "rows", 1, first)
        plain = await created(store, "plain")
        assert await schemas.newest(made.id) == first
        before = await records.by_name("rows")
        assert before is not None
        await records.change(before, replace(made, schema=second))
        assert await schemas.newest(made.id) == second
        assert await schemas.newest(plain.id) is None
        assert await schemas.newest(CollectionId(7)) is None
        found = await catalog.ask(GetCollection("rows"), deadline_s=WITHIN_S)
        assert found.schema == second

    run(scenario)


def test_a_collection_that_is_not_there_is_refused_by_name() -> None:
    async def scenario(_: System, catalog: Ref[CatalogMessage], __: ShakyStore) -> None:
        with pytest.raises(Refused, match="no collection 'trains'") as caught:
            await catalog.ask(GetCollection("trains"), deadline_s=WITHIN_S)
        assert caught.value.refusal.code is StreamingCode.CHANNEL_NOT_EXIST

    run(scenario)


def test_all_are_listed_by_name_in_pages_and_after_a_restart_too() -> None:
    async def scenario(system: System, catalog: Ref[CatalogMessage], store: ShakyStore) -> None:
        made = [await created(store, f"c{number:04d}") for number in range(450)]
        page = await catalog.ask(ListCollections(("", "c0100"), 3), deadline_s=WITHIN_S)
        assert [it.name for it in page] == ["c0101", "c0102", "c0103"]
        system.kill("/root/catalog")
        await anyio.sleep(1.0)

        async def ask(message: ListCollections) -> tuple[Collection, ...]:
            return await system.find("/root/catalog").ask(message, deadline_s=WITHIN_S)

        assert await all_collections(ask) == made

    run(scenario)


def test_a_store_that_fails_is_a_refusal_and_the_catalog_goes_on() -> None:
    async def scenario(system: System, catalog: Ref[CatalogMessage], store: ShakyStore) -> None:
        made = await created(store, "flights")
        store.broken = True
        with pytest.raises(Refused, match="disk full") as caught:
            await catalog.ask(GetCollection("flights"), deadline_s=WITHIN_S)
        assert caught.value.refusal.code is StreamingCode.INNER
        store.broken = False
        assert await catalog.ask(GetCollection("flights"), deadline_s=WITHIN_S) == made
        assert system.find("/root/catalog").term == 1

    run(scenario)
