"""What is fixed at the first start stays fixed, and the text says so."""

import anyio
import pytest

from broker.coordinator.assignment.founding import found_cluster, next_incarnation
from broker.core.naming import pchannel_names
from broker.meta.memory_store import MemoryMetaStore
from broker.model.failure import Refused
from broker.ports.meta import MetaError
from tests.broker.coordinator.fakes import ShakyStore


async def test_the_control_channel_stays_where_it_was_when_pchannels_are_added() -> None:
    store = MemoryMetaStore()
    few = tuple(reversed(pchannel_names("by-dev", 2)))
    assert (await found_cluster(store, few)).control_host == "by-dev-rootcoord-dml_0"
    grown = await found_cluster(store, ("a-before-all_0", *pchannel_names("by-dev", 4)))  # type: ignore[arg-type]
    assert grown.control_host == "by-dev-rootcoord-dml_0"
    assert len(grown.pchannels) == 5
    assert await found_cluster(store, grown.pchannels) == grown


async def test_fewer_pchannels_than_before_are_refused_with_both_numbers() -> None:
    store = MemoryMetaStore()
    await found_cluster(store, pchannel_names("by-dev", 4))
    with pytest.raises(Refused, match="has 4 pchannels, and this start asks for 3"):
        await found_cluster(store, pchannel_names("by-dev", 3))


async def test_another_cluster_is_refused_with_both_named() -> None:
    store = MemoryMetaStore()
    await found_cluster(store, pchannel_names("by-dev", 4))
    with pytest.raises(Refused, match=r"by-dev-rootcoord-dml_0 .*other-rootcoord-dml_3"):
        await found_cluster(store, pchannel_names("other", 4))


async def test_a_record_of_an_unknown_version_is_refused_with_both_versions() -> None:
    store = MemoryMetaStore()
    await store.write({"cluster": b'{"version":9}'})
    with pytest.raises(MetaError, match="record version 9; this program knows version 1"):
        await found_cluster(store, pchannel_names("by-dev", 4))


@pytest.mark.parametrize("lost", [1, 7])
async def test_a_race_that_was_lost_is_run_again(lost: int) -> None:
    store = ShakyStore(MemoryMetaStore())
    store.lost_races = lost
    names = pchannel_names("by-dev", 4)
    assert (await found_cluster(store, names)).pchannels == names
    store.lost_races = lost
    assert await next_incarnation(store) == 1


async def test_a_race_that_is_always_lost_is_an_error_and_no_loop() -> None:
    store = ShakyStore(MemoryMetaStore())
    store.lost_races = 1000
    with pytest.raises(MetaError, match="lost 8 races"):
        await found_cluster(store, pchannel_names("by-dev", 4))
    with pytest.raises(MetaError, match="lost 8 races"):
        await next_incarnation(store)


async def test_incarnations_grow_also_for_those_who_start_at_once() -> None:
    store, given = MemoryMetaStore(), list[int]()

    async def start() -> None:
        given.append(await next_incarnation(store))

    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(start)
    assert sorted(given) == [1, 2, 3, 4]
