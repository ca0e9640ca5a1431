"""Starts, stops, restarts and giving up, in virtual time."""

import anyio
import pytest

from actors import (
    ONE_FOR_ALL,
    REST_FOR_ONE,
    TEMPORARY,
    TRANSIENT,
    ActorDied,
    Backoff,
    NoSuchActor,
    NotRunning,
    Restart,
    StartInterrupted,
    Strategy,
    SupervisorSpec,
    TooManyRestarts,
)
from actors.supervisor import SUPERVISORS_TOGETHER
from tests.actors.troupe import LONG_S, Leave, Player, Raise, Say, Troupe, seeded, settle


async def crash(troupe: Troupe, name: str) -> None:
    troupe.ref(name).tell(Raise())
    await settle()


@seeded
async def test_children_start_in_order_and_stop_in_reverse() -> None:
    async with Troupe("a", "b", "c") as troupe:
        assert troupe.journal == ["a@1 started", "b@1 started", "c@1 started"]
        troupe.journal.clear()
    stops = [line for line in troupe.journal if line.endswith("stopped")]
    assert stops == ["c@1 stopped", "b@1 stopped", "a@1 stopped"]


@pytest.mark.parametrize(("strategy", "took_s"), [(Strategy.ONE_FOR_ONE, 2.0), (REST_FOR_ONE, 6.0)])
@seeded
async def test_independent_children_that_were_added_stop_at_the_same_time(
    strategy: Strategy, took_s: float
) -> None:
    async def linger(player: Player) -> None:
        await player.context.clock.sleep(2.0)

    async with Troupe("first", strategy=strategy) as troupe:
        for name in "abc":
            await troupe.system.start_child("/root", troupe.child(name, on_stop=linger))
        troupe.journal.clear()
        since_s = troupe.clock.monotonic_s()
    assert troupe.clock.monotonic_s() - since_s == took_s
    assert troupe.journal[-2:] == ["first@1 stops", "first@1 stopped"]


@seeded
async def test_of_many_supervisors_that_were_added_a_few_stop_at_a_time() -> None:
    stopping, most = 0, 0

    async def linger(player: Player) -> None:
        nonlocal stopping, most
        stopping += 1
        most = max(most, stopping)
        await player.context.clock.sleep(2.0)
        stopping -= 1

    inner = Troupe()
    async with Troupe(strategy=Strategy.ONE_FOR_ONE) as troupe:
        for number in range(2 * SUPERVISORS_TOGETHER):
            child = inner.child("it", on_stop=linger)
            spec = SupervisorSpec(f"of-{number}", children=(child,))
            await troupe.system.start_child("/root", spec)
        since_s = troupe.clock.monotonic_s()
    assert most == SUPERVISORS_TOGETHER
    assert troupe.clock.monotonic_s() - since_s == 4.0


@seeded
async def test_one_that_is_slow_to_stop_holds_up_no_other() -> None:
    ended: list[float] = []

    async def linger(player: Player) -> None:
        await player.context.clock.sleep(100.0 if player.context.path.endswith("last/it") else 1.0)
        ended.append(player.context.clock.monotonic_s())

    inner = Troupe()
    async with Troupe(strategy=Strategy.ONE_FOR_ONE) as troupe:
        for number in range(3 * SUPERVISORS_TOGETHER):
            # The one that was added last is asked first.
            name = "last" if number == 3 * SUPERVISORS_TOGETHER - 1 else f"of-{number}"
            child = inner.child("it", on_stop=linger)
            await troupe.system.start_child("/root", SupervisorSpec(name, children=(child,)))
        since_s = troupe.clock.monotonic_s()
    assert len(ended) == 3 * SUPERVISORS_TOGETHER - 1, "all but the slow one, which was killed"
    assert max(ended) - since_s <= 4.0


