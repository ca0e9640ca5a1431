"""One broadcast on its way: retries and their pauses, acks by nodes, callbacks, quarantine."""

from itertools import pairwise

import anyio
import pytest

from broker.coordinator.broadcast.messages import (
    AckBroadcast,
    BroadcastView,
    ListBroadcasts,
    RetryBroadcast,
    SkipBroadcast,
    StartBroadcast,
    WaitForKey,
)
from broker.core.naming import pchannel_of
from broker.model.broadcast import ResourceKey
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.ids import BroadcastId
from broker.ports.callbacks import FailedForGood
from tests.broker.coordinator.broadcast.broadcasting import Cluster, V, broadcast
from tests.broker.coordinator.broadcast.test_broadcaster import ack, place, run

A = ResourceKey.collection("a")
BUSY = Refusal(StreamingCode.INNER, "busy")
NEVER = Refusal(StreamingCode.UNRECOVERABLE, "no such collection")


async def only(cluster: Cluster) -> BroadcastView:
    (view,) = [it for it in await cluster.ask(ListBroadcasts()) if it.name]
    return view


async def refused(cluster: Cluster, cause: str) -> None:
    with pytest.raises(Refused, match=cause) as caught:
        await cluster.ask(StartBroadcast(broadcast("one", A)))
    assert caught.value.refusal.code is StreamingCode.UNRECOVERABLE


def test_what_is_refused_is_tried_again_for_ever_with_longer_pauses_up_to_ten_seconds() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.logs.refusals[V[1]] = [BUSY] * 20
        done = await cluster.broadcast(broadcast("one", A))
        assert set(done.results) == set(V)
        assert [len(cluster.logs.on(it)) for it in V] == [1, 1, 1], "only what was missing"
        tried = cluster.logs.tried_s
        pauses = [b - a for a, b in pairwise(tried[2:])]
        assert len(tried) == 21
        assert pauses[0] < 0.2
        assert 4.0 < max(pauses) < 10.1
        assert pauses[-1] > 4.0

    run(scenario)


def test_a_task_that_is_stuck_says_what_keeps_it() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.logs.refusals[V[1]] = [BUSY] * 40
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cluster.broadcast, broadcast("one", A))
            await anyio.sleep(30.0)
            view = await only(cluster)
            assert (view.state, view.appended, view.acked) == ("pending", 2, 2)
            assert view.failures > 5
            assert "INNER busy" in view.last_error
            cluster.logs.refusals[V[1]].clear()

    run(scenario)


def test_a_copy_that_would_be_refused_for_ever_goes_to_quarantine_and_is_retried() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.logs.refusals[V[1]] = [NEVER, NEVER]
        await refused(cluster, f"not on 1 vchannels yet.*{V[1]} refuses .*no such collection")
        await anyio.sleep(60.0)
        assert len(cluster.logs.tried_s) == 1, "nobody tries again by himself"
        name = (await only(cluster)).name
        await cluster.ask(RetryBroadcast(name))
        await anyio.sleep(5.0)
        assert (await only(cluster)).state == "quarantine"
        await cluster.ask(RetryBroadcast(name))
        done = await cluster.broadcast(broadcast("one", A))
        assert set(done.results) == set(V)
        assert cluster.called == [done.id]

    run(scenario)


def test_a_skipped_broadcast_is_done_with_what_it_has_and_its_keys_are_free() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.logs.refusals[V[1]] = [NEVER]
        await refused(cluster, "no such collection")
        await cluster.ask(SkipBroadcast((await only(cluster)).name))
        done = await cluster.broadcast(broadcast("one", A))
        assert set(done.results) == {V[0], V[2]}
        assert cluster.called == []
        await cluster.broadcast(broadcast("two", A))

    run(scenario)


@pytest.mark.parametrize("all_acked", [True, False])
def test_a_wait_for_a_key_ends_when_the_broadcast_that_holds_it_is_skipped(all_acked: bool) -> None:
    async def scenario(cluster: Cluster) -> None:
        for vchannel in V:
            cluster.logs.refusals[vchannel] = [NEVER] * 9
        await refused(cluster, "no such collection")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cluster.ask, WaitForKey(A, all_acked=all_acked))
            await anyio.sleep(0.5)
            view = await only(cluster)
            assert view.acked == 0
            await cluster.ask(SkipBroadcast(view.name))
            with anyio.fail_after(1.0):
                # As one that asks now.
                await cluster.ask(WaitForKey(A, all_acked=all_acked))
            tasks.cancel_scope.deadline = anyio.current_time() + 1.0
        assert not tasks.cancel_scope.cancelled_caught

    run(scenario)


