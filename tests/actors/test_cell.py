"""One life from start to end, with actors that do not behave."""

import asyncio
from typing import Any

import anyio
import pytest

from actors import ActorDied, ChildSpec, ExitKind, MailboxSpec, PlannedRestart
from actors.cell import BATCHES_UNBROKEN_MAX
from actors.testing import run_seeded
from tests.actors.troupe import (
    LONG_S,
    Hold,
    Nap,
    Player,
    Raise,
    Resist,
    Say,
    Troupe,
    seeded,
    settle,
)


@seeded
async def test_a_batch_holds_all_that_waits_up_to_its_limit() -> None:
    async with Troupe() as troupe:
        spec = troupe.child("a", mailbox=MailboxSpec(batch_max=4))
        ref = await troupe.system.start_child("/root", spec)
        for number in range(10):
            ref.tell(number)
        await settle()
        assert troupe.player("a").batches == [4, 4, 2]


@seeded
async def test_a_busy_actor_lets_others_have_their_turn() -> None:
    async with Troupe("a") as troupe:
        ref, player = troupe.ref("a"), troupe.player("a")
        for number in range(1000):
            ref.tell(number)
        seen = set()
        while len(player.heard) < 1000:
            await asyncio.sleep(0)
            seen.add(len(player.heard))
        assert len(seen) > 2
        assert {count % BATCHES_UNBROKEN_MAX for count in seen} <= {0, 1000 % BATCHES_UNBROKEN_MAX}


@seeded
async def test_a_stop_lets_the_batch_finish_and_leaves_the_rest() -> None:
    async with Troupe("a") as troupe:
        ref = troupe.ref("a")
        async with anyio.create_task_group() as tasks:

            async def rest() -> None:
                with pytest.raises(ActorDied) as caught:
                    await ref.ask(Say("never handled"), deadline_s=LONG_S)
                assert caught.value.reason.kind is ExitKind.SHUTDOWN

            async def batch() -> None:
                assert await ref.ask(Nap(2), deadline_s=LONG_S) == "awake"

            tasks.start_soon(batch)
            await settle()
            tasks.start_soon(rest)
            await settle()
            assert troupe.state("a") == "running"
            tasks.start_soon(troupe.system.stop_child, "/root/a")
            await settle()
            assert troupe.state("a") == "stopping"
        assert troupe.journal == ["a@1 started", "a@1 stops", "a@1 stopped"]


@seeded
async def test_a_batch_that_outlasts_the_stop_deadline_is_cancelled() -> None:
    async with Troupe() as troupe:
        spec = troupe.child("a", stop_deadline_s=3.0)
        ref = await troupe.system.start_child("/root", spec)
        ref.tell(Nap(1000))
        await settle()
        await troupe.system.stop_child("/root/a")
        assert troupe.clock.monotonic_s() == pytest.approx(3.0)
        assert troupe.journal == ["a@1 started"]


@seeded
async def test_a_stopped_that_never_returns_is_cancelled() -> None:
    async with Troupe() as troupe:
        spec = troupe.child("a", stop_deadline_s=3.0, on_stop=lambda _: anyio.sleep_forever())
        await troupe.system.start_child("/root", spec)
        await troupe.system.stop_child("/root/a")
        assert troupe.journal == ["a@1 started", "a@1 stops"]


@seeded
async def test_a_stopped_that_raises_is_an_end_like_any_other() -> None:
    async def fall(_: Player) -> None:
        raise OSError("on the way out")

    async with Troupe() as troupe:
        await troupe.system.start_child("/root", troupe.child("a", on_stop=fall))
        await troupe.system.stop_child("/root/a")
        assert "a" not in troupe.terms()


@seeded
async def test_a_kill_ends_an_actor_in_the_middle_of_an_await() -> None:
    async with Troupe("a") as troupe:
        ref = troupe.ref("a")
        ref.tell(Nap(1000))
        await settle()
        troupe.system.kill("/root/a")
        with pytest.raises(ActorDied) as caught:
            ref.tell(Say())
        assert caught.value.reason.kind is ExitKind.KILLED
        await settle()
        assert troupe.clock.monotonic_s() == 0
        assert await troupe.ask("a", Say()) == "a@2:"
        assert troupe.journal == ["a@1 started", "a@2 started"]