@pytest.mark.parametrize(
    ("strategy", "terms"),
    [
        (Strategy.ONE_FOR_ONE, {"a": 1, "b": 2, "c": 1}),
        (REST_FOR_ONE, {"a": 1, "b": 2, "c": 2}),
        (ONE_FOR_ALL, {"a": 2, "b": 2, "c": 2}),
    ],
)
@seeded
async def test_who_restarts_together(strategy: Strategy, terms: dict[str, int]) -> None:
    async with Troupe("a", "b", "c", strategy=strategy) as troupe:
        await crash(troupe, "b")
        assert troupe.terms() == terms
        starts = [line[0] for line in troupe.journal if line.endswith("started")][3:]
        assert starts == [name for name in "abc" if terms[name] == 2]
        stops = [line[0] for line in troupe.journal if line.endswith("stopped")]
        assert stops == [name for name in "cba" if terms[name] == 2 and name != "b"]


@pytest.mark.parametrize(
    ("restart", "message", "state"),
    [
        (Restart.PERMANENT, Leave(), "running"),
        (Restart.PERMANENT, Raise(), "running"),
        (TRANSIENT, Leave(), "stopped"),
        (TRANSIENT, Raise(), "running"),
    ],
)
@seeded
async def test_after_which_ends_a_child_comes_back(
    restart: Restart, message: Leave | Raise, state: str
) -> None:
    inner = Troupe()
    async with Troupe(inner.child("a", restart=restart)) as troupe:
        troupe.ref("a").tell(message)
        await settle()
        assert troupe.state("a") == state
        assert troupe.terms() == {"a": 2 if state == "running" else 1}


@pytest.mark.parametrize("message", [Leave(), Raise()])
@seeded
async def test_a_temporary_child_is_removed_at_its_end(message: Leave | Raise) -> None:
    inner = Troupe()
    async with Troupe(inner.child("a", restart=TEMPORARY)) as troupe:
        troupe.ref("a").tell(message)
        await settle()
        with pytest.raises(NoSuchActor):
            troupe.ref("a")


@seeded
async def test_a_temporary_sibling_is_removed_by_the_restart_of_its_group() -> None:
    inner = Troupe()
    temporary = inner.child("b", restart=TEMPORARY)
    async with Troupe("a", temporary, "c", strategy=ONE_FOR_ALL) as troupe:
        await crash(troupe, "a")
        assert troupe.terms() == {"a": 2, "c": 2}


@seeded
async def test_who_ended_for_good_comes_back_with_its_group() -> None:
    inner = Troupe()
    async with Troupe("a", inner.child("b", restart=TRANSIENT), strategy=ONE_FOR_ALL) as troupe:
        troupe.ref("b").tell(Leave())
        await settle()
        with pytest.raises(NotRunning, match="stopped"):
            troupe.ref("b")
        await crash(troupe, "a")
        assert troupe.terms() == {"a": 2, "b": 2}


@seeded
async def test_two_crashes_of_a_group_at_once_are_one_restart() -> None:
    async with Troupe("a", "b", strategy=ONE_FOR_ALL) as troupe:
        troupe.system.kill("/root/a")
        troupe.system.kill("/root/b")
        await settle()
        assert set(troupe.terms().values()) <= {2, 3}
        assert len(troupe.journal) <= 6


@seeded
async def test_the_first_restart_comes_at_once_and_the_next_ones_ever_later() -> None:
    async with Troupe("a", restarts_max=100, backoff=Backoff(1.0, 4.0)) as troupe:
        times_s = []
        for term in range(1, 8):
            before_s = troupe.clock.monotonic_s()
            await crash(troupe, "a")
            while troupe.state("a") == "waiting":
                await troupe.clock.sleep(0.1)
            assert troupe.terms() == {"a": term + 1}
            times_s.append(troupe.clock.monotonic_s() - before_s)
        assert times_s[0] == 0
        caps_s = [1.0, 2.0, 4.0, 4.0, 4.0, 4.0]
        for took_s, cap_s in zip(times_s[1:], caps_s, strict=True):
            assert cap_s / 2 <= took_s <= cap_s + 0.2


@seeded
async def test_who_has_been_up_for_a_window_restarts_at_once_again() -> None:
    async with Troupe("a", restarts_max=100, window_s=10, backoff=Backoff(1.0, 9.0)) as troupe:
        for _ in range(3):
            await crash(troupe, "a")
            await troupe.clock.sleep(5)
        await troupe.clock.sleep(20)
        await crash(troupe, "a")
        assert troupe.state("a") == "running"


