"""The catalog over a real store: names, ids, reconciler, and what happens when it fails."""

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace

import anyio
import pytest

from actors import ChildSpec, Ref, SupervisorSpec, System
from actors.testing import EPOCH_MS, VirtualClock, run_seeded
from broker.coordinator.catalog.catalog import Catalog
from broker.coordinator.catalog.messages import (
    CatalogMessage,
    ChangeSchema,
    CreateCollection,
    DropCollection,
    GetCollection,
    ListCollections,
)
from broker.coordinator.catalog.stored_row_schemas import StoredRowSchemas
from broker.core.naming import pchannel_of
from broker.meta.memory_store import MemoryMetaStore
from broker.model.collection import RowSchema
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import CollectionId
from broker.ports.meta import MetaStore
from tests.broker.coordinator.fakes import NAMES, ShakyStore

Scenario = Callable[[System, Ref[CatalogMessage], ShakyStore], Awaitable[None]]
WITHIN_S = 5.0


def run_catalog(store: MetaStore, clock: VirtualClock) -> System:
    return System(
        SupervisorSpec(
            "root", children=(ChildSpec("catalog", lambda: Catalog(store, NAMES), patient=True),)
        ),
        clock=clock,
    )


def run(scenario: Scenario) -> None:
    async def main() -> None:
        store = ShakyStore(MemoryMetaStore())
        async with run_catalog(store, VirtualClock()) as system:
            await scenario(system, system.find("/root/catalog"), store)

    run_seeded(1, main)


def test_a_collection_gets_an_id_and_one_vchannel_per_shard_on_different_pchannels() -> None:
    async def scenario(_: System, catalog: Ref[CatalogMessage], __: ShakyStore) -> None:
        made = await catalog.ask(CreateCollection("flights", 4), deadline_s=WITHIN_S)
        assert (made.name, made.id, made.created_ms) == ("flights", 100, EPOCH_MS)
        assert made.vchannels == tuple(f"{name}_100v{i}" for i, name in enumerate(NAMES))
        assert await catalog.ask(GetCollection("flights"), deadline_s=WITHIN_S) == made

    run(scenario)


def test_a_schema_is_changed_by_who_knows_it_as_it_is_and_found_by_the_id_of_its_collection() -> (
    None
):
    first, second = RowSchema(b"one", (1,)), RowSchema(b"two", (1, 2))

    async def scenario(_: System, catalog: Ref[CatalogMessage], store: ShakyStore) -> None:
        schemas = StoredRowSchemas(store)
        made = await catalog.ask(CreateCollection("rows", 1, first), deadline_s=WITHIN_S)
        plain = await catalog.ask(CreateCollection("plain", 1), deadline_s=WITHIN_S)
        assert await schemas.newest(made.id) == first
        change = ChangeSchema("rows", first, second)
        changed = await catalog.ask(change, deadline_s=WITHIN_S)
        assert changed == replace(made, schema=second)
        assert await catalog.ask(change, deadline_s=WITHIN_S) is None
        assert await schemas.newest(made.id) == second
        assert await schemas.newest(plain.id) is None
        assert await schemas.newest(CollectionId(7)) is None
        with pytest.raises(Refused):
            await catalog.ask(ChangeSchema("none", first, second), deadline_s=WITHIN_S)

    run(scenario)


def test_collections_go_to_the_least_loaded_pchannels() -> None:
    async def scenario(_: System, catalog: Ref[CatalogMessage], __: ShakyStore) -> None:
        for number, shards in enumerate((1, 2, 1, 6, 2)):
            await catalog.ask(CreateCollection(f"c{number}", shards), deadline_s=WITHIN_S)
        made = await catalog.ask(ListCollections(), deadline_s=WITHIN_S)
        loads = Counter(pchannel_of(vchannel) for each in made for vchannel in each.vchannels)
        assert sorted(loads.values()) == [3, 3, 3, 3]

    run(scenario)


def test_a_name_that_is_taken_is_refused_by_name_and_changes_nothing() -> None:
    async def scenario(_: System, catalog: Ref[CatalogMessage], store: ShakyStore) -> None:
        made = await catalog.ask(CreateCollection("flights", 1), deadline_s=WITHIN_S)
        written = store.writes
        with pytest.raises(Refused, match="'flights' exists already") as caught:
            await catalog.ask(CreateCollection("flights", 2), deadline_s=WITHIN_S)
        assert caught.value.refusal.code is StreamingCode.INVALID_ARGUMENT
        assert await catalog.ask(GetCollection("flights"), deadline_s=WITHIN_S) == made
        assert store.writes == written

    run(scenario)


@pytest.mark.parametrize(
    ("name", "shards", "text"),
    [("a b", 1, "'a b'"), ("", 1, "''"), ("ok", 0, "not 0"), ("ok", 1025, "not 1025")],
)
def test_a_bad_name_or_number_of_shards_is_refused(name: str, shards: int, text: str) -> None:
    async def scenario(_: System, catalog: Ref[CatalogMessage], store: ShakyStore) -> None:
        with pytest.raises(Refused, match=text) as caught:
            await catalog.ask(CreateCollection(name, shards), deadline_s=WITHIN_S)
        assert caught.value.refusal.code is StreamingCode.INVALID_ARGUMENT
        assert store.writes == 0

    run(scenario)


