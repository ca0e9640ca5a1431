"""Entering and leaving, on the seeded loop and on the real ones."""

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import pytest
import uvloop

from actors import (
    ActorDied,
    ChildSpec,
    ExitKind,
    MailboxSpec,
    NoSuchActor,
    StaleTerm,
    SupervisorSpec,
    System,
    SystemClock,
)
from actors.testing import run_seeded
from tests.actors.troupe import LONG_S, Nap, Player, Raise, Resist, Say, Troupe, seeded, settle


@seeded
async def test_an_unknown_path_is_no_such_actor() -> None:
    async with Troupe("a") as troupe:
        for path in ("/root/b", "/other", "root/a", "/root/a/b", "", "/"):
            with pytest.raises(NoSuchActor):
                troupe.system.find(path)
        assert troupe.system.find("/root").path == "/root"


@seeded
async def test_a_system_runs_once() -> None:
    async with Troupe("a") as troupe:
        with pytest.raises(RuntimeError, match="once"):
            await troupe.system.__aenter__()


@seeded
async def test_an_error_of_the_body_comes_out_as_it_is_after_an_orderly_stop() -> None:
    troupe = Troupe("a")
    with pytest.raises(KeyError, match="mine"):
        async with troupe:
            raise KeyError("mine")
    assert troupe.journal[-1] == "a@1 stopped"


@seeded
async def test_a_cancelled_body_still_means_an_orderly_stop() -> None:
    async def slow(_: Player) -> None:
        await anyio.sleep(2)

    troupe = Troupe()
    with anyio.move_on_after(1) as scope:
        async with troupe:
            await troupe.system.start_child("/root", troupe.child("a", on_stop=slow))
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert troupe.journal == ["a@1 started", "a@1 stops", "a@1 stopped"]


@seeded
async def test_a_cancelled_start_leaves_nothing_running() -> None:
    inner = Troupe()
    troupe = Troupe("a", inner.child("b", on_start=lambda _: anyio.sleep(100)))
    with anyio.move_on_after(1):
        await troupe.__aenter__()
    assert troupe.journal == ["a@1 started", "a@1 stops", "a@1 stopped"]
    assert len(asyncio.all_tasks()) == 1


@seeded
async def test_after_the_end_every_reference_is_to_the_dead() -> None:
    async with Troupe("a") as troupe:
        ref = troupe.ref("a")
    with pytest.raises(ActorDied) as caught:
        ref.tell(Say())
    assert caught.value.reason.kind is ExitKind.SHUTDOWN


@seeded
async def test_a_killed_root_is_a_failed_system() -> None:
    async with Troupe("a") as troupe:
        troupe.system.kill("/root")
        with pytest.raises(ActorDied, match="/root of term 1 is dead: killed"):
            await troupe.system.wait_failed()
        assert "stopped" not in " ".join(troupe.journal)


@seeded
async def test_the_end_does_not_wait_for_ever_for_a_shielded_actor() -> None:
    async with Troupe("a", "b") as troupe:
        for name in "ab":
            troupe.ref(name).tell(Resist(1e6))
        await settle()
    assert troupe.clock.monotonic_s() < 30
    assert len(asyncio.all_tasks()) == 1


class Stubborn(Player):
    """Shields itself and swallows the cancellation that breaks the shield, a few times."""

    async def act(self, envelope: Any) -> None:
        for _ in range(3):
            with anyio.CancelScope(shield=True):
                try:
                    await anyio.sleep_forever()
                except asyncio.CancelledError:
                    self.note("did not listen")


@seeded
async def test_the_end_insists_with_who_swallows_even_that() -> None:
    journal: list[str] = []
    async with Troupe(ChildSpec("a", lambda: Stubborn(journal), stop_deadline_s=1)) as troupe:
        troupe.ref("a").tell("go")
        await settle()
    assert journal == ["a@1 started", *["a@1 did not listen"] * 3]
    assert troupe.clock.monotonic_s() == pytest.approx(2.2)


@seeded
async def test_a_tree_that_takes_too_long_to_stop_is_killed_whole() -> None:
    inner = Troupe()
    spec = SupervisorSpec(
        "root",
        children=tuple(
            inner.child(name, stop_deadline_s=20.0, on_stop=lambda _: anyio.sleep(15))
            for name in "abc"
        ),
    )
    async with System(spec, clock=inner.clock, stop_deadline_s=5.0):
        pass
    assert inner.clock.monotonic_s() == pytest.approx(5.0)
    assert inner.journal[3:] == ["c@1 stops"]


class Shielded:
    """A term source that cannot be interrupted."""

    async def next_term(self, path: str) -> int:
        with anyio.CancelScope(shield=True):
            await anyio.sleep_forever()
        raise AssertionError


@seeded
async def test_a_term_source_that_shields_itself_does_not_hold_up_the_end() -> None:
    inner = Troupe()
    spec = SupervisorSpec("root", children=(inner.child("a"), SupervisorSpec("inner")))
    async with System(spec, clock=inner.clock, stop_deadline_s=5.0) as system:
        with anyio.move_on_after(1):
            await system.start_child("/root/inner", inner.child("b", terms=Shielded()))
    assert inner.clock.monotonic_s() < 12
    assert len(asyncio.all_tasks()) == 1


def on_asyncio(main: Callable[[], Any]) -> None:
    with asyncio.Runner() as runner:
        runner.run(main())


def on_uvloop(main: Callable[[], Any]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


@pytest.mark.parametrize("run", [on_asyncio, on_uvloop, lambda main: run_seeded(1, main)])
def test_the_same_play_on_every_loop(run: Callable[[Callable[[], Any]], None]) -> None:
    journal: list[str] = []

    async def play() -> None:
        clock = SystemClock()
        spec = ChildSpec("a", lambda: Player(journal), MailboxSpec(batch_max=64))
        async with System(SupervisorSpec("root", children=(spec,)), clock=clock) as system:
            ref = system.find("/root/a")
            assert await ref.ask(Nap(0.001), deadline_s=LONG_S) == "awake"
            with pytest.raises(ActorDied):
                await ref.ask(Raise(), deadline_s=LONG_S)
            await settle(20)
            with pytest.raises(StaleTerm):
                ref.tell(Say())
            answers: list[str] = []

            async def ask(number: int) -> None:
                question = Say(str(number))
                answers.append(await system.find("/root/a").ask(question, deadline_s=LONG_S))

            async with anyio.create_task_group() as tasks:
                for number in range(100):
                    tasks.start_soon(ask, number)
            assert sorted(answers) == sorted(f"a@2:{number}" for number in range(100))

    run(play)
    assert journal == ["a@1 started", "a@2 started", "a@2 stops", "a@2 stopped"]