@seeded
async def test_who_waits_for_its_restart_is_refused_with_the_cause() -> None:
    async with Troupe("a", backoff=Backoff(10.0, 10.0)) as troupe:
        await crash(troupe, "a")
        old = troupe.ref("a")
        await crash(troupe, "a")
        with pytest.raises(NotRunning, match="waiting; last error: crashed: ValueError: boom"):
            troupe.ref("a")
        with pytest.raises(ActorDied, match="boom"):
            await old.ask(Say(), deadline_s=LONG_S)
        with pytest.raises(NotRunning):
            troupe.system.kill("/root/a")


@seeded
async def test_too_many_restarts_end_the_tree_with_their_cause() -> None:
    async with Troupe("a", "b", restarts_max=2) as troupe:
        for _ in range(3):
            await crash(troupe, "a")
            await troupe.clock.sleep(1)
        with pytest.raises(TooManyRestarts, match="more than 2 restarts") as caught:
            await troupe.system.wait_failed()
        assert isinstance(caught.value.__cause__, ValueError)
        assert "b@1 stopped" in troupe.journal
        with pytest.raises(NotRunning):
            troupe.ref("b")


@seeded
async def test_slow_restarts_never_are_too_many() -> None:
    async with Troupe("a", restarts_max=2, window_s=10) as troupe:
        for term in range(1, 20):
            assert troupe.terms() == {"a": term}
            await crash(troupe, "a")
            await troupe.clock.sleep(6)


@seeded
async def test_an_inner_supervisor_that_gives_up_is_restarted_by_the_outer() -> None:
    inner = Troupe()
    spec = SupervisorSpec("inner", children=(inner.child("a"), inner.child("b")), restarts_max=0)
    async with Troupe(spec, "c") as troupe:
        old = troupe.ref("inner/b")
        await crash(troupe, "inner/a")
        assert troupe.terms() == {"inner": 2, "inner/a": 2, "inner/b": 2, "c": 1}
        assert inner.journal[2:] == ["b@1 stops", "b@1 stopped", "a@2 started", "b@2 started"]
        assert old.term == 1


@seeded
async def test_a_killed_supervisor_takes_its_children_with_it() -> None:
    inner = Troupe()
    spec = SupervisorSpec("inner", children=(inner.child("a"), inner.child("b")))
    async with Troupe(spec) as troupe:
        troupe.system.kill("/root/inner")
        await settle()
        assert troupe.terms() == {"inner": 2, "inner/a": 2, "inner/b": 2}
        assert "stopped" not in " ".join(inner.journal)


@seeded
async def test_a_dynamic_child_is_gone_when_its_supervisor_restarts() -> None:
    spec = SupervisorSpec("inner")
    async with Troupe(spec) as troupe:
        await troupe.system.start_child("/root/inner", troupe.child("a"))
        troupe.system.kill("/root/inner")
        await settle()
        assert troupe.terms() == {"inner": 2}
        ref = await troupe.system.start_child("/root/inner", troupe.child("a"))
        assert ref.term == 2


@seeded
async def test_a_restart_whose_start_fails_is_tried_again_until_it_is_too_much() -> None:
    async def fall(player: Player) -> None:
        if player.context.term > 1:
            raise OSError("no more")

    inner = Troupe()
    async with Troupe(inner.child("a", on_start=fall), restarts_max=3) as troupe:
        await crash(troupe, "a")
        with pytest.raises(TooManyRestarts) as caught:
            await troupe.system.wait_failed()
        assert isinstance(caught.value.__cause__, OSError)
        assert troupe.terms() == {"a": 4}


