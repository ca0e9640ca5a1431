"""The cluster's tick: from the pchannels' closed ticks through the soft barrier to who watches."""

import itertools

import pytest

from broker.core.time import tso
from broker.timesync.messages import CLUSTER_BARRIER
from tests.broker.timesync.fakes import (
    HARD,
    NAMES,
    PRODUCER,
    SOFT,
    World,
    now_tick,
    play,
    tick_at,
)


def test_watchers_get_growing_ticks_an_interval_apart_that_are_closed_everywhere() -> None:
    async def scenario(world: World) -> None:
        seen = [0]
        while len(seen) < 10:
            news = await world.next_ticks(CLUSTER_BARRIER, seen[-1], SOFT)
            assert news is not None
            if len(seen) > 1:
                assert now_tick(world.clock) - news.ticks[-1] <= tso.compose(200, 0)
            seen += news.ticks
        steps = [after - before for before, after in itertools.pairwise(seen[1:])]
        assert min(steps) >= tso.compose(500, 0)
        assert max(steps) <= tso.compose(800, 0)

    play(1, scenario)


def test_the_slowest_pchannel_decides() -> None:
    async def scenario(world: World) -> None:
        world.pchannels.stuck[NAMES[1]] = tick_at(2.0)
        await world.clock.sleep(5.0)
        view = (await world.barriers(SOFT))[CLUSTER_BARRIER]
        assert tick_at(1.5) < view.tick <= tick_at(2.0)
        assert view.waits_for == (NAMES[1],)
        assert view.removed == ()

    play(2, scenario)


def test_a_pchannel_that_stands_still_is_named_then_left_out_and_comes_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(world: World) -> None:
        stands_at = world.pchannels.stuck[NAMES[1]] = tick_at(0.3)
        await world.clock.sleep(6.0)
        assert world.statistics(SOFT)["silent"] == f"cluster/{NAMES[1]}"
        assert world.statistics(SOFT)["tick"] <= stands_at  # type: ignore[operator]
        await world.clock.sleep(5.0)
        figures = world.statistics(SOFT)
        assert (figures["removed"], figures["silent"]) == (f"cluster/{NAMES[1]}", "")
        assert figures["tick"] > tick_at(10.0)  # type: ignore[operator]
        # What it had in hand is durable now, but older than what the cluster has passed.
        world.pchannels.stuck[NAMES[1]] = tick_at(1.0)
        await world.clock.sleep(1.0)
        news = await world.next_ticks(CLUSTER_BARRIER, 0, SOFT)
        assert news is not None
        assert news.view.removed == (NAMES[1],)
        del world.pchannels.stuck[NAMES[1]]
        await world.clock.sleep(1.0)
        view = (await world.barriers(SOFT))[CLUSTER_BARRIER]
        assert (view.removed, len(view.peers)) == ((), 3)
        assert world.statistics(SOFT)["removals"] == 1

    play(3, scenario)
    assert f"barrier cluster continues without {NAMES[1]}" in caplog.messages


def test_a_pchannel_that_nobody_serves_is_waited_for_and_then_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(world: World) -> None:
        world.system.kill(SOFT)
        world.pchannels.absent = {NAMES[0]}
        await world.clock.sleep(5.0)
        assert (await world.barriers(SOFT))[CLUSTER_BARRIER].tick == 0
        assert await world.next_ticks(CLUSTER_BARRIER, 0, SOFT) is None
        await world.clock.sleep(6.0)
        view = (await world.barriers(SOFT))[CLUSTER_BARRIER]
        assert view.tick > tick_at(10.0)
        assert view.removed == (NAMES[0],)

    play(4, scenario)
    assert not [
        it for it in caplog.messages if "continues without" in it
    ]  # late at a start, no more


def test_looks_that_fail_are_counted_and_made_again() -> None:
    async def scenario(world: World) -> None:
        world.pchannels.down = True
        await world.clock.sleep(3.0)
        before = world.statistics(PRODUCER)
        assert before["failures"] >= 10  # type: ignore[operator]
        assert before["error"] == "INNER: the node is down"
        world.pchannels.down = False
        await world.clock.sleep(1.0)
        after = world.statistics(PRODUCER)
        assert after["tick"] > before["tick"]  # type: ignore[operator]

    play(5, scenario)


def test_whichever_actor_dies_watchers_see_only_growing_ticks() -> None:
    async def scenario(world: World) -> None:
        seen = 0
        for victim in (SOFT, PRODUCER, HARD, SOFT, SOFT):
            world.system.kill(victim)
            await world.clock.sleep(1.5)
            news = await world.next_ticks(CLUSTER_BARRIER, seen, SOFT)
            assert news is not None
            assert news.ticks[0] > seen
            seen = news.ticks[-1]
        assert world.statistics(PRODUCER)["tick"] == seen

    for seed in range(5):
        play(seed, scenario)


def test_a_producer_that_finds_no_barrier_tries_again() -> None:
    async def scenario(world: World) -> None:
        await world.system.stop_child(HARD)
        await world.clock.sleep(1.0)
        assert "hard_barrier" in str(world.statistics(PRODUCER)["error"])

    play(6, scenario)
