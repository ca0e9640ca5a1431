"""The allocator of ids over a store that is slow, broken, shared and restarted."""

from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path

import anyio
import pytest

from actors import ONE_FOR_ONE, ChildSpec, MailboxSpec, SupervisorSpec, System
from actors.testing import VirtualClock, run_seeded
from broker.coordinator.leases.leadership import lead
from broker.coordinator.records import COLLECTION_ID_KEY
from broker.core.master.id_window import FIRST_ID, ID_MAX, WINDOW
from broker.master.ids.id_allocator import ID_BOUND_KEY, AskedIds, IdAllocator
from broker.master.tree import MasterParts, master_tree
from broker.meta.memory_store import MemoryMetaStore
from broker.meta.sqlite import SqliteMetaStore
from broker.model.failure import Refused, StreamingCode
from broker.model.master.id_range import IdRange
from broker.ports.meta import MetaStore
from tests.broker.coordinator.fakes import ShakyStore

PATH = "/root/master/ids"


def run_ids(store: MetaStore, clock: VirtualClock | None = None) -> System:
    root = SupervisorSpec("root", ONE_FOR_ONE, (master_tree(MasterParts(store), "/root"),))
    return System(root, clock=clock)


def seeded(seed: int, test: Callable[[VirtualClock], Awaitable[None]]) -> None:
    async def main() -> None:
        await test(VirtualClock())

    run_seeded(seed, main)


def assert_disjoint(ranges: list[IdRange]) -> None:
    ordered = sorted((taken.first, taken.first + taken.count) for taken in ranges)
    assert all(end <= start for (_, end), (start, _) in pairwise(ordered))


def test_ids_are_consecutive_and_cost_no_write_each() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = ShakyStore(MemoryMetaStore(), clock)
        async with run_ids(store, clock) as system:
            ids = AskedIds(system.find, PATH)
            await clock.sleep(60.0)
            assert store.writes == 0
            assert await ids.take(10) == IdRange(FIRST_ID, 10)
            for number in range(1_000):
                assert (await ids.take()).first == FIRST_ID + 10 + number
            assert store.writes == 1
            row = next(it for it in system.statistics() if it.path == PATH)
            assert row.extra["next_id"] == FIRST_ID + 1_010

    seeded(1, scenario)


@pytest.mark.parametrize("count", [0, -1, 65_537])
def test_a_number_of_ids_out_of_bounds_is_refused_by_value(count: int) -> None:
    async def scenario(clock: VirtualClock) -> None:
        async with run_ids(MemoryMetaStore(), clock) as system:
            with pytest.raises(Refused, match=f"1 to 65536, not {count}") as caught:
                await AskedIds(system.find, PATH).take(count)
            assert caught.value.refusal.code is StreamingCode.INVALID_ARGUMENT

    seeded(1, scenario)


