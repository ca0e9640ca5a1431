"""Cuts beside broadcasts whose actors are killed at every step: none has a part of a broadcast."""

from collections.abc import Awaitable, Callable

import anyio
import pytest

from actors import ActorError
from actors.testing import run_seeded
from broker.coordinator.broadcast.messages import RetryBroadcast, SkipBroadcast
from broker.coordinator.cuts.cut_lock import HELD_BACK_S, HOLDS_MAX, LEASE_S, WAIT_S
from broker.coordinator.cuts.messages import Held, ReleaseHold, TakeHold
from broker.model.broadcast import ResourceKey
from broker.model.failure import Refusal, Refused, StreamingCode
from tests.broker.coordinator.broadcast.broadcasting import (
    LOCKS,
    ROOT,
    TASKS,
    Cluster,
    Faults,
    FaultyStore,
    Logs,
    V,
    broadcast,
    cluster_parts,
)

CUT_LOCK_PATH = "/root/cut_lock"
A, B = ResourceKey.collection("a"), ResourceKey.collection("b")
ASKED = [
    broadcast("one", A),
    broadcast("two", B, vchannels=V[1:]),
    broadcast("three", ResourceKey.collection("c"), vchannels=V[:2]),
    broadcast("four", A, vchannels=(V[2], V[0])),
]


async def hold(cluster: Cluster, channels: tuple[str, ...] = V) -> Held:
    found: Held = await cluster.system.find(CUT_LOCK_PATH).ask(TakeHold(channels), deadline_s=20.0)
    return found


async def let_go(cluster: Cluster, held: Held) -> bool:
    lasted: bool = await cluster.system.find(CUT_LOCK_PATH).ask(
        ReleaseHold(held.id), deadline_s=20.0
    )
    return lasted


def play(test: Callable[[Cluster], Awaitable[None]], faults: Faults, seed: int = 1) -> None:
    async def main() -> None:
        store, logs = FaultyStore(faults), Logs(faults, seed)
        system, cluster = cluster_parts(store, logs)
        async with system:
            faults.system = system
            await test(cluster)

    run_seeded(seed, main)


def newest_tick(cluster: Cluster) -> int:
    ticks = [landed.tick for each in cluster.logs.records.values() for _, _, landed in each]
    return max(ticks, default=0)


async def take_cuts(cluster: Cluster, cuts: list[int]) -> None:
    """Again and again; what was given up, or did not last, is no cut."""
    while True:
        try:
            held = await hold(cluster)
            tick = newest_tick(cluster)
            await anyio.sleep(0.003)
            if await let_go(cluster, held):
                assert newest_tick(cluster) == tick
                cuts.append(tick)
        except (ActorError, Refused):
            pass
        await anyio.sleep(0.002)


async def broadcast_beside_cuts(cluster: Cluster) -> None:
    cuts: list[int] = []
    async with anyio.create_task_group() as cutting:
        cutting.start_soon(take_cuts, cluster, cuts)
        cutting.start_soon(take_cuts, cluster, cuts)
        async with anyio.create_task_group() as tasks:
            for number, asked in enumerate(ASKED):
                tasks.start_soon(cluster.broadcast, asked)
                await anyio.sleep(0.001 * number)
        await take_one_more(cuts)
        cutting.cancel_scope.cancel()
    for tick in cuts:
        for name, first_ticks in ticks_of_first_copies(cluster).items():
            before = {vchannel for vchannel, at in first_ticks.items() if at <= tick}
            assert before in (set(), set(first_ticks)), (tick, name, first_ticks)


async def take_one_more(cuts: list[int]) -> None:
    wanted = len(cuts) + 1
    with anyio.fail_after(60):
        while len(cuts) < wanted:  # noqa: ASYNC110 - the cutter is looked at from outside
            await anyio.sleep(0.01)


def ticks_of_first_copies(cluster: Cluster) -> dict[int, dict[str, int]]:
    found: dict[int, dict[str, int]] = {}
    for each in cluster.logs.records.values():
        for vchannel, broadcast_id, landed in each:
            found.setdefault(broadcast_id, {}).setdefault(vchannel, landed.tick)
    return found


def steps() -> int:
    faults = Faults()
    play(broadcast_beside_cuts, faults)
    return faults.steps


