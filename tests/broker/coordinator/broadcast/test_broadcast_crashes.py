"""Kill the broadcaster, its locks or a task at every step: what was promised holds all the same.

P25 to P30 of the facts: everywhere in the end, one order for those that conflict, callbacks too,
effects as if once, and locks that are those of the unfinished.
"""

from dataclasses import replace
from itertools import combinations

import anyio
import pytest

from actors.testing import run_seeded
from broker.core.cluster.broadcast_state import BroadcastPhase
from broker.model.broadcast import Broadcasted, ResourceKey
from broker.model.ids import BroadcastId
from broker.ports.meta_writes import PART_BYTES
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

A, B = ResourceKey.collection("a"), ResourceKey.collection("b")
ASKED = {
    "one": broadcast("one", A),
    "two": broadcast("two", A, B, vchannels=V[1:]),
    "three": broadcast("three", B, vchannels=V[:2]),
    # Its body is stored in three parts.
    "free": replace(
        broadcast("free", ResourceKey.snapshot("s"), vchannels=V[2:]),
        body=bytes(2 * PART_BYTES + 1),
    ),
    "again": broadcast("again", A, vchannels=(V[2], V[0])),
}
CONFLICTS = [("one", "two"), ("two", "three"), ("one", "again"), ("two", "again")]


def run(faults: Faults, seed: int) -> None:
    async def main() -> None:
        store, logs = FaultyStore(faults), Logs(faults, seed)
        system, cluster = cluster_parts(store, logs)
        async with system:
            faults.system = system
            answers = await broadcast_all(cluster)
            assert await cluster.broadcast(ASKED["one"]) == answers["one"], "the same answer again"
            await judge(cluster, answers, faults)

    run_seeded(seed, main)


async def broadcast_all(cluster: Cluster) -> dict[str, Broadcasted]:
    answers: dict[str, Broadcasted] = {}

    async def ask(key: str) -> None:
        answers[key] = await cluster.broadcast(ASKED[key])

    async with anyio.create_task_group() as tasks:
        for key in ASKED:
            tasks.start_soon(ask, key)
            await anyio.sleep(0.0001)
        if cluster.logs.faults.at:
            tasks.start_soon(watch_locks, cluster)
    return answers


async def watch_locks(cluster: Cluster) -> None:
    """P30, while it runs: unfinished broadcasts hold their keys, and no others do."""
    for _ in range(50):
        await anyio.sleep(0.005)
        before = {it.name for it in await cluster.recorded(BroadcastPhase.PENDING)}
        held = {it.owner for it in await cluster.locks() if it.held} - {""}
        after = {it.name for it in await cluster.recorded()}
        still = {it.name for it in await cluster.recorded(BroadcastPhase.PENDING)}
        assert (before & still) <= held <= after


async def judge(cluster: Cluster, answers: dict[str, Broadcasted], faults: Faults) -> None:
    ids = {key: answer.id for key, answer in answers.items()}
    assert len(set(ids.values())) == len(ASKED), "a broadcast each, not one more for a retry"
    for key, asked in ASKED.items():
        assert set(answers[key].results) == set(asked.vchannels)
        for vchannel, landed in answers[key].results.items():
            records = cluster.logs.records
            where = [it for name in records for it in records[name]]
            assert (vchannel, ids[key], landed) in where, "P25: what was said is there"
    on_logs = {id for vchannel in V for id in cluster.logs.on(vchannel)}
    assert on_logs == set(ids.values()), "nothing that nobody asked for"
    judge_order(cluster, ids)
    if not faults.struck:
        assert all(len(set(it)) == len(it) for it in map(cluster.logs.on, V)), "no copy twice"
    assert await cluster.bodies(restarted=bool(faults.struck)) == []
    assert await cluster.locks() == ()
    assert not await cluster.recorded(BroadcastPhase.PENDING)


def judge_order(cluster: Cluster, ids: dict[str, BroadcastId]) -> None:
    """P26, P29: on logs by the first copies, of callbacks by the first calls."""
    assert set(cluster.called) == set(ids.values())
    calls = list(dict.fromkeys(cluster.called))
    places = [cluster.logs.first_copies(vchannel) for vchannel in V]
    for one, other in CONFLICTS:
        first, second = sorted((ids[one], ids[other]))
        assert calls.index(first) < calls.index(second)
        for order in places:
            if first in order and second in order:
                assert order.index(first) < order.index(second)
        ends = [
            len(it) - 1 - it[::-1].index(first) for it in map(cluster.logs.on, V) if first in it
        ]
        assert ends, "it is somewhere"
    for order in map(cluster.logs.on, V):
        for first, second in combinations(sorted(set(order)), 2):
            if {first, second} in [{ids[one], ids[other]} for one, other in CONFLICTS]:
                last_of_first = len(order) - 1 - order[::-1].index(first)
                assert last_of_first < order.index(second), "copies that came again included"


def steps() -> int:
    faults = Faults()
    run(faults, 1)
    return faults.steps


STEPS = steps()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("path", [ROOT, LOCKS, TASKS, ""], ids=["all", "locks", "task", "error"])
def test_whatever_dies_at_whichever_step_every_broadcast_takes_effect_once(
    path: str, after: bool
) -> None:
    for at in range(1, STEPS + 1):
        faults = Faults(frozenset({at}), after, path)
        run(faults, seed=at)
        assert faults.steps >= at


@pytest.mark.parametrize("path", [ROOT, LOCKS, TASKS], ids=["all", "locks", "task"])
def test_what_dies_again_while_it_comes_back_comes_back_again(path: str) -> None:
    for at in range(1, STEPS + 1, 2):
        for distance in (1, 2, 4, 7):
            run(Faults(frozenset({at, at + distance}), after=distance % 2 == 0, path=path), seed=at)


def test_without_a_fault_it_is_the_same_but_for_the_copies_that_come_twice() -> None:
    assert STEPS > 20
    for seed in range(20):
        run(Faults(), seed)
