"""Starts that fail, starts that are slow, terms from outside, children that come and go."""

import asyncio
from collections.abc import Iterator

import anyio
import pytest

from actors import (
    ONE_FOR_ALL,
    REST_FOR_ONE,
    TEMPORARY,
    TRANSIENT,
    Actor,
    ActorDied,
    Backoff,
    ChildSpec,
    NameTaken,
    NoSuchActor,
    NotRunning,
    StaleTerm,
    StartTimeout,
    Strategy,
    SupervisorSpec,
    System,
)
from tests.actors.troupe import LONG_S, Leave, Player, Raise, Say, Step, Troupe, seeded, settle


class Registry:
    """Durable terms, after some refusals."""

    def __init__(self, *terms: int, refusals: int = 0) -> None:
        self.terms: Iterator[int] = iter(terms)
        self.refusals = refusals
        self.asked: list[str] = []

    async def next_term(self, path: str) -> int:
        self.asked.append(path)
        await asyncio.sleep(0)
        if self.refusals:
            self.refusals -= 1
            raise OSError("disk full")
        return next(self.terms)


async def refuse(_: Player) -> None:
    raise OSError("disk full")


def fails_until(troupe: Troupe, good_s: float) -> Step:
    async def start(player: Player) -> None:
        if troupe.clock.monotonic_s() < good_s:
            raise OSError("disk full")

    return start


@seeded
async def test_an_actor_is_built_at_the_term_its_source_gives() -> None:
    registry = Registry(17, 42)
    inner = Troupe()
    async with Troupe(inner.child("a", terms=registry)) as troupe:
        assert troupe.ref("a").term == 17
        old = troupe.ref("a")
        troupe.system.kill("/root/a")
        await settle()
        with pytest.raises(StaleTerm) as caught:
            old.tell(Say())
        assert caught.value.current == 42
        assert registry.asked == ["/root/a"] * 2


@seeded
async def test_a_source_that_goes_back_fails_the_start() -> None:
    inner = Troupe()
    async with Troupe(inner.child("a", terms=Registry(17, 17, 18))) as troupe:
        troupe.system.kill("/root/a")
        await settle()
        with pytest.raises(NotRunning, match="term 17 after 17"):
            troupe.ref("a")
        await troupe.clock.sleep(1)
        assert troupe.terms() == {"a": 18}


@pytest.mark.parametrize("how", ["started", "terms", "build"])
@seeded
async def test_a_failed_first_start_fails_the_system_with_that_error(how: str) -> None:
    inner = Troupe()

    def build() -> Actor[object]:
        raise OSError("disk full")

    bad = {
        "started": inner.child("bad", on_start=refuse),
        "terms": inner.child("bad", terms=Registry(refusals=1)),
        "build": ChildSpec("bad", build),
    }[how]
    troupe = Troupe("a", SupervisorSpec("inner", children=(inner.child("b"), bad)))
    with pytest.raises(OSError, match="disk full"):
        await troupe.__aenter__()
    assert troupe.journal == ["a@1 started", "a@1 stops", "a@1 stopped"]
    assert inner.journal == ["b@1 started", "b@1 stops", "b@1 stopped"]


@seeded
async def test_a_start_that_takes_too_long_is_cancelled() -> None:
    inner = Troupe()
    slow = inner.child("a", on_start=lambda _: anyio.sleep(100), start_deadline_s=3.0)
    troupe = Troupe(slow)
    with pytest.raises(StartTimeout):
        await troupe.__aenter__()
    assert troupe.clock.monotonic_s() == pytest.approx(3.0)


@seeded
async def test_a_term_that_takes_too_long_is_a_failed_start() -> None:
    class Silent:
        async def next_term(self, path: str) -> int:
            await anyio.sleep_forever()
            raise AssertionError

    inner = Troupe()
    troupe = Troupe(inner.child("a", terms=Silent(), start_deadline_s=3.0))
    with pytest.raises(StartTimeout):
        await troupe.__aenter__()


@seeded
async def test_a_child_killed_while_it_starts_has_failed_to_start() -> None:
    async with Troupe() as troupe:
        slow = troupe.child("a", on_start=lambda _: anyio.sleep(10))

        async def start() -> None:
            with pytest.raises(ActorDied, match="killed"):
                await troupe.system.start_child("/root", slow)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(start)
            await settle()
            troupe.system.kill("/root/a")
        assert troupe.terms() == {}