STEPS = steps()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    "path",
    [ROOT, LOCKS, TASKS, CUT_LOCK_PATH, ""],
    ids=["all", "locks", "task", "cut_lock", "error"],
)
def test_whatever_dies_at_whichever_step_no_cut_has_a_part_of_a_broadcast(
    path: str, after: bool
) -> None:
    for at in range(1, STEPS + 1):
        play(broadcast_beside_cuts, Faults(frozenset({at}), after, path), seed=at)


def test_a_hold_that_nobody_lets_go_ends_by_itself_and_has_not_lasted() -> None:
    async def test(cluster: Cluster) -> None:
        held = await hold(cluster)
        assert held.lease_s == LEASE_S
        began_s = anyio.current_time()
        await cluster.broadcast(ASKED[0])
        assert LEASE_S <= anyio.current_time() - began_s <= HELD_BACK_S
        assert not await let_go(cluster, held)

    play(test, Faults())


def test_a_hold_of_a_gate_that_died_has_not_lasted_whoever_holds_the_next_one() -> None:
    async def test(cluster: Cluster) -> None:
        held = await hold(cluster)
        cluster.system.kill(CUT_LOCK_PATH)
        await anyio.sleep(0.5)
        await cluster.broadcast(ASKED[0])
        other = await hold(cluster)
        assert not await let_go(cluster, held)
        assert await let_go(cluster, other)

    play(test, Faults())


def test_who_left_while_waiting_holds_nothing() -> None:
    async def test(cluster: Cluster) -> None:
        cluster.logs.refusals[V[0]] = [Refusal(StreamingCode.INNER, "moving")] * 5
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cluster.broadcast, ASKED[0])
            await anyio.sleep(0.01)
            with anyio.move_on_after(0.001):
                await hold(cluster)
        began_s = anyio.current_time()
        await cluster.broadcast(ASKED[1])
        assert anyio.current_time() - began_s < 1.0

    play(test, Faults())


def test_a_cut_waits_for_a_slow_broadcast_and_gives_up_on_a_stuck_one_which_it_names() -> None:
    async def test(cluster: Cluster) -> None:
        cluster.logs.refusals[V[0]] = [Refusal(StreamingCode.INNER, "moving")] * 12
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cluster.broadcast, ASKED[0])
            await anyio.sleep(0.01)
            with pytest.raises(Refused, match="broadcasts ") as caught:
                await hold(cluster)
            assert caught.value.refusal.code is StreamingCode.INNER
            assert str(WAIT_S) in caught.value.refusal.cause
            held = await hold(cluster, V[2:])
            assert await let_go(cluster, held), "one vchannel alone cannot be split"
        assert await let_go(cluster, await hold(cluster))

    play(test, Faults())


def test_a_broadcast_in_quarantine_is_not_waited_for_until_it_is_tried_again() -> None:
    async def test(cluster: Cluster) -> None:
        cluster.logs.refusals[V[0]] = [Refusal(StreamingCode.INVALID_ARGUMENT, "never")]
        with pytest.raises(Refused, match="quarantine"):
            await cluster.broadcast(ASKED[0])
        (task,) = await cluster.recorded()
        assert await let_go(cluster, await hold(cluster))
        cluster.system.kill(ROOT)
        await anyio.sleep(0.5)
        assert await let_go(cluster, await hold(cluster)), "over a restart, too"
        cluster.logs.refusals[V[0]] = [Refusal(StreamingCode.INNER, "moving")] * 30
        await cluster.ask(RetryBroadcast(task.name))
        await anyio.sleep(0.01)
        with pytest.raises(Refused, match=task.name):
            await hold(cluster)
        cluster.logs.refusals[V[0]] = [Refusal(StreamingCode.INVALID_ARGUMENT, "never")] * 2
        await anyio.sleep(20.0)
        await cluster.ask(SkipBroadcast(task.name))
        assert await let_go(cluster, await hold(cluster))

    play(test, Faults())


def test_so_many_hold_at_once_and_no_more() -> None:
    async def test(cluster: Cluster) -> None:
        for _ in range(HOLDS_MAX):
            await hold(cluster)
        with pytest.raises(Refused, match=str(HOLDS_MAX)):
            await hold(cluster)
        await anyio.sleep(LEASE_S)
        assert await let_go(cluster, await hold(cluster))

    play(test, Faults())