@seeded
async def test_a_group_whose_second_member_fails_to_start_waits_and_starts_whole() -> None:
    failures = [OSError("once")]

    async def fall(player: Player) -> None:
        if player.context.term > 1 and failures:
            raise failures.pop()

    inner = Troupe()
    b = inner.child("b", on_start=fall)
    async with Troupe("a", b, "c", strategy=ONE_FOR_ALL) as troupe:
        await crash(troupe, "a")
        assert [troupe.state(name) for name in "abc"] == ["waiting"] * 3
        await troupe.clock.sleep(1)
        assert troupe.terms() == {"a": 3, "b": 3, "c": 2}
        assert [troupe.state(name) for name in "abc"] == ["running"] * 3


@seeded
async def test_a_failed_start_of_the_rest_leaves_those_before_it_alone() -> None:
    failures = [OSError("once")]

    async def fall(player: Player) -> None:
        if player.context.term > 1 and failures:
            raise failures.pop()

    inner = Troupe()
    b = inner.child("b", on_start=fall)
    async with Troupe("a", b, "c", strategy=REST_FOR_ONE) as troupe:
        await crash(troupe, "a")
        assert [troupe.state(name) for name in "abc"] == ["running", "waiting", "waiting"]
        await troupe.clock.sleep(1)
        assert troupe.terms() == {"a": 2, "b": 3, "c": 2}


@seeded
async def test_a_crash_before_the_one_that_waits_takes_over_its_restart() -> None:
    async with Troupe("a", "b", "c", strategy=REST_FOR_ONE, backoff=Backoff(5.0, 5.0)) as troupe:
        await crash(troupe, "b")
        await crash(troupe, "b")
        assert [troupe.state(name) for name in "abc"] == ["running", "waiting", "waiting"]
        await crash(troupe, "a")
        assert troupe.terms() == {"a": 2, "b": 3, "c": 3}
        await troupe.clock.sleep(20)
        assert troupe.terms() == {"a": 2, "b": 3, "c": 3}


@seeded
async def test_the_stop_of_a_waiting_child_passes_its_restart_on_to_who_depends_on_it() -> None:
    async with Troupe("a", "b", "c", strategy=REST_FOR_ONE, backoff=Backoff(5.0, 5.0)) as troupe:
        await crash(troupe, "b")
        await crash(troupe, "b")
        await troupe.system.stop_child("/root/b")
        await settle()
        assert troupe.terms() == {"a": 1, "c": 3}
        assert troupe.state("c") == "running"


@seeded
async def test_a_group_that_waits_takes_no_new_children() -> None:
    async with Troupe("a", strategy=REST_FOR_ONE, backoff=Backoff(5.0, 5.0)) as troupe:
        await crash(troupe, "a")
        await crash(troupe, "a")
        with pytest.raises(NotRunning, match="/root/a: waiting"):
            await troupe.system.start_child("/root", troupe.child("b"))
        await troupe.clock.sleep(6)
        await troupe.system.start_child("/root", troupe.child("b"))
        assert troupe.terms() == {"a": 3, "b": 1}


@seeded
async def test_a_stop_in_the_middle_of_a_start_does_not_wait_for_it() -> None:
    slow = Troupe()
    inner = SupervisorSpec(
        "inner",
        children=(slow.child("a"), slow.child("b", on_start=lambda _: anyio.sleep(20))),
    )
    async with Troupe(strategy=ONE_FOR_ALL) as troupe:
        async with anyio.create_task_group() as tasks:

            async def start() -> None:
                with pytest.raises(StartInterrupted):
                    await troupe.system.start_child("/root", inner)

            tasks.start_soon(start)
            await settle()
            troupe.system._cell("/root").request_stop()
        await settle()
        assert troupe.clock.monotonic_s() == 0
        assert slow.journal == ["a@1 started", "a@1 stops", "a@1 stopped"]


@seeded
async def test_a_stop_in_the_middle_of_a_restart_does_not_wait_for_it() -> None:
    async def slow(player: Player) -> None:
        if player.context.term > 1:
            await anyio.sleep(20)

    inner = Troupe()
    children = (inner.child("a", on_start=slow), inner.child("b"))
    async with Troupe(*children, strategy=ONE_FOR_ALL) as troupe:
        await crash(troupe, "a")
        assert troupe.state("a") == "starting"
    assert troupe.clock.monotonic_s() == 0
    assert inner.journal[-1] == "b@1 stopped"
