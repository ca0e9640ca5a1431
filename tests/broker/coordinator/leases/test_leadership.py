"""Coordinators over one metadata store: the newest may write, those before it may only look."""

import anyio
import pytest

from actors.testing import VirtualClock
from broker.coordinator.leases.leader_records import LEADER_KEY
from broker.coordinator.leases.leadership import CHECK_S, Deposed, LedStore, lead
from broker.meta.memory_store import MemoryMetaStore
from broker.ports.meta import Conflict, LastingFailure, MetaError, UnusableStore
from tests.broker.coordinator.assignment.following import all_assigned, follow_until, seeded
from tests.broker.coordinator.fakes import ShakyStore, make_nodes, run_coordinator


async def test_each_coordinator_leads_at_a_term_above_all_before() -> None:
    store = MemoryMetaStore()
    assert [(await lead(store)).term for _ in range(3)] == [1, 2, 3]


async def test_a_former_coordinator_changes_nothing_and_is_told() -> None:
    store = MemoryMetaStore()
    first = await lead(store)
    revision = await first.write({"a": b"1"})
    second = await lead(store)
    for expect in (None, {"a": revision}, {"a": 77}, {"z": 77}):
        with pytest.raises(Deposed, match="a newer coordinator leads than the one of term 1"):
            await first.write({"a": b"2"}, deletes=["b"], expect=expect)
    entry = await first.get("a")
    assert entry is not None
    assert entry.value == b"1"
    assert [key for key, _ in await first.list("a", limit=1000)] == ["a"]
    await second.write({"a": b"3"}, expect={"a": revision})


def test_a_coordinator_that_writes_nothing_learns_soon_that_another_one_leads() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = ShakyStore(MemoryMetaStore())
        first = await lead(store)
        with anyio.move_on_after(3 * CHECK_S):
            await first.until_deposed()
        assert not first.deposed
        await lead(store)
        store.broken = True
        with anyio.move_on_after(3 * CHECK_S):
            await first.until_deposed()
        assert not first.deposed, "what cannot be read says nothing"
        store.broken = False
        with anyio.fail_after(2 * CHECK_S):
            await first.until_deposed()

    seeded(4, scenario)


def test_a_leader_whose_store_answers_nothing_more_is_told_so() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = ShakyStore(MemoryMetaStore())
        led = await lead(store)
        store.broken, store.failure = True, LastingFailure("permission denied")
        with anyio.move_on_after(3 * CHECK_S):
            await led.until_deposed()
        assert not led.deposed, "somebody may grant it again"
        store.failure = UnusableStore("etcd was restored from a backup")
        with anyio.fail_after(2 * CHECK_S), pytest.raises(UnusableStore, match="from a backup"):
            await led.until_deposed()

    seeded(4, scenario)


async def test_a_conflict_about_something_else_stays_one() -> None:
    led = await lead(MemoryMetaStore())
    for key in ("a", "z"):
        with pytest.raises(Conflict) as conflict:
            await led.write({key: b""}, expect={key: 5})
        assert conflict.value.key == key


async def test_a_store_where_every_race_is_lost_has_no_leader() -> None:
    store = ShakyStore(MemoryMetaStore())
    store.lost_races = 100
    with pytest.raises(MetaError, match=LEADER_KEY):
        await lead(store)


def test_two_coordinators_at_once_never_undo_each_other() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        first, second = await lead(store), None
        nodes = make_nodes(store, clock, 1)
        async with run_coordinator(first, nodes, clock) as old:
            await follow_until(old, all_assigned)
            second = await lead(store)
            async with run_coordinator(second, nodes, clock) as new:
                table = await follow_until(new, all_assigned)
                recorded = await store.list("pchannel/", limit=1000)
                nodes[0].give_up_channel(next(iter(nodes[0].served)))
                await clock.sleep(30.0)
                table = await follow_until(new, all_assigned)
                assert all_assigned(table)
                assert await store.list("pchannel/", limit=1000) != recorded
        assert isinstance(second, LedStore)

    seeded(61, scenario)
