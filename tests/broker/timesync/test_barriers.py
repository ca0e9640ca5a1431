"""Barriers that people join: leases, refusals, watchers."""

from collections.abc import Awaitable

import anyio
import pytest

from broker.model.barrier import BarrierKind
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import TimeTick
from broker.timesync import barriers
from broker.timesync.messages import (
    CLUSTER_BARRIER,
    FeedTicks,
    Join,
    LeaveBarrier,
    PassedTicks,
    Reported,
)
from broker.timesync.watchers import WATCHES_MAX
from tests.broker.timesync.fakes import HARD, SOFT, WITHIN_S, World, play, tick_at


async def refused(call: Awaitable[object]) -> StreamingCode:
    with pytest.raises(Refused) as info:
        await call
    return info.value.refusal.code


def test_a_hard_tick_passes_when_everybody_has_reported_it() -> None:
    async def scenario(world: World) -> None:
        a, b = await world.join("q", "a"), await world.join("q", "b")
        first, second = tick_at(0.1), tick_at(0.2)
        assert (await world.report("q", "a", a, first)).tick == 0
        assert (await world.report("q", "a", a, second)).tick == 0
        assert (await world.report("q", "b", b, first)).tick == first
        assert (await world.report("q", "b", b, second)).tick == second
        again = await world.report("q", "b", b, second)
        assert (again.tick, again.late) == (second, True)
        news = await world.next_ticks("q", first)
        assert news is not None
        assert news.ticks == (second,)

    play(1, scenario)


@pytest.mark.parametrize(
    ("kind", "passed"),
    [(BarrierKind.HARD, []), (BarrierKind.HARD_MINIMUM, [tick_at(0.1)])],
)
def test_the_kind_decides_what_passes(kind: BarrierKind, passed: list[TimeTick]) -> None:
    async def scenario(world: World) -> None:
        a, b = await world.join("q", "a", kind=kind), await world.join("q", "b", kind=kind)
        await world.report("q", "a", a, tick_at(0.1))
        await world.report("q", "b", b, tick_at(0.2))
        news = await world.next_ticks("q")
        assert list(news.ticks if news else ()) == passed

    play(1, scenario)


def test_people_may_have_soft_barriers_of_their_own() -> None:
    async def scenario(world: World) -> None:
        kind = BarrierKind.SOFT
        a = await world.join("writers", "a", kind=kind, interval_ms=100)
        b = await world.join("writers", "b", kind=kind)
        await world.report("writers", "a", a, tick_at(0.10), SOFT)
        assert (await world.report("writers", "b", b, tick_at(0.11), SOFT)).tick == tick_at(0.10)
        await world.report("writers", "a", a, tick_at(0.15), SOFT)
        assert (await world.report("writers", "b", b, tick_at(0.19), SOFT)).tick == tick_at(0.10)
        await world.report("writers", "a", a, tick_at(0.25), SOFT)
        assert (await world.report("writers", "b", b, tick_at(0.26), SOFT)).tick == tick_at(0.25)

    play(1, scenario)


def test_watchers_are_answered_when_something_passes_and_else_after_a_second() -> None:
    async def scenario(world: World) -> None:
        got: list[PassedTicks | None] = []

        async def watch(after: int) -> None:
            got.append(await world.next_ticks("q", after))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch, 0)
            tasks.start_soon(watch, tick_at(0.2))
            await world.clock.sleep(0.5)
            assert got == []
            a = await world.join("q", "a")
            await world.report("q", "a", a, tick_at(0.1))
            await world.clock.sleep(0.01)
            assert [it.ticks for it in got if it] == [(tick_at(0.1),)]
            await world.clock.sleep(1.0)
            assert got[1:] == [None]

    play(1, scenario)


def test_a_watcher_that_was_away_gets_every_hard_tick_it_missed() -> None:
    async def scenario(world: World) -> None:
        a = await world.join("q", "a")
        ticks = [tick_at(number / 1000) for number in range(1, 6)]
        for tick in ticks:
            await world.report("q", "a", a, tick)
        news = await world.next_ticks("q", ticks[1])
        newest = await world.next_ticks("q")
        assert news is not None
        assert newest is not None
        assert (list(news.ticks), list(newest.ticks)) == (ticks[2:], ticks[-1:])

    play(1, scenario)