def test_an_owner_that_has_processed_a_copy_acknowledges_it() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cluster.broadcast, broadcast("one", A, sync_up=True))
            await anyio.sleep(3.0)
            assert (await only(cluster)).acked == 0
            for acked, vchannel in enumerate(V, start=1):
                cluster.logs.processed_up_to[pchannel_of(vchannel)] = 100
                await anyio.sleep(3.0)
                if acked < len(V):
                    assert (await only(cluster)).acked == acked

    run(scenario)


def test_an_ack_may_come_before_the_coordinator_knows_where_the_copy_is() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.logs.refusals[V[1]] = [Refusal(StreamingCode.UNKNOWN, "no answer")] * 3
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cluster.broadcast, broadcast("one", A, sync_up=True))
            await anyio.sleep(0.02)
            id = BroadcastId(int((await only(cluster)).name))
            await cluster.ask(AckBroadcast(id, V[1], place(77)))
            await anyio.sleep(5.0)
            assert cluster.logs.on(V[1]) == [], "it is there already, as the ack said"
            await ack(cluster, id)

    run(scenario, node_acks=False)


def test_a_callback_that_fails_is_called_again_until_it_works() -> None:
    async def fail(call: int) -> None:
        if call < 8:
            raise RuntimeError("the catalog is away")

    async def scenario(cluster: Cluster) -> None:
        done = await cluster.broadcast(broadcast("one", A))
        assert cluster.called == [done.id] * 8
        assert (await cluster.locks()) == ()

    run(scenario, fail=fail)


def test_a_callback_that_hangs_is_given_up_and_called_again() -> None:
    async def fail(call: int) -> None:
        if call == 1:
            await anyio.sleep_forever()

    async def scenario(cluster: Cluster) -> None:
        done = await cluster.broadcast(broadcast("one", A))
        assert cluster.called == [done.id] * 2
        assert anyio.current_time() > 60.0

    run(scenario, fail=fail)


def test_a_callback_that_fails_for_good_blocks_its_keys_and_nothing_else() -> None:
    sick = True

    async def fail(_: int) -> None:
        if sick:
            raise FailedForGood("no schema")

    async def scenario(cluster: Cluster) -> None:
        nonlocal sick
        await refused(cluster, "on every vchannel and cannot continue: no schema")
        assert (await only(cluster)).poison == "no schema"
        for key in ("again", "once more"):
            with anyio.move_on_after(5.0):
                await cluster.broadcast(broadcast(key, A))
                raise AssertionError("it must wait for the key")
        await cluster.broadcast(broadcast("free", ResourceKey.collection("b"), kind=6))
        sick = False
        await cluster.ask(RetryBroadcast((await only(cluster)).name))
        await cluster.broadcast(broadcast("two", A))
        assert len(cluster.called) == 3

    run(scenario, fail=fail)


def test_poison_and_its_answer_outlive_a_restart() -> None:
    async def fail(_: int) -> None:
        raise FailedForGood("no schema")

    async def scenario(cluster: Cluster) -> None:
        await refused(cluster, "no schema")
        cluster.system.kill("/root/broadcaster")
        await anyio.sleep(5.0)
        await refused(cluster, "no schema")
        assert len(cluster.called) == 1
        (lock,) = await cluster.locks()
        assert lock.held
        assert lock.owner == (await only(cluster)).name

    run(scenario, fail=fail)


def test_an_ack_that_cannot_be_recorded_is_refused_and_may_come_again() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cluster.broadcast, broadcast("one", A, sync_up=True))
            await anyio.sleep(0.5)
            id = BroadcastId(int((await only(cluster)).name))
            faults = cluster.store.faults
            faults.system, faults.at = cluster.system, frozenset({1})
            with pytest.raises(Refused, match="the disk is full"):
                await cluster.ask(AckBroadcast(id, V[0], None))
            assert (await only(cluster)).acked == 0
            await ack(cluster, id)

    run(scenario, node_acks=False)
