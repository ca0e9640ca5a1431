"""Barriers after a restart: which ticks wait for the peers that were there before."""

from collections.abc import Awaitable

import anyio
import pytest

from broker.model.barrier import BarrierKind
from broker.model.failure import Refused, StreamingCode
from broker.timesync.messages import CLUSTER_BARRIER, LeaveBarrier
from tests.broker.timesync.fakes import HARD, SOFT, WITHIN_S, World, play, tick_at


async def refused(call: Awaitable[object]) -> StreamingCode:
    with pytest.raises(Refused) as info:
        await call
    return info.value.refusal.code


def test_a_barrier_that_died_asks_its_peers_to_join_again() -> None:
    async def scenario(world: World) -> None:
        a = await world.join("q", "a")
        await world.report("q", "a", a, tick_at(0.2))
        world.system.kill(HARD)
        await world.clock.sleep(0.5)
        code = await refused(world.report("q", "a", a, tick_at(0.3)))
        assert code is StreamingCode.INVALID_REQUEST_SEQ
        a = await world.join("q", "a")
        # Other peers may join again until their leases would have ended.
        assert (await world.report("q", "a", a, tick_at(0.3))).tick == 0
        await world.clock.sleep(9.0)
        assert (await world.report("q", "a", a, 0)).tick == 0
        await world.clock.sleep(1.5)
        assert (await world.barriers())["q"].tick == tick_at(0.3)

    play(1, scenario)


async def restarted(world: World) -> None:
    world.system.kill(HARD)
    await world.clock.sleep(0.5)


@pytest.mark.parametrize("kind", [BarrierKind.HARD, BarrierKind.HARD_MINIMUM])
def test_no_tick_passes_that_a_peer_has_not_reached_which_joins_again_later(
    kind: BarrierKind,
) -> None:
    async def scenario(world: World) -> None:
        fast = await world.join("q", "fast", kind=kind)
        slow = await world.join("q", "slow", kind=kind)
        await restarted(world)
        assert await refused(world.report("q", "fast", fast, tick_at(0.2)))
        fast = await world.join("q", "fast", kind=kind)
        assert (await world.report("q", "fast", fast, tick_at(0.2))).tick == 0
        view = (await world.barriers())["q"]
        assert [it.name for it in view.peers] == ["fast"]
        assert view.waits_for == ()
        await world.clock.sleep(4.0)
        assert await refused(world.report("q", "slow", slow, tick_at(0.1)))
        slow = await world.join("q", "slow", kind=kind)
        await world.report("q", "slow", slow, tick_at(0.1))
        for _ in range(5):
            await world.clock.sleep(2.0)
            await world.report("q", "fast", fast, 0)
            await world.report("q", "slow", slow, 0)
            assert (await world.barriers())["q"].tick < tick_at(0.2)
        assert (await world.report("q", "slow", slow, tick_at(0.2))).tick == tick_at(0.2)

    play(1, scenario)


def test_peers_wait_for_each_other_when_the_first_closed_tick_is_late() -> None:
    async def scenario(world: World) -> None:
        fast, slow = await world.join("q", "fast"), await world.join("q", "slow")
        world.pchannels.down = True
        await restarted(world)
        await world.clock.sleep(12.0)
        # Refused at once, though no tick can be checked yet.
        for peer, lease_id in (("fast", fast), ("slow", slow)):
            code = await refused(world.report("q", peer, lease_id, tick_at(0.1)))
            assert code is StreamingCode.INVALID_REQUEST_SEQ
        world.pchannels.down = False
        await world.clock.sleep(1.0)
        fast = await world.join("q", "fast")
        assert (await world.report("q", "fast", fast, tick_at(0.2))).tick == 0
        await world.clock.sleep(3.0)
        slow = await world.join("q", "slow")
        await world.clock.sleep(5.0)
        assert (await world.report("q", "fast", fast, 0)).tick == 0
        await world.report("q", "slow", slow, tick_at(0.2))
        await world.clock.sleep(1.5)
        assert (await world.barriers())["q"].tick == tick_at(0.2)

    play(1, scenario)