def test_a_silent_peer_is_named_then_removed_and_the_others_go_on() -> None:
    async def scenario(world: World) -> None:
        a = await world.join("q", "a", lease_s=60.0)
        b = await world.join("q", "b", lease_s=4.0)
        await world.report("q", "a", a, tick_at(0.1))
        await world.clock.sleep(2.5)
        assert world.statistics(HARD)["silent"] == "q/b"
        assert world.statistics(HARD)["silent_peers"] == 1
        assert (await world.barriers())["q"].waits_for == ("b",)
        await world.report("q", "b", b, 0)
        assert world.statistics(HARD)["silent"] == ""
        assert (await world.barriers())["q"].tick == 0
        await world.clock.sleep(4.5)
        view = (await world.barriers())["q"]
        assert (view.tick, view.removed) == (tick_at(0.1), ("b",))
        assert world.statistics(HARD)["removed"] == "q/b"
        assert await refused(world.report("q", "b", b, tick_at(0.2))) is (
            StreamingCode.INVALID_REQUEST_SEQ
        )
        b = await world.join("q", "b", lease_s=4.0)
        assert (await world.barriers())["q"].removed == ()
        assert (await world.report("q", "b", b, tick_at(0.1))).late
        await world.report("q", "b", b, tick_at(0.3))
        assert (await world.report("q", "a", a, tick_at(0.3))).tick == tick_at(0.3)

    play(1, scenario)


def test_who_leaves_lets_the_others_pass_and_a_foreign_lease_removes_nobody() -> None:
    async def scenario(world: World) -> None:
        a, b = await world.join("q", "a"), await world.join("q", "b")
        await world.report("q", "a", a, tick_at(0.1))
        barrier = world.system.find(HARD)
        await barrier.ask(LeaveBarrier("q", "b", b + 1), deadline_s=WITHIN_S)
        await barrier.ask(LeaveBarrier("other", "b", b), deadline_s=WITHIN_S)
        assert (await world.barriers())["q"].tick == 0
        await barrier.ask(LeaveBarrier("q", "b", b), deadline_s=WITHIN_S)
        await barrier.ask(LeaveBarrier("q", "b", b), deadline_s=WITHIN_S)
        assert (await world.barriers())["q"].tick == tick_at(0.1)

    play(1, scenario)


def test_who_joins_under_the_same_name_fences_the_earlier_one() -> None:
    async def scenario(world: World) -> None:
        first = await world.join("q", "a")
        second = await world.join("q", "a")
        code = await refused(world.report("q", "a", first, tick_at(0.1)))
        assert code is StreamingCode.CHANNEL_FENCED
        assert (await world.report("q", "a", second, tick_at(0.1))).tick == tick_at(0.1)

    play(1, scenario)


def test_a_tick_from_the_future_is_refused_and_changes_nothing() -> None:
    async def scenario(world: World) -> None:
        a = await world.join("q", "a")
        for tick in (tick_at(3600), (1 << 64) - 1, -1):
            code = await refused(world.report("q", "a", a, tick))
            assert code is StreamingCode.INVALID_ARGUMENT
        assert (await world.report("q", "a", a, tick_at(0.1))).tick == tick_at(0.1)

    play(1, scenario)


