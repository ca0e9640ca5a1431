"""Who may go on and when: keys, ids, limits, those who leave, tombstones, other clusters' tasks."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from actors.testing import run_seeded
from broker.coordinator.broadcast.messages import (
    AckBroadcast,
    ListBroadcasts,
    SkipBroadcast,
    StartBroadcast,
    WaitForKey,
)
from broker.coordinator.broadcast.pending_broadcasts import BroadcasterLimits
from broker.core.cluster.broadcast_state import BroadcastPhase
from broker.model.broadcast import Broadcast, Broadcasted, ResourceKey
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import BroadcastId, MessageId, TimeTick
from broker.model.message import Appended
from tests.broker.coordinator.broadcast.broadcasting import (
    CALLED_TYPE,
    LOCKS,
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
Scenario = Callable[[Cluster], Awaitable[None]]


def run(scenario: Scenario, store: FaultyStore | None = None, **given: Any) -> Cluster:
    clusters: list[Cluster] = []

    async def main() -> None:
        faults = Faults()
        system, cluster = cluster_parts(store or FaultyStore(faults), Logs(faults), **given)
        clusters.append(cluster)
        async with system:
            await scenario(cluster)

    run_seeded(1, main, virtual_limit_s=1e6)
    return clusters[0]


def place(tick: int) -> Appended:
    return Appended(MessageId(tick), TimeTick(tick), MessageId(tick))


async def held(cluster: Cluster, asked: Broadcast) -> Broadcasted | None:
    """What is answered while nothing may finish: nothing."""
    with anyio.move_on_after(5.0):
        return await cluster.broadcast(asked)
    return None


async def ack(cluster: Cluster, id: BroadcastId, vchannels: tuple[Any, ...] = V) -> None:
    for vchannel in vchannels:
        await cluster.ask(AckBroadcast(id, vchannel, None))


async def running(cluster: Cluster) -> list[str]:
    return [it.name for it in await cluster.ask(ListBroadcasts())]


def test_a_broadcast_waits_for_its_keys_without_an_id_and_others_pass_it() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with anyio.create_task_group() as tasks:
            ids: list[BroadcastId] = []

            async def ask(key: str, *keys: ResourceKey, sync_up: bool = False) -> None:
                ids.append((await cluster.broadcast(broadcast(key, *keys, sync_up=sync_up))).id)

            tasks.start_soon(lambda: ask("first", A, sync_up=True))
            await anyio.sleep(0.5)
            tasks.start_soon(ask, "waits", A, B)
            await anyio.sleep(0.5)
            tasks.start_soon(ask, "behind it", B)
            free = await cluster.broadcast(broadcast("free", ResourceKey.snapshot("s")))
            views = await cluster.ask(ListBroadcasts())
            assert [it.state for it in views] == ["waiting", "waiting", "pending"]
            assert [it.name for it in views[:2]] == ["", ""]
            await ack(cluster, BroadcastId(int(views[2].name)))
        assert ids == sorted(ids)
        assert ids[0] < free.id < ids[1]

    run(scenario, node_acks=False)


def test_an_asker_that_leaves_while_it_waits_is_forgotten_and_holds_nobody_up() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(held, cluster, broadcast("first", A, sync_up=True))
            await anyio.sleep(0.1)
            assert await held(cluster, broadcast("leaves", A, B)) is None
            await anyio.sleep(2.0)
            assert (await cluster.broadcast(broadcast("after", B))).results.keys() == set(V)
        assert len(await cluster.recorded()) == 2
        assert cluster.logs.on(V[0]) == sorted(cluster.logs.on(V[0]))

    run(scenario, node_acks=False)


def test_one_that_left_just_before_its_turn_is_not_begun() -> None:
    async def scenario(cluster: Cluster) -> None:
        first = broadcast("first", A, sync_up=True)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cluster.broadcast, first)
            await anyio.sleep(0.1)
            with anyio.move_on_after(0.1):
                await cluster.broadcast(broadcast("leaves", A))
            await ack(cluster, BroadcastId(int((await running(cluster))[-1])))
        assert len(await cluster.recorded()) == 1
        assert await cluster.locks() == ()

    run(scenario, node_acks=False)


def test_more_than_the_limit_are_refused_and_not_kept() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with anyio.create_task_group() as tasks:
            for key in ("one", "two"):
                tasks.start_soon(held, cluster, broadcast(key, A, sync_up=True))
            await anyio.sleep(0.1)
            asked = StartBroadcast(broadcast("three", B))
            with pytest.raises(Refused, match="2 broadcasts are unfinished") as caught:
                await cluster.ask(asked)
            assert caught.value.refusal.code is StreamingCode.INNER
            copied = AckBroadcast(BroadcastId(9), V[0], place(1), "src", broadcast("", A))
            with pytest.raises(Refused, match="unfinished"):
                await cluster.ask(copied)

    run(scenario, node_acks=False, limits=BroadcasterLimits(unfinished_max=2))


def test_a_store_that_refuses_the_record_is_a_refusal_and_the_keys_are_free() -> None:
    async def scenario(cluster: Cluster) -> None:
        faults = cluster.store.faults
        # Two writes; the steps in between read back what became of them.
        faults.system, faults.at = cluster.system, frozenset({1, 3})
        for asked in (
            StartBroadcast(broadcast("one", A)),
            AckBroadcast(BroadcastId(9), V[0], place(1), "src", broadcast("", A)),
        ):
            with pytest.raises(Refused, match="the disk is full") as caught:
                await cluster.ask(asked)
            assert caught.value.refusal.code is StreamingCode.INNER
        assert await cluster.locks() == ()
        assert not cluster.logs.records
        assert set((await cluster.broadcast(broadcast("one", A))).results) == set(V)

    run(scenario)


def test_a_key_that_was_used_for_something_else_is_refused_wherever_the_first_one_is() -> None:
    async def scenario(cluster: Cluster) -> None:
        other = Broadcast(CALLED_TYPE, V, (A,), b"", 0, "k", "another content")

        async def refused(key: str) -> None:
            asked = Broadcast(other.type, V, (A,), b"", 0, key, "another content")
            with pytest.raises(Refused, match="other content") as caught:
                await cluster.ask(StartBroadcast(asked))
            assert caught.value.refusal.code is StreamingCode.INVALID_ARGUMENT

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cluster.broadcast, broadcast("k", A, sync_up=True))
            await anyio.sleep(0.1)
            tasks.start_soon(cluster.broadcast, broadcast("waiting", A))
            await anyio.sleep(0.1)
            await refused("k")
            await refused("waiting")
            await ack(cluster, BroadcastId(int((await running(cluster))[-1])))
        await refused("k")

    run(scenario, node_acks=False)


def test_tombstones_are_forgotten_by_count_and_by_age_and_their_keys_with_them() -> None:
    limits = BroadcasterLimits(tombstones_max=3, tombstone_age_ms=60_000, tombstone_check_s=10.0)

    async def scenario(cluster: Cluster) -> None:
        answers = [await cluster.broadcast(broadcast(f"k{it}", A)) for it in range(5)]
        await anyio.sleep(12.0)
        kept = await cluster.recorded()
        assert [it.id for it in kept] == [it.id for it in answers[2:]]
        assert all((it.state, it.broadcast.body) == (BroadcastPhase.TOMBSTONE, b"") for it in kept)
        assert (await cluster.broadcast(broadcast("k4", A))).id == answers[4].id
        assert (await cluster.broadcast(broadcast("k0", A))).id > answers[4].id
        await anyio.sleep(90.0)
        assert await cluster.recorded() == []
        await cluster.ask(AckBroadcast(answers[0].id, V[0], place(1)))
        assert await cluster.recorded() == [], "a late ack brings nothing back"

    run(scenario, limits=limits)


def test_tombstones_that_cannot_be_removed_stay_and_are_removed_later() -> None:
    limits = BroadcasterLimits(tombstone_age_ms=5000, tombstone_check_s=10.0)

    async def scenario(cluster: Cluster) -> None:
        done = await cluster.broadcast(broadcast("k", A))
        faults = cluster.store.faults
        faults.system, faults.at = cluster.system, frozenset({1})
        await anyio.sleep(10.5)
        assert (await cluster.broadcast(broadcast("k", A))).id == done.id
        await anyio.sleep(11.0)
        assert await cluster.recorded() == []

    run(scenario, limits=limits)


def test_copied_broadcasts_call_back_in_order_and_none_overtakes_one_that_waits() -> None:
    """The hazard: the third conflicts with nobody who runs, only with the second, who waits."""

    async def scenario(cluster: Cluster) -> None:
        keys = {1: (A,), 2: (A, B), 3: (B,)}
        for number in (2, 1, 3):  # the first is complete last
            copied = broadcast("", *keys[number], vchannels=V[:2])
            await cluster.ask(AckBroadcast(BroadcastId(number), V[0], place(5), "src", copied))
        for number in (3, 2, 1):
            copied = broadcast("", *keys[number], vchannels=V[:2])
            asked = AckBroadcast(BroadcastId(number), V[1], place(number), "src", copied)
            for _ in range(2):
                await cluster.ask(asked)
            await anyio.sleep(0.5)
        await anyio.sleep(3.0)
        assert sorted(cluster.called) == [1, 2, 3]
        assert await cluster.locks() == ()
        assert {it.name for it in await cluster.recorded(BroadcastPhase.TOMBSTONE)} == {
            f"src~{number}" for number in (1, 2, 3)
        }

    run(scenario, node_acks=False)


def test_a_copied_broadcast_that_was_forgotten_does_not_come_back() -> None:
    limits = BroadcasterLimits(tombstones_max=0, tombstone_check_s=5.0)

    async def scenario(cluster: Cluster) -> None:
        copied = broadcast("", A, vchannels=V[:1])
        asked = AckBroadcast(BroadcastId(7), V[0], place(5), "src", copied)
        await cluster.ask(asked)
        await anyio.sleep(8.0)
        for again in range(2):
            await cluster.ask(asked)
            assert await cluster.recorded() == []
            if not again:
                cluster.system.kill(LOCKS)
        await cluster.ask(AckBroadcast(BroadcastId(8), V[0], place(6), "src", copied))
        assert len(await cluster.recorded()) == 1

    run(scenario, limits=limits, node_acks=False)


def test_a_late_copied_broadcast_takes_effect_although_later_ones_are_forgotten() -> None:
    limits = BroadcasterLimits(tombstones_max=0, tombstone_check_s=5.0)

    async def scenario(cluster: Cluster) -> None:
        copied = broadcast("", A, vchannels=V[:1])
        await cluster.ask(AckBroadcast(BroadcastId(7), V[0], place(5), "src", copied))
        await anyio.sleep(8.0)
        assert cluster.called == [7]
        cluster.system.kill(LOCKS)
        await cluster.ask(AckBroadcast(BroadcastId(6), V[0], place(6), "src", copied))
        await anyio.sleep(3.0)
        assert cluster.called == [7, 6]

    run(scenario, limits=limits, node_acks=False)


def test_two_coordinators_over_one_store_never_give_one_id_twice() -> None:
    store = FaultyStore(Faults())
    ids: list[BroadcastId] = []

    async def scenario(cluster: Cluster) -> None:
        for _ in range(3):
            ids.append((await cluster.broadcast(broadcast(f"k{len(ids)}", A))).id)

    for _ in range(3):
        run(scenario, store)
    assert ids == sorted(set(ids))


def test_a_killed_task_comes_back_at_the_next_term_and_alone() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cluster.broadcast, broadcast("one", A, sync_up=True))
            tasks.start_soon(cluster.broadcast, broadcast("two", B, sync_up=True))
            await anyio.sleep(0.5)
            one, two = await running(cluster)
            cluster.system.kill(f"{TASKS}/{one}")
            await anyio.sleep(1.0)
            terms = {it.path: it.term for it in cluster.system.statistics()}
            assert (terms[f"{TASKS}/{one}"], terms[f"{TASKS}/{two}"], terms[LOCKS]) == (2, 1, 1)
            for name in (one, two):
                await ack(cluster, BroadcastId(int(name)))
        assert all(len(cluster.logs.on(vchannel)) == 2 for vchannel in V)

    run(scenario, node_acks=False)


def test_waits_for_a_key_are_bounded_and_end_with_the_tasks_there_were() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.ask(WaitForKey(A, all_acked=True))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cluster.broadcast, broadcast("one", A, sync_up=True))
            await anyio.sleep(0.5)
            with anyio.move_on_after(0.5):
                await cluster.ask(WaitForKey(A, all_acked=True))
            await anyio.sleep(2.0)  # the place of who left is free again
            tasks.start_soon(cluster.ask, WaitForKey(A, all_acked=False))
            await anyio.sleep(0.1)
            with pytest.raises(Refused, match="1 callers wait"):
                await cluster.ask(WaitForKey(A, all_acked=True))
            (one,) = await running(cluster)
            await ack(cluster, BroadcastId(int(one)))

    run(scenario, node_acks=False, limits=BroadcasterLimits(key_waits_max=1))


def test_only_what_is_in_quarantine_can_be_skipped() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cluster.broadcast, broadcast("one", A, sync_up=True))
            await anyio.sleep(0.5)
            (one,) = await running(cluster)
            for name, cause in ((one, "not in quarantine"), ("7", "no unfinished broadcast '7'")):
                with pytest.raises(Refused, match=cause) as caught:
                    await cluster.ask(SkipBroadcast(name))
                assert caught.value.refusal.code is StreamingCode.INVALID_ARGUMENT
            await ack(cluster, BroadcastId(int(one)))

    run(scenario, node_acks=False)
