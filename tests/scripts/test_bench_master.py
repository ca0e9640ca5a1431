"""The benchmark of the master: stored collections that a broker takes for its own, and figures."""

import asyncio
from pathlib import Path

import pytest
from benchmark import names
from benchmark.measures.master import allocations, changes, look_ups
from benchmark.measures.master.look_ups import LookUps
from benchmark.measures.master.stored_collections import store_collections, stored_name
from benchmark.measures.master.together import Together
from benchmark.results.figures import P50, RATE, START
from served_broker import served_broker

from broker.client import connect
from broker.client.errors import AlreadyExists
from broker.model.master.fields import FieldType

GUARD_S = 240
"""Against hanging."""


async def test_stored_collections_are_as_if_they_had_been_created(tmp_path: Path) -> None:
    await store_collections(tmp_path / "data", 250)
    with served_broker(tmp_path / "data") as broker:
        async with connect(broker.address) as log:
            shown = await log.master.show_collections()
            assert list(shown) == [stored_name(it) for it in range(250)]
            last = await log.master.describe_collection(stored_name(249))
            assert [it.type for it in last.fields] == [FieldType.INT64, FieldType.FLOAT_VECTOR]
            assert last.id == shown[last.name]
            with pytest.raises(AlreadyExists):
                await log.master.create_collection(stored_name(7))
            created = await log.master.create_collection("created")
            assert created.id == last.id + 1
            assert created.default_partition_id > last.default_partition_id
            await log.master.create_partition(stored_name(7), "more")
            assert (await log.master.describe_collection(stored_name(7))).partitions == 2


def test_the_figures_of_look_ups_are_given_out_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "COLLECTIONS", (3, 40))
    monkeypatch.setattr(look_ups, "CALLS", 20)
    found = LookUps(tmp_path).measure()
    assert set(found) == {
        named(it)
        for named in (names.master_start, names.master_has, names.master_describe)
        for it in (3, 40)
    }
    assert all(found[names.master_start(it)][START] > 0 for it in (3, 40))
    assert all(found[names.master_has(it)][P50] > 0 for it in (3, 40))


async def test_changes_and_broadcasts_are_measured_on_a_real_broker(tmp_path: Path) -> None:
    with served_broker(tmp_path / "data") as broker:
        async with asyncio.timeout(GUARD_S), connect(broker.address) as log:
            found = await changes.creations_and_broadcasts(log, 5)
            assert found[names.MASTER_CREATE][P50] > 0
            assert found[names.MASTER_BROADCAST][P50] > 0
            found = await changes.rates(log, 0.2)
            assert found[names.MASTER_NAME][RATE] > 0
            assert found[names.MASTER_NAMES][RATE] > 0
        async with asyncio.timeout(GUARD_S):
            rates = await allocations.measured(broker.address, 0.05)
        assert set(rates) == {names.MASTER_EMPTY, names.MASTER_TIMESTAMP, names.MASTER_ID}
        assert all(it[RATE] > 0 for it in rates.values())


def test_the_figures_of_a_round_are_measured_together_and_given_out_once() -> None:
    rounds = iter(range(9))

    def measure() -> dict[str, dict[str, float]]:
        number = next(rounds)
        return {"one": {RATE: number}, "two": {RATE: 10 + number}}

    together = Together(measure)
    assert [together.take(it)[RATE] for it in ("one", "two", "one", "two")] == [0, 10, 1, 11]