def test_reports_wait_until_it_is_known_how_far_the_pchannels_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(barriers, "EARLY_REPORTS_MAX", 1)

    async def scenario(world: World) -> None:
        answers: list[Reported] = []

        async def report(lease_id: int) -> None:
            answers.append(await world.report("q", "a", lease_id, tick_at(0.1)))

        world.pchannels.down = True
        world.system.kill(HARD)
        await world.clock.sleep(0.5)
        a = await world.join("q", "a")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(report, a)
            await world.clock.sleep(1.0)
            assert answers == []
            code = await refused(world.report("q", "a", a, tick_at(0.1)))
            assert code is StreamingCode.INNER
            assert not (await world.report("q", "a", a, 0)).late
            world.pchannels.down = False
        assert answers == [Reported(tick_at(0.1), late=False)]

    play(1, scenario)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"barrier": ""}, StreamingCode.INVALID_ARGUMENT),
        ({"peer": ""}, StreamingCode.INVALID_ARGUMENT),
        ({"peer": "x" * 256}, StreamingCode.INVALID_ARGUMENT),
        ({"lease_s": 0.0}, StreamingCode.INVALID_ARGUMENT),
        ({"lease_s": -1.0}, StreamingCode.INVALID_ARGUMENT),
        ({"lease_s": 1e9}, StreamingCode.INVALID_ARGUMENT),
        ({"interval_ms": -1}, StreamingCode.INVALID_ARGUMENT),
        ({"interval_ms": 1 << 60}, StreamingCode.INVALID_ARGUMENT),
        ({"kind": BarrierKind.HARD_MINIMUM, "barrier": "there"}, StreamingCode.INVALID_ARGUMENT),
        ({"barrier": CLUSTER_BARRIER}, StreamingCode.RESOURCE_ACQUIRED),
        ({"barrier": CLUSTER_BARRIER, "kind": BarrierKind.SOFT}, StreamingCode.RESOURCE_ACQUIRED),
    ],
)
def test_bad_joins_have_their_code_and_leave_no_trace(
    given: dict[str, object], code: StreamingCode
) -> None:
    async def scenario(world: World) -> None:
        await world.join("there", "a")
        before = await world.barriers(), len((await world.barriers(SOFT))[CLUSTER_BARRIER].peers)
        arguments = {"barrier": "q", "peer": "b"} | given
        assert await refused(world.join(**arguments)) is code  # type: ignore[arg-type]
        after = await world.barriers(), len((await world.barriers(SOFT))[CLUSTER_BARRIER].peers)
        assert after == before

    play(1, scenario)


def test_a_barrier_of_the_other_actor_is_refused_and_so_is_feeding_it() -> None:
    async def scenario(world: World) -> None:
        hard = world.system.find(HARD)
        join = Join("q", BarrierKind.SOFT, "a", 10.0)
        assert await refused(hard.ask(join, deadline_s=1)) is StreamingCode.INVALID_ARGUMENT
        assert (
            await refused(hard.ask(FeedTicks({}), deadline_s=1)) is StreamingCode.INVALID_ARGUMENT
        )

    play(1, scenario)


def test_barriers_peers_and_watches_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        for number in range(barriers.BARRIERS_MAX):
            await world.join(f"q{number}", "a")
        assert await refused(world.join("one more", "a")) is StreamingCode.INNER
        monkeypatch.setattr(barriers, "PEERS_MAX", barriers.BARRIERS_MAX)
        assert await refused(world.join("q0", "b")) is StreamingCode.INNER
        assert len(str(world.statistics(HARD)["ticks"])) < 1000
        outcomes: list[object] = []

        async def watch() -> None:
            try:
                outcomes.append(await world.next_ticks("q0"))
            except Refused as refused:
                outcomes.append(refused.refusal.code)

        async with anyio.create_task_group() as tasks:
            for _ in range(WATCHES_MAX + 1):
                tasks.start_soon(watch)
        assert sorted(map(str, outcomes))[:2] == [str(StreamingCode.INNER), "None"]

    play(1, scenario)


def test_a_barrier_without_peers_is_forgotten_in_the_end() -> None:
    async def scenario(world: World) -> None:
        a = await world.join("q", "a")
        await world.report("q", "a", a, tick_at(0.1))
        await world.system.find(HARD).ask(LeaveBarrier("q", "a", a), deadline_s=WITHIN_S)
        await world.clock.sleep(barriers.FORGET_S - 10)
        assert (await world.barriers())["q"].tick == tick_at(0.1)
        await world.clock.sleep(20)
        assert await world.barriers() == {}

    play(1, scenario)


def test_only_so_many_removed_names_are_remembered() -> None:
    async def scenario(world: World) -> None:
        await world.join("q", "stays", lease_s=100.0)
        for number in range(100):
            await world.join("q", f"p{number}", lease_s=1.0)
        await world.clock.sleep(3.0)
        removed = (await world.barriers())["q"].removed
        assert (len(removed), removed[-1]) == (64, "p99")
        assert world.statistics(HARD)["removals"] == 100

    play(1, scenario)