def test_a_barrier_of_short_leases_waits_until_a_client_has_left_a_silent_coordinator() -> None:
    async def scenario(world: World) -> None:
        fast = await world.join("q", "fast", lease_s=1.0)
        await restarted(world)
        assert await refused(world.report("q", "fast", fast, tick_at(0.1)))
        fast = await world.join("q", "fast", lease_s=1.0)
        for _ in range(9):
            await world.clock.sleep(0.5)
            assert (await world.report("q", "fast", fast, tick_at(0.1))).tick == 0
        await world.clock.sleep(0.8)
        assert (await world.barriers())["q"].tick == tick_at(0.1)

    play(1, scenario)


def test_a_late_report_of_a_peer_that_left_holds_nothing_up() -> None:
    async def scenario(world: World) -> None:
        a, b = await world.join("q", "a"), await world.join("q", "b")
        await world.system.find(HARD).ask(LeaveBarrier("q", "b", b), deadline_s=WITHIN_S)
        assert await refused(world.report("q", "b", b, tick_at(0.1)))
        assert (await world.report("q", "a", a, tick_at(0.1))).tick == tick_at(0.1)

    play(1, scenario)


def test_a_barrier_that_a_newcomer_has_founded_waits_once_a_peer_of_before_is_heard() -> None:
    async def scenario(world: World) -> None:
        slow = await world.join("q", "slow", lease_s=6.0)
        await restarted(world)
        new = await world.join("q", "new", lease_s=6.0)
        # Nobody has said yet that there was such a barrier.
        assert (await world.report("q", "new", new, tick_at(0.1))).tick == tick_at(0.1)
        assert await refused(world.report("q", "slow", slow, tick_at(0.1)))
        assert (await world.report("q", "new", new, tick_at(0.2))).tick == tick_at(0.1)
        slow = await world.join("q", "slow", lease_s=20.0)
        await world.report("q", "slow", slow, tick_at(0.2))
        for seconds, passed in ((5.0, 0.1), (5.0, 0.1), (5.0, 0.1), (5.5, 0.2)):
            await world.clock.sleep(seconds)
            await world.report("q", "new", new, 0)
            assert (await world.barriers())["q"].tick == tick_at(passed)

    play(1, scenario)


def test_a_report_of_a_peer_that_was_removed_here_holds_nothing_up() -> None:
    async def scenario(world: World) -> None:
        a = await world.join("q", "a", lease_s=60.0)
        b = await world.join("q", "b", lease_s=1.0)
        await world.clock.sleep(1.5)
        assert await refused(world.report("q", "b", b, tick_at(0.1)))
        assert await refused(world.report("q", "nobody", 0, tick_at(0.1)))
        assert (await world.report("q", "a", a, tick_at(0.1))).tick == tick_at(0.1)

    play(1, scenario)


def test_a_report_to_the_cluster_s_own_barrier_does_not_hold_it_up() -> None:
    async def scenario(world: World) -> None:
        passed = (await world.barriers(SOFT))[CLUSTER_BARRIER].tick
        code = await refused(world.report(CLUSTER_BARRIER, "a", 7, tick_at(0.1), SOFT))
        assert code is StreamingCode.INVALID_REQUEST_SEQ
        await world.clock.sleep(2.0)
        assert (await world.barriers(SOFT))[CLUSTER_BARRIER].tick > passed

    play(1, scenario)


def test_a_peer_whose_report_waits_for_the_first_closed_tick_keeps_its_place() -> None:
    async def scenario(world: World) -> None:
        answers: list[int] = []

        async def report(lease_id: int) -> None:
            answers.append((await world.report("q", "a", lease_id, tick_at(0.1))).tick)

        world.pchannels.down = True
        await restarted(world)
        a = await world.join("q", "a", lease_s=2.0)
        await world.clock.sleep(1.5)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(report, a)
            await world.clock.sleep(1.5)
            world.pchannels.down = False
        assert answers == [tick_at(0.1)]

    play(1, scenario)
