"""A leading coordinator tells that its ticks are ahead of its clock, and nothing else."""

from dataclasses import replace

from actors import ActorStatistics, System
from actors.testing import VirtualClock
from broker.app.actor_lookup import ORACLE
from broker.app.probes.clock_warnings import leader_clock_warnings
from broker.meta.memory_store import MemoryMetaStore
from tests.broker.coordinator.time.test_oracle import run_oracle, seeded, ticks_of


def oracle_of(system: System) -> list[ActorStatistics]:
    """Its figures, at the path that it has in a coordinator."""
    return [replace(it, path=ORACLE) for it in system.statistics() if it.path == "/root/oracle"]


def test_ticks_ahead_of_the_clock_are_told_until_it_has_caught_up_and_old_ticks_never() -> None:
    async def scenario(clock: VirtualClock) -> None:
        async with run_oracle(MemoryMetaStore(), clock) as system:
            ticks = ticks_of(system)
            await ticks.reserve(1)
            assert leader_clock_warnings(oracle_of(system)) == []
            await clock.sleep(300.0)  # nobody asks: what was handed out last is old
            assert leader_clock_warnings(oracle_of(system)) == []
            await ticks.reserve(1)
            clock.shift_wall(-600_000)
            await ticks.reserve(1)
            (warning,) = leader_clock_warnings(oracle_of(system))
            assert "600.0 s ahead of the clock of this coordinator's host" in warning
            await clock.sleep(590.0)
            await ticks.reserve(1)
            (warning,) = leader_clock_warnings(oracle_of(system))
            assert "305.0 s ahead" in warning
            await clock.sleep(610.0)
            await ticks.reserve(1)
            assert leader_clock_warnings(oracle_of(system)) == []

    seeded(13, scenario)


def test_an_oracle_that_crashes_once_is_no_clock_that_is_wrong() -> None:
    async def scenario(clock: VirtualClock) -> None:
        async with run_oracle(MemoryMetaStore(), clock) as system:
            await ticks_of(system).reserve(1)
            system.kill("/root/oracle")
            await clock.sleep(0.1)
            await ticks_of(system).reserve(1)
            rows = oracle_of(system)
            assert int(rows[0].extra["ahead_ms"]) > 1_000
            assert leader_clock_warnings(rows) == []

    seeded(14, scenario)