def test_half_of_the_range_is_reserved_ahead_so_that_no_request_waits() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = ShakyStore(MemoryMetaStore(), clock)
        async with run_ids(store, clock) as system:
            ids = AskedIds(system.find, PATH)
            for _ in range(WINDOW // 65_536 // 2 + 1):
                await ids.take(65_536)
            await clock.sleep(1.0)
            assert store.writes == 2
            store.broken = True
            for _ in range(WINDOW // 65_536 // 2 + 1):
                await ids.take(65_536)
                await clock.sleep(0.1)  # the reservation ahead fails, and refuses nobody

    seeded(2, scenario)


def test_a_store_that_refuses_stops_ids_at_the_bound_and_they_come_back() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = ShakyStore(MemoryMetaStore(), clock)
        async with run_ids(store, clock) as system:
            ids = AskedIds(system.find, PATH)
            store.broken = True
            causes: list[Refused] = []

            async def refused() -> None:
                with pytest.raises(Refused, match="disk full") as caught:
                    await ids.take(1)
                causes.append(caught.value)

            async with anyio.create_task_group() as tasks:
                for _ in range(5):
                    tasks.start_soon(refused)
            assert {it.refusal.code for it in causes} == {StreamingCode.INNER}
            store.broken = False
            assert (await ids.take(1)).first == FIRST_ID
            assert system.find(PATH).term == 1

    seeded(3, scenario)


@pytest.mark.parametrize("seed", range(8))
def test_allocators_over_one_store_never_overlap_whatever_crashes(seed: int) -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = ShakyStore(MemoryMetaStore(), clock)
        store.delay_s = 0.003
        ranges: list[IdRange] = []

        async def consume(system: System, pauses: int) -> None:
            ids, newest = AskedIds(system.find, PATH), 0
            for step in range(60):
                try:
                    taken = await ids.take(65_536 if step % 3 else 1)
                except Refused:
                    await clock.sleep(0.5)
                    continue
                assert taken.first > newest
                newest = taken.first + taken.count - 1
                ranges.append(taken)
                await clock.sleep(0.05 * (step % pauses))

        async with (
            run_ids(store, clock) as one,
            run_ids(store, clock) as two,
            anyio.create_task_group() as group,
        ):
            for system, pauses in ((one, 4), (one, 7), (two, 5)):
                group.start_soon(consume, system, pauses)
            for step in range(6):
                await clock.sleep(1.0)
                clock.shift_wall(-10_000 if step % 2 else 4_000)
                one.kill(PATH)
                store.lost_races = step
            two.kill(PATH)
        assert_disjoint(ranges)
        assert len(ranges) > 100

    seeded(seed, scenario)


def test_a_death_between_the_write_and_the_answer_repeats_nothing() -> None:
    class DiesAfterWriting(ShakyStore):
        armed = True

        async def write(self, *args: object, **more: object) -> int:
            revision = await super().write(*args, **more)  # type: ignore[arg-type]
            if self.armed:
                self.armed = False
                raise RuntimeError("killed after the write")
            return revision

    async def scenario(clock: VirtualClock) -> None:
        store = DiesAfterWriting(MemoryMetaStore(), clock)
        async with run_ids(store, clock) as system:
            ids = AskedIds(system.find, PATH)
            first = None
            for _ in range(50):
                try:
                    first = await ids.take(1)
                    break
                except Refused:
                    await clock.sleep(0.1)
            assert first is not None
            # The range of the lost answer is skipped.
            assert first.first > FIRST_ID + WINDOW

    seeded(4, scenario)


def test_an_allocator_that_cannot_start_is_waited_for() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = ShakyStore(MemoryMetaStore(), clock)
        store.broken = True
        async with run_ids(store, clock) as system:
            with pytest.raises(Refused, match="no ids available"):
                await AskedIds(system.find, PATH).take()
            store.broken = False
            await clock.sleep(10.0)
            assert (await AskedIds(system.find, PATH).take()).first == FIRST_ID

    seeded(5, scenario)


def test_a_full_mailbox_is_a_refusal_that_may_be_retried() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = ShakyStore(MemoryMetaStore(), clock)
        store.delay_s = 1.0
        tiny = ChildSpec("ids", lambda: IdAllocator(store), MailboxSpec(bound=1), patient=True)
        async with System(SupervisorSpec("root", ONE_FOR_ONE, (tiny,)), clock=clock) as system:
            codes: list[StreamingCode] = []

            async def take() -> None:
                try:
                    await AskedIds(system.find, "/root/ids").take()
                except Refused as refused:
                    codes.append(refused.refusal.code)

            async with anyio.create_task_group() as tasks:
                for _ in range(5):
                    tasks.start_soon(take)
            assert set(codes) == {StreamingCode.INNER}

    seeded(6, scenario)


def test_ids_begin_above_the_collections_of_an_older_data_folder() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        await store.write({COLLECTION_ID_KEY: b"1500000"})
        async with run_ids(store, clock) as system:
            assert (await AskedIds(system.find, PATH).take()).first == 1_500_001

    seeded(7, scenario)


def test_the_end_of_64_bits_is_a_refusal_for_good() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        await store.write({ID_BOUND_KEY: b"%d" % (ID_MAX - 1)})
        async with run_ids(store, clock) as system:
            ids = AskedIds(system.find, PATH)
            assert await ids.take(2) == IdRange(ID_MAX - 1, 2)
            with pytest.raises(Refused, match="used up") as caught:
                await ids.take(1)
            assert caught.value.refusal.code is StreamingCode.UNRECOVERABLE

    seeded(8, scenario)


async def test_a_deposed_coordinator_reserves_no_range(tmp_path: Path) -> None:
    async with await SqliteMetaStore.open(tmp_path / "meta.db") as store:
        older = await lead(store)
        async with run_ids(older) as one:
            newer = await lead(store)
            with pytest.raises(Refused, match="a newer coordinator leads"):
                await AskedIds(one.find, PATH).take()
            async with run_ids(newer) as two:
                assert (await AskedIds(two.find, PATH).take()).first == FIRST_ID