@seeded
async def test_the_successor_waits_until_the_killed_one_really_ends() -> None:
    async with Troupe("a") as troupe:
        life = troupe.ref("a").life
        troupe.ref("a").tell(Resist(2))
        await settle()
        troupe.system.kill("/root/a")
        await settle()
        assert troupe.state("a") == "dying"
        assert not life.over
        await troupe.clock.sleep(2.1)
        assert troupe.terms() == {"a": 2}


@seeded
async def test_who_resists_for_too_long_is_abandoned_and_shown() -> None:
    async with Troupe("a") as troupe:
        troupe.ref("a").tell(Resist(50))
        await settle()
        troupe.system.kill("/root/a")
        await troupe.clock.sleep(6)
        assert await troupe.ask("a", Say()) == "a@2:"
        last = troupe.system.statistics()[-1]
        assert (last.path, last.term, last.state) == ("/root/a", 1, "abandoned")
        await troupe.clock.sleep(50)
        assert troupe.system.statistics()[-1].term == 2


@seeded
async def test_the_watchers_of_the_abandoned_are_told_once() -> None:
    async with Troupe("a", "b") as troupe:
        troupe.player("b").context.watch(troupe.ref("a"))
        troupe.ref("a").tell(Resist(50))
        await settle()
        troupe.system.kill("/root/a")
        await troupe.clock.sleep(100)
        assert troupe.journal.count("b@1 saw /root/a@1 killed") == 1


class Deaf(Player):
    """Hears no cancellation a few times, then goes on as if nothing had been."""

    async def act(self, envelope: Any) -> None:
        for _ in range(3):
            try:
                await self.context.clock.sleep(LONG_S)
            except asyncio.CancelledError:
                self.note("did not listen")


@seeded
async def test_who_swallows_its_cancellation_ends_all_the_same_and_is_not_stopped() -> None:
    journal: list[str] = []
    async with Troupe(ChildSpec("a", lambda: Deaf(journal))) as troupe:
        troupe.ref("a").tell("go")
        await settle()
        troupe.system.kill("/root/a")
        await settle()
        assert journal == ["a@1 started", *["a@1 did not listen"] * 3, "a@2 started"]


@seeded
async def test_a_cancellation_from_nowhere_is_a_crash() -> None:
    async with Troupe("a") as troupe:
        with pytest.raises(ActorDied) as caught:
            await troupe.ask("a", Raise(asyncio.CancelledError()))
        assert caught.value.reason.kind is ExitKind.CRASHED
        await settle()
        assert troupe.terms() == {"a": 2}


@seeded
async def test_a_second_kill_and_a_stop_of_the_dying_change_nothing() -> None:
    async with Troupe("a") as troupe:
        cell = troupe.system._cell("/root/a")
        for _ in range(2):
            cell.request_stop()
        troupe.system.kill("/root/a")
        cell.request_stop()
        cell.kill(cell.life.exit)  # type: ignore[arg-type]
        await settle()
        assert troupe.terms() == {"a": 2}


@seeded
async def test_the_dead_answer_nobody_twice() -> None:
    async with Troupe("a") as troupe:
        player, ref = troupe.player("a"), troupe.ref("a")

        async def hold() -> None:
            with pytest.raises(ActorDied):
                await ref.ask(Hold(), deadline_s=LONG_S)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hold)
            await settle()
            ref.tell(Raise())
        player.held[0].reply("from beyond")
        assert not player.held[0].wanted()


@pytest.mark.parametrize(
    ("error", "level", "traceback"),
    [(PlannedRestart("room made"), "WARNING", False), (ValueError("boom"), "ERROR", True)],
)
def test_a_crash_is_logged_with_its_traceback_and_a_planned_restart_in_one_line(
    caplog: pytest.LogCaptureFixture, error: Exception, level: str, *, traceback: bool
) -> None:
    async def scenario() -> None:
        async with Troupe("a") as troupe:
            troupe.ref("a").tell(Raise(error))
            await settle()
            assert troupe.terms() == {"a": 2}

    run_seeded(1, scenario)
    first = next(it for it in caplog.records if it.name == "actors")
    assert (first.levelname, first.exc_info is not None) == (level, traceback)
    assert str(error) in first.getMessage()
    assert sum(it.levelname != "INFO" for it in caplog.records) == (2 if traceback else 1)
