"""A cluster that begins read-only, and the version that ends that for good."""

import pytest

from actors import System
from actors.testing import VirtualClock
from broker.coordinator.assignment.founding import found_cluster
from broker.coordinator.assignment.messages import RaiseStreaming
from broker.coordinator.assignment.streaming_version import (
    raise_streaming_version,
    streaming_version,
)
from broker.core.naming import pchannel_names
from broker.meta.memory_store import MemoryMetaStore
from broker.model.channel import AccessMode, Assignment
from broker.model.failure import Refused, StreamingCode
from broker.ports.meta import MetaError
from tests.broker.coordinator.assignment.following import (
    ASSIGNER,
    WITHIN_S,
    all_assigned,
    follow_until,
    seeded,
    terms_in,
)
from tests.broker.coordinator.fakes import NAMES, ROOT, ShakyStore, make_nodes, run_coordinator

FOUR = pchannel_names("by-dev", 4)
READ_ONLY, READ_WRITE = AccessMode.READ_ONLY, AccessMode.READ_WRITE


def modes(table: Assignment) -> set[AccessMode]:
    return {channel.access for node in table.nodes for channel in node.channels}


async def raised(system: System, at_least: int) -> int:
    version: int = await system.find(ASSIGNER).ask(RaiseStreaming(at_least), deadline_s=WITHIN_S)
    return version


async def test_the_version_of_the_founding_stays_until_it_is_raised_and_never_falls() -> None:
    store = MemoryMetaStore()
    await found_cluster(store, FOUR, 0)
    await found_cluster(store, FOUR)
    assert await streaming_version(store) == 0
    assert [await raise_streaming_version(store, it) for it in (0, 1, 2, 1, 0)] == [0, 1, 2, 2, 2]
    await found_cluster(store, FOUR, 0)
    assert await streaming_version(store) == 2


async def test_a_cluster_of_an_older_program_took_appends_and_goes_on_to() -> None:
    store = MemoryMetaStore()
    await found_cluster(store, FOUR)
    await store.write({}, deletes=["streaming/version"])
    assert await raise_streaming_version(store, 1) == 2


@pytest.mark.parametrize("version", [-1, 3])
async def test_an_unknown_version_is_refused(version: int) -> None:
    with pytest.raises(Refused, match=f"streaming version {version} is not known") as caught:
        await raise_streaming_version(MemoryMetaStore(), version)
    assert caught.value.refusal.code is StreamingCode.INVALID_ARGUMENT


async def test_a_race_that_is_always_lost_is_an_error() -> None:
    store = ShakyStore(MemoryMetaStore())
    await found_cluster(store, FOUR, 0)
    store.lost_races = 3
    assert await raise_streaming_version(store, 1) == 1
    store.lost_races = 100
    with pytest.raises(MetaError, match="lost 8 races"):
        await raise_streaming_version(store, 2)


def test_channels_are_read_only_until_it_is_enabled_and_then_change_at_a_new_term() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        await found_cluster(store, NAMES, 0)
        nodes = make_nodes(store, clock, 2)
        async with run_coordinator(store, nodes, clock) as system:
            before = await follow_until(system, all_assigned)
            assert (modes(before), before.streaming_version) == ({READ_ONLY}, 0)
            assert await raised(system, 0) == 0
            assert await raised(system, 2) == 2
            after = await follow_until(
                system, lambda table: all_assigned(table) and modes(table) == {READ_WRITE}
            )
            assert (after.version > before.version, after.streaming_version) == (True, 2)
            assert terms_in(after) == dict.fromkeys(NAMES, 3)
            homes = [{it.name for it in node.channels} for node in before.nodes]
            assert [{it.name for it in node.channels} for node in after.nodes] == homes
            assert await raised(system, 1) == 2

    seeded(1, scenario)


def test_a_version_that_a_coordinator_raised_just_before_it_died_holds_for_the_next() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        await found_cluster(store, NAMES, 0)
        nodes = make_nodes(store, clock)
        async with run_coordinator(store, nodes, clock) as system:
            before = await follow_until(system, all_assigned)
        await raise_streaming_version(store, 2)
        async with run_coordinator(store, nodes, clock) as system:
            after = await follow_until(
                system, lambda table: all_assigned(table) and modes(table) == {READ_WRITE}
            )
            assert after.version > before.version
            assert after.streaming_version == 2

    seeded(2, scenario)


def test_a_killed_assigner_knows_the_version_and_a_failing_store_changes_nothing() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = ShakyStore(MemoryMetaStore())
        await found_cluster(store, NAMES, 0)
        async with run_coordinator(store, make_nodes(store, clock), clock) as system:
            before = await follow_until(system, all_assigned)
            store.broken = True
            with pytest.raises(Refused, match="disk full"):
                await raised(system, 2)
            store.broken = False
            await clock.sleep(60.0)
            assert await follow_until(system, all_assigned) == before
            assert await raised(system, 1) == 1
            system.kill(f"{ROOT}/assigner")
            await clock.sleep(1.0)
            assert await raised(system, 0) == 1
            await follow_until(system, lambda table: modes(table) == {READ_WRITE})

    seeded(3, scenario)