def test_a_dropped_name_is_free_again_and_its_id_is_not() -> None:
    async def scenario(system: System, catalog: Ref[CatalogMessage], _: ShakyStore) -> None:
        first = await catalog.ask(CreateCollection("flights", 1), deadline_s=WITHIN_S)
        assert await catalog.ask(DropCollection("flights"), deadline_s=WITHIN_S) == first
        system.kill("/root/catalog")
        await anyio.sleep(1.0)
        catalog = system.find("/root/catalog")
        assert await catalog.ask(ListCollections(), deadline_s=WITHIN_S) == ()
        again = await catalog.ask(CreateCollection("flights", 1), deadline_s=WITHIN_S)
        assert again.id == first.id + 1

    run(scenario)


@pytest.mark.parametrize("request_type", [GetCollection, DropCollection])
def test_a_collection_that_is_not_there_is_refused_by_name(
    request_type: type[GetCollection | DropCollection],
) -> None:
    async def scenario(_: System, catalog: Ref[CatalogMessage], __: ShakyStore) -> None:
        with pytest.raises(Refused, match="no collection 'trains'") as caught:
            await catalog.ask(request_type("trains"), deadline_s=WITHIN_S)
        assert caught.value.refusal.code is StreamingCode.CHANNEL_NOT_EXIST

    run(scenario)


def test_what_was_created_is_there_after_a_restart() -> None:
    async def scenario(system: System, catalog: Ref[CatalogMessage], _: ShakyStore) -> None:
        made = [await catalog.ask(CreateCollection(name, 2), deadline_s=WITHIN_S) for name in "cab"]
        system.kill("/root/catalog")
        await anyio.sleep(1.0)
        again = await system.find("/root/catalog").ask(ListCollections(), deadline_s=WITHIN_S)
        assert again == tuple(sorted(made, key=lambda collection: collection.name))

    run(scenario)


def test_a_store_that_fails_is_a_refusal_and_the_catalog_goes_on() -> None:
    async def scenario(system: System, catalog: Ref[CatalogMessage], store: ShakyStore) -> None:
        store.broken = True
        with pytest.raises(Refused, match="disk full") as caught:
            await catalog.ask(CreateCollection("flights", 1), deadline_s=WITHIN_S)
        assert caught.value.refusal.code is StreamingCode.INNER
        store.broken = False
        made = await catalog.ask(CreateCollection("flights", 1), deadline_s=WITHIN_S)
        assert made.id == 100
        assert system.find("/root/catalog").term == 1

    run(scenario)


def test_two_catalogs_over_one_store_see_each_others_names_and_share_no_id() -> None:
    async def main() -> None:
        store, clock = MemoryMetaStore(), VirtualClock()
        async with run_catalog(store, clock) as first, run_catalog(store, clock) as second:
            one, two = first.find("/root/catalog"), second.find("/root/catalog")
            ids = [
                (await one.ask(CreateCollection("a", 1), deadline_s=WITHIN_S)).id,
                (await two.ask(CreateCollection("b", 1), deadline_s=WITHIN_S)).id,
                (await one.ask(CreateCollection("c", 1), deadline_s=WITHIN_S)).id,
            ]
            assert ids == [100, 101, 102]
            with pytest.raises(Refused, match="'c' exists already"):
                await two.ask(CreateCollection("c", 1), deadline_s=WITHIN_S)
            await one.ask(DropCollection("b"), deadline_s=WITHIN_S)
            with pytest.raises(Refused, match="no collection 'b'"):
                await two.ask(GetCollection("b"), deadline_s=WITHIN_S)


@pytest.mark.parametrize("message", [CreateCollection("new", 1), DropCollection("old")])
def test_a_race_that_was_lost_is_run_again_but_not_for_ever(
    message: CreateCollection | DropCollection,
) -> None:
    async def scenario(_: System, catalog: Ref[CatalogMessage], store: ShakyStore) -> None:
        await catalog.ask(CreateCollection("old", 1), deadline_s=WITHIN_S)
        store.lost_races = 1000
        with pytest.raises(Refused, match="lost 8 races") as caught:
            await catalog.ask(message, deadline_s=WITHIN_S)
        assert caught.value.refusal.code is StreamingCode.INNER
        store.lost_races = 7
        assert (await catalog.ask(message, deadline_s=WITHIN_S)).name == message.name

    run(scenario)


def test_of_those_who_create_one_name_at_once_one_wins() -> None:
    async def main() -> None:
        clock = VirtualClock()
        store = ShakyStore(MemoryMetaStore(), clock)
        store.delay_s = 0.01
        won: list[int] = []

        async def create(system: System, name: str) -> None:
            catalog = system.find("/root/catalog")
            try:
                made = await catalog.ask(CreateCollection(name, 1), deadline_s=WITHIN_S)
            except Refused:
                return
            won.append(made.id)

        async with (
            run_catalog(store, clock) as one,
            run_catalog(store, clock) as two,
            anyio.create_task_group() as group,
        ):
            for system in (one, two):
                for name in ("same", "same", f"own{system is one}"):
                    group.start_soon(create, system, name)
        assert sorted(won) == [100, 101, 102]

    run_seeded(1, main)

    run_seeded(1, main)