@seeded
async def test_messages_to_one_that_starts_wait_for_it() -> None:
    async with Troupe() as troupe:
        slow = troupe.child("a", on_start=lambda _: anyio.sleep(10))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(troupe.system.start_child, "/root", slow)
            await settle()
            assert troupe.state("a") == "starting"
            assert await troupe.ask("a", Say()) == "a@1:"


@seeded
async def test_a_patient_child_waits_for_better_times_and_does_not_stop_the_others() -> None:
    outer = Troupe()
    backoff = Backoff(1.0, 4.0)
    patient = outer.child("a", patient=True, on_start=fails_until(outer, 1000))
    async with Troupe(patient, "b", restarts_max=0, backoff=backoff) as troupe:
        shown = troupe.system.statistics()[1]
        assert (shown.state, shown.last_error) == (
            "waiting",
            "failed to start: OSError: disk full",
        )
        assert troupe.state("b") == "running"
        with pytest.raises(NotRunning, match="disk full"):
            troupe.ref("a")
        await troupe.clock.sleep(1005)
        assert troupe.state("a") == "running"
        assert 250 < troupe.terms()["a"] < 520


@pytest.mark.parametrize("strategy", [REST_FOR_ONE, ONE_FOR_ALL])
@seeded
async def test_who_depends_on_a_patient_child_waits_with_it(strategy: Strategy) -> None:
    outer = Troupe()
    patient = outer.child("b", patient=True, terms=Registry(1, refusals=3))
    async with Troupe("a", patient, "c", strategy=strategy) as troupe:
        first = "running" if strategy is REST_FOR_ONE else "waiting"
        assert [troupe.state(name) for name in "abc"] == [first, "waiting", "waiting"]
        await troupe.clock.sleep(10)
        assert [troupe.state(name) for name in "abc"] == ["running"] * 3
        assert "".join(line[0] for line in troupe.journal if "started" in line)[-1] == "c"


@seeded
async def test_a_patient_child_started_later_waits_too_and_says_so() -> None:
    async with Troupe() as troupe:
        spec = troupe.child("a", patient=True, on_start=fails_until(troupe, 5))
        with pytest.raises(NotRunning, match="disk full"):
            await troupe.system.start_child("/root", spec)
        await troupe.clock.sleep(20)
        assert await troupe.ask("a", Say()) != ""


@seeded
async def test_a_waiting_child_can_be_stopped() -> None:
    async with Troupe() as troupe:
        spec = troupe.child("a", patient=True, on_start=refuse)
        with pytest.raises(NotRunning):
            await troupe.system.start_child("/root", spec)
        await troupe.system.stop_child("/root/a")
        await troupe.clock.sleep(100)
        assert troupe.terms() == {}


@seeded
async def test_children_come_and_go_and_terms_of_a_name_grow() -> None:
    async with Troupe() as troupe:
        for term in (1, 2, 3):
            ref = await troupe.system.start_child("/root", troupe.child("a"))
            assert ref.term == term
            await troupe.system.stop_child("/root/a")


@seeded
async def test_a_name_that_is_taken_is_refused() -> None:
    async with Troupe("a") as troupe:
        with pytest.raises(NameTaken):
            await troupe.system.start_child("/root", troupe.child("a"))


@seeded
async def test_a_child_that_fails_to_start_is_not_there() -> None:
    async with Troupe() as troupe:
        with pytest.raises(OSError, match="disk full"):
            await troupe.system.start_child("/root", troupe.child("a", on_start=refuse))
        assert troupe.terms() == {}
        await troupe.system.start_child("/root", troupe.child("a"))
        assert troupe.terms() == {"a": 2}


@seeded
async def test_a_transient_child_started_later_is_removed_when_it_has_finished() -> None:
    async with Troupe() as troupe:
        spec = troupe.child("a", restart=TRANSIENT)
        ref = await troupe.system.start_child("/root", spec)
        ref.tell(Leave())
        await settle()
        assert troupe.terms() == {}


@seeded
async def test_the_name_of_a_temporary_child_is_free_after_its_crash() -> None:
    async with Troupe() as troupe:
        for _ in range(3):
            spec = troupe.child("a", restart=TEMPORARY)
            ref = await troupe.system.start_child("/root", spec)
            with pytest.raises(ActorDied):
                await ref.ask(Raise(), deadline_s=LONG_S)


