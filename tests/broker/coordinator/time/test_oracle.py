"""The oracle over a store that is slow, broken, shared and restarted, with clocks that jump."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest

from actors import REST_FOR_ONE, ChildSpec, MailboxFull, MailboxSpec, SupervisorSpec, System
from actors.testing import EPOCH_MS, VirtualClock, run_seeded
from broker.coordinator.time.messages import Reserve
from broker.coordinator.time.oracle import EXTEND_DEADLINE_S, WAITING_MAX, Oracle, OracleTicks
from broker.coordinator.time.tick_window import TickWindow
from broker.core.time.tso import COUNT_MAX, WINDOW_MS, physical_ms_of
from broker.meta.memory_store import MemoryMetaStore
from broker.meta.sqlite import SqliteMetaStore
from broker.model.failure import Refused, StreamingCode
from broker.ports.meta import MetaError, MetaStore
from broker.ports.ticks import RESERVE_COUNT_MAX, TickRange
from tests.broker.coordinator.fakes import ShakyStore


class FloodingStore(ShakyStore):
    """Fills the mailbox of an oracle with requests before a write returns, while `floods` is set.

    `applies`: whether that write takes effect; else it is refused.
    """

    floods: System | None = None
    applies = True

    async def write(self, puts: Mapping[str, bytes], **more: Any) -> int:
        revision = await super().write(puts, **more) if self.applies else 0
        if self.floods is not None:
            oracle = self.floods.find("/root/oracle")
            with suppress(MailboxFull):
                while True:
                    oracle.tell(Reserve(1))
        if not self.applies:
            raise MetaError("disk full")
        return revision


def run_oracle(store: MetaStore, clock: VirtualClock | None = None) -> System:
    return System(
        SupervisorSpec(
            "root",
            REST_FOR_ONE,
            (
                ChildSpec("window", lambda: TickWindow(store), patient=True),
                ChildSpec(
                    "oracle",
                    lambda: Oracle("/root/window"),
                    MailboxSpec(bound=4096, batch_max=64),
                    patient=True,
                ),
            ),
        ),
        clock=clock,
    )


def ticks_of(system: System) -> OracleTicks:
    return OracleTicks(system.find, "/root/oracle")


def assert_disjoint(ranges: list[TickRange]) -> None:
    ordered = sorted((taken.first, taken.first + taken.count) for taken in ranges)
    for (_, end), (start, _) in pairwise(ordered):
        assert end <= start


def seeded(seed: int, test: Callable[[VirtualClock], Awaitable[None]]) -> None:
    async def main() -> None:
        await test(VirtualClock())

    run_seeded(seed, main)


def test_ticks_follow_the_wall_clock_and_are_contiguous() -> None:
    async def scenario(clock: VirtualClock) -> None:
        async with run_oracle(MemoryMetaStore(), clock) as system:
            ticks = ticks_of(system)
            first = await ticks.reserve(10)
            second = await ticks.reserve(1)
            assert second.first == first.first + 10
            await clock.sleep(60.0)
            late = await ticks.reserve(1)
            assert physical_ms_of(late.first) == EPOCH_MS + 60_000

    seeded(1, scenario)


@pytest.mark.parametrize("count", [0, -1, 65_537])
def test_a_count_out_of_bounds_is_refused_by_value(count: int) -> None:
    async def scenario(clock: VirtualClock) -> None:
        async with run_oracle(MemoryMetaStore(), clock) as system:
            with pytest.raises(Refused, match=str(count)) as caught:
                await ticks_of(system).reserve(count)
            assert caught.value.refusal.code is StreamingCode.INVALID_ARGUMENT

    seeded(1, scenario)


def test_programs_are_refused_what_is_a_second_ahead_and_nodes_are_not() -> None:
    async def scenario(clock: VirtualClock) -> None:
        async with run_oracle(MemoryMetaStore(), clock) as system:
            oracle, ticks = system.find("/root/oracle"), ticks_of(system)
            await clock.sleep(1.0)
            for _ in range(4 * 1_001):  # four of them fill a millisecond
                await ticks.reserve(RESERVE_COUNT_MAX)
            with pytest.raises(Refused, match=r"1001 ms ahead of .* the most is 1000 ms") as caught:
                await oracle.ask(Reserve(1, 1_000), deadline_s=1.0)
            assert caught.value.refusal.code is StreamingCode.INNER
            ahead = await ticks.reserve(1)
            await clock.sleep(0.5)
            assert (await oracle.ask(Reserve(1, 1_000), deadline_s=1.0)).first == ahead.first + 1

    seeded(9, scenario)


def test_behind_a_clock_that_stepped_back_time_goes_on_at_half_speed_until_they_meet() -> None:
    async def scenario(clock: VirtualClock) -> None:
        async with run_oracle(MemoryMetaStore(), clock) as system:
            oracle = system.find("/root/oracle")

            async def now_ms() -> int:
                return physical_ms_of((await oracle.ask(Reserve(1, 1_000), deadline_s=1.0)).first)

            await clock.sleep(1.0)
            before = await now_ms()
            clock.shift_wall(-600_000)
            for passed_s in (10, 100, 1_000):
                await clock.sleep(passed_s)
                after = await now_ms()
                assert after - before == pytest.approx(passed_s * 500, abs=2)
                before = after
            await clock.sleep(1_000.0)
            assert await now_ms() == clock.wall_ms()

    seeded(10, scenario)


@pytest.mark.parametrize("seed", range(8))
def test_oracles_over_one_store_never_overlap_whatever_crashes_and_jumps(seed: int) -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = ShakyStore(MemoryMetaStore(), clock)
        store.delay_s = 0.003
        ranges: list[TickRange] = []

        async def consume(system: System, pauses: int) -> None:
            ticks, newest = ticks_of(system), 0
            for step in range(60):
                try:
                    taken = await ticks.reserve(65_536 if step % 3 else 1)
                except Refused:
                    await clock.sleep(0.5)
                    continue
                assert taken.first > newest
                newest = taken.first + taken.count - 1
                ranges.append(taken)
                await clock.sleep(0.05 * (step % pauses))

        async with (
            run_oracle(store, clock) as one,
            run_oracle(store, clock) as two,
            anyio.create_task_group() as group,
        ):
            for system, pauses in ((one, 4), (one, 7), (two, 5)):
                group.start_soon(consume, system, pauses)
            for step in range(6):
                await clock.sleep(1.0)
                clock.shift_wall(-10_000 if step % 2 else 4_000)
                one.kill("/root/oracle")
            two.kill("/root/window")
        assert_disjoint(ranges)
        assert len(ranges) > 100

    seeded(seed, scenario)


def test_the_store_is_written_about_once_in_half_a_window_and_reserving_does_not_wait() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = ShakyStore(MemoryMetaStore(), clock)
        async with run_oracle(store, clock) as system:
            ticks = ticks_of(system)
            store.delay_s = 0.4
            started_s = clock.monotonic_s()
            for _ in range(300):
                before_s = clock.monotonic_s()
                await ticks.reserve(1)
                assert clock.monotonic_s() - before_s < 0.001
                await clock.sleep(0.1)
            elapsed_ms = (clock.monotonic_s() - started_s) * 1000
            assert store.writes <= elapsed_ms / (WINDOW_MS / 2) + 3

    seeded(2, scenario)


def test_a_store_that_refuses_stops_ticks_at_the_bound_and_they_come_back_by_themselves() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = ShakyStore(MemoryMetaStore(), clock)
        async with run_oracle(store, clock) as system:
            ticks = ticks_of(system)
            store.broken = True
            before = await ticks.reserve(1)
            await clock.sleep(4.0)
            with pytest.raises(Refused, match="disk full") as caught:
                await ticks.reserve(1)
            assert caught.value.refusal.code is StreamingCode.INNER
            store.broken = False
            await clock.sleep(0.6)
            assert (await ticks.reserve(1)).first > before.first
            assert system.find("/root/oracle").term == 1

    seeded(3, scenario)


@pytest.mark.parametrize("applies", [True, False])
def test_an_oracle_with_a_full_mailbox_hears_of_its_window_all_the_same(applies: bool) -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = FloodingStore(MemoryMetaStore(), clock)
        async with run_oracle(store, clock) as system:
            ticks = ticks_of(system)
            before = await ticks.reserve(1)
            store.floods, store.applies = system, applies
            await clock.sleep(2.0)  # the bound falls due
            store.floods, store.applies = None, True
            for _ in range(3):
                await clock.sleep(5.0)
                after = await ticks.reserve(1)
                assert after.first > before.first
                before = after
            assert system.find("/root/oracle").term == 1

    seeded(11, scenario)


def test_a_window_that_comes_too_late_is_not_used_and_the_next_begins_above_it() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = ShakyStore(MemoryMetaStore(), clock)
        async with run_oracle(store, clock) as system:
            ticks = ticks_of(system)
            before = await ticks.reserve(1)
            store.delay_s = EXTEND_DEADLINE_S + 10
            await clock.sleep(EXTEND_DEADLINE_S)
            with pytest.raises(Refused, match="did not answer"):
                await ticks.reserve(1)
            store.delay_s = 0.0
            await clock.sleep(20.0)
            after = await ticks.reserve(1)
            assert physical_ms_of(after.first) >= physical_ms_of(before.first) + WINDOW_MS
            assert system.find("/root/oracle").term == 1

    seeded(12, scenario)


def test_a_bound_that_always_loses_its_races_is_a_refusal() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = ShakyStore(MemoryMetaStore(), clock)
        async with run_oracle(store, clock) as system:
            store.lost_races = 10_000
            await clock.sleep(4.0)
            with pytest.raises(Refused, match="lost 8 races"):
                await ticks_of(system).reserve(1)
            store.lost_races = 3
            assert (await ticks_of(system).reserve(1)).count == 1

    seeded(6, scenario)


def test_those_who_wait_for_a_window_are_bounded_and_all_are_answered() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = ShakyStore(MemoryMetaStore(), clock)
        answers: list[TickRange | StreamingCode] = []

        async def reserve(ticks: OracleTicks) -> None:
            try:
                answers.append(await ticks.reserve(1))
            except Refused as error:
                answers.append(error.refusal.code)

        async with run_oracle(store, clock) as system:
            store.delay_s = 1.0
            clock.shift_wall(60_000)
            async with anyio.create_task_group() as group:
                for _ in range(WAITING_MAX + 10):
                    group.start_soon(reserve, ticks_of(system))
            refused = [answer for answer in answers if isinstance(answer, StreamingCode)]
            assert refused == [StreamingCode.INNER] * 10
            assert len(answers) == WAITING_MAX + 10
            extra = [row.extra for row in system.statistics() if row.path == "/root/oracle"]
            assert extra[0]["extensions"] == 1

    seeded(7, scenario)


def test_an_oracle_that_dies_with_an_ask_is_asked_again() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = ShakyStore(MemoryMetaStore(), clock)
        async with run_oracle(store, clock) as system:
            ticks = ticks_of(system)
            before = await ticks.reserve(1)
            system.kill("/root/oracle")
            outcomes = set()
            for _ in range(200):
                try:
                    assert (await ticks.reserve(1)).first > before.first
                    outcomes.add("served")
                except Refused:
                    outcomes.add("refused")
                await clock.sleep(0.001)
            assert "served" in outcomes

    seeded(8, scenario)


def test_an_oracle_that_cannot_start_is_waited_for() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = ShakyStore(MemoryMetaStore(), clock)
        store.broken = True
        async with run_oracle(store, clock) as system:
            with pytest.raises(Refused, match="no time ticks"):
                await ticks_of(system).reserve(1)
            store.broken = False
            await clock.sleep(10.0)
            assert (await ticks_of(system).reserve(1)).count == 1

    seeded(4, scenario)


def test_a_restarted_oracle_serves_those_who_held_the_old_reference() -> None:
    async def scenario(clock: VirtualClock) -> None:
        async with run_oracle(MemoryMetaStore(), clock) as system:
            ticks = ticks_of(system)
            before = await ticks.reserve(1)
            system.kill("/root/oracle")
            await clock.sleep(1.0)
            after = await ticks.reserve(1)
            assert physical_ms_of(after.first) >= physical_ms_of(before.first) + WINDOW_MS

    seeded(5, scenario)


async def test_oracles_of_two_connections_to_one_file_never_overlap(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    ranges: list[TickRange] = []

    async def consume(system: System) -> None:
        ranges.extend([await ticks_of(system).reserve(65_536) for _ in range(200)])

    async with (
        await SqliteMetaStore.open(path) as one,
        await SqliteMetaStore.open(path) as two,
        run_oracle(one) as first,
        run_oracle(two) as second,
        anyio.create_task_group() as group,
    ):
        for system in (first, second, first, second):
            group.start_soon(consume, system)
    assert_disjoint(ranges)
    assert len(ranges) == 800


def test_the_port_and_the_core_agree_on_the_largest_reservation() -> None:
    assert RESERVE_COUNT_MAX == COUNT_MAX