@seeded
async def test_a_whole_subtree_can_be_added_and_removed() -> None:
    async with Troupe() as troupe:
        spec = SupervisorSpec("channel", children=(troupe.child("a"), SupervisorSpec("scanners")))
        await troupe.system.start_child("/root", spec)
        await troupe.system.start_child("/root/channel/scanners", troupe.child("s"))
        assert list(troupe.terms()) == [
            "channel",
            "channel/a",
            "channel/scanners",
            "channel/scanners/s",
        ]
        await troupe.system.stop_child("/root/channel")
        assert troupe.journal[-4:] == ["s@1 stops", "s@1 stopped", "a@1 stops", "a@1 stopped"]


@seeded
async def test_nobody_is_started_for_an_asker_who_has_left() -> None:
    async with Troupe() as troupe:
        slow = troupe.child("a", on_start=lambda _: anyio.sleep(10))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(troupe.system.start_child, "/root", slow)
            await settle()
            with anyio.move_on_after(1):
                await troupe.system.start_child("/root", troupe.child("b"))
        await settle()
        assert troupe.terms() == {"a": 1}


@seeded
async def test_a_child_whose_asker_leaves_during_the_start_is_stopped_again() -> None:
    async with Troupe() as troupe:
        slow = troupe.child("a", on_start=lambda _: anyio.sleep(10))
        with anyio.move_on_after(1):
            await troupe.system.start_child("/root", slow)
        await troupe.clock.sleep(20)
        assert troupe.terms() == {}
        assert troupe.journal == ["a@1 started", "a@1 stops", "a@1 stopped"]


@seeded
async def test_many_children_are_started_in_one_go_and_each_has_its_own_answer() -> None:
    async with Troupe("taken") as troupe:
        specs = [
            troupe.child("a"),
            troupe.child("taken"),
            troupe.child("broken", on_start=refuse),
            troupe.child("b"),
        ]
        a, taken, broken, b = await troupe.system.start_children("/root", specs)
        assert (a, b) == (troupe.ref("a"), troupe.ref("b"))
        assert isinstance(taken, NameTaken)
        assert isinstance(broken, OSError)
        assert troupe.terms() == {"taken": 1, "a": 1, "b": 1}
        with pytest.raises(NoSuchActor, match="not a supervisor"):
            await troupe.system.start_children("/root/a", specs)


@seeded
async def test_of_many_children_none_is_left_behind_when_their_asker_leaves() -> None:
    async with Troupe() as troupe:
        slow = troupe.child("slow", on_start=lambda _: anyio.sleep(10))
        specs = [troupe.child("a"), troupe.child("broken", on_start=refuse), slow]
        with anyio.move_on_after(1):
            await troupe.system.start_children("/root", [*specs, troupe.child("never")])
        await troupe.clock.sleep(20)
        assert troupe.terms() == {}
        assert "a@1 stopped" in troupe.journal
        assert not [line for line in troupe.journal if line.startswith("never")]


@seeded
async def test_who_is_not_there_cannot_be_stopped_nor_be_a_supervisor() -> None:
    async with Troupe("a") as troupe:
        with pytest.raises(NoSuchActor):
            await troupe.system.stop_child("/root/nobody")
        with pytest.raises(NoSuchActor):
            await troupe.system.stop_child("/root/nobody/a")
        with pytest.raises(NoSuchActor):
            await troupe.system.stop_child("/root")
        with pytest.raises(NoSuchActor, match="not a supervisor"):
            await troupe.system.start_child("/root/a", troupe.child("b"))


@seeded
async def test_an_actor_may_start_children_elsewhere() -> None:
    scanners = SupervisorSpec("scanners")

    async with Troupe(scanners, "a") as troupe:

        async def open_scanner(player: Player) -> None:
            tree = player.context.tree
            await tree.start_child("/root/scanners", troupe.child("s"))

        spec = troupe.child("opener", on_start=open_scanner)
        await troupe.system.start_child("/root", spec)
        assert "scanners/s" in troupe.terms()


def test_a_system_needs_no_clock_and_no_seed() -> None:
    assert isinstance(System(SupervisorSpec("root")), System)


@seeded
async def test_no_further_child_is_started_once_a_stop_is_asked_for() -> None:
    async with Troupe() as troupe:

        class Stopper(Registry):
            async def next_term(self, path: str) -> int:
                self.refusals -= 1
                if self.refusals >= 0:
                    troupe.system._cell("/root/inner").request_stop()
                    raise OSError("disk full")
                return next(self.terms)

        patient = troupe.child("a", patient=True, terms=Stopper(1, refusals=1))
        inner = SupervisorSpec("inner", children=(patient, troupe.child("b")))
        await troupe.system.start_child("/root", inner)
        assert troupe.journal == []
        await settle()
        assert troupe.terms() == {"inner": 2, "inner/a": 1, "inner/b": 1}
