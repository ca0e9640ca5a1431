"""Broadcast and Ack over gRPC, as Milvus's client calls them, and what the logs hold then."""

import anyio
import grpc.aio
import pytest

from broker.coordinator.broadcast.messages import ListBroadcasts, ListLocks
from broker.edge.milvus.broadcast_request import KEYS_MAX, VCHANNELS_MAX
from broker.model.broadcast import Broadcast, Broadcasted
from broker.model.failure import StreamingCode as Code
from broker.ports.callbacks import FailedForGood
from schemas.generated.milvus.proto import common, messages
from schemas.generated.milvus.proto import streaming as wire
from schemas.properties.broadcast_header import (
    BroadcastHeader,
    HeaderKey,
    read_broadcast_header,
    write_broadcast_header,
)
from schemas.properties.keys import REPLICATE
from schemas.wire import rocksmq_id
from tests.wire.broadcasting import (
    ANSWER_S,
    ANY_OF_CLUSTER,
    COLLECTION,
    CREATE_DATABASE,
    LOCKS,
    SERVICE,
    P,
    Stored,
    V,
    World,
    request,
    until,
    world,
)

GOOD = BroadcastHeader(0, V, (COLLECTION,))


async def test_every_vchannel_gets_a_copy_and_the_answer_says_where() -> None:
    async with world() as it:
        answer = await it.broadcast(request(GOOD, mine="kept"))
        assert answer.broadcast_id > 0
        assert set(answer.results) == set(V)
        for vchannel, result in answer.results.items():
            assert result.txn_context is None
            assert result.extra is None
            assert result.id is not None
            assert result.last_confirmed_id is not None
            assert rocksmq_id(result.last_confirmed_id.id) <= rocksmq_id(result.id.id)
            (copy,) = await it.on(vchannel)
            assert (copy.payload, copy.tags["_t"], copy.tags["mine"]) == (b"ddl", "16", "kept")
            assert (copy.id, copy.tick) == (rocksmq_id(result.id.id), result.timetick)
            assert (copy.tags["_vc"], copy.tags["_h"]) == (vchannel, "CGQ=")
            header = read_broadcast_header(copy.tags["_bh"])
            keys = (COLLECTION, ANY_OF_CLUSTER)
            assert header == BroadcastHeader(answer.broadcast_id, V, keys)
        assert await it.broker.system.find(LOCKS).ask(ListLocks(), deadline_s=ANSWER_S) == ()


async def test_a_broadcast_to_whole_pchannels_is_one_of_their_level() -> None:
    names = (V[0], f"{P}1", f"{P}2")
    async with world() as it:
        header = BroadcastHeader(0, names, (HeaderKey(127, "", False),))
        answer = await it.broadcast(request(header, _t="37", _v="2", _pcl=""))
        assert set(answer.results) == set(names)
        (copy,) = await it.on(f"{P}1")
        assert (copy.tags["_t"], copy.tags["_pcl"], copy.tags["_vc"]) == ("37", "", f"{P}1")


BAD: list[tuple[bytes, Code, str]] = [
    (bytes(wire.BroadcastRequest()), Code.INVALID_ARGUMENT, "no message"),
    (request(None), Code.INVALID_ARGUMENT, "_bh is missing"),
    (request("!"), Code.INVALID_ARGUMENT, "_bh"),
    (request("CAUS"), Code.INVALID_ARGUMENT, "_bh"),
    (request(BroadcastHeader(0, ())), Code.INVALID_ARGUMENT, "this one to 0"),
    (request(BroadcastHeader(0, (V[1],) * 2)), Code.INVALID_ARGUMENT, f"'{V[1]}' is named more"),
    (request(BroadcastHeader(0, (*V, "x"))), Code.INVALID_ARGUMENT, "'x' is not on a pchannel"),
    (request(BroadcastHeader(0, (f"{P}9_1v0",))), Code.INVALID_ARGUMENT, f"'{P}9_1v0' is not on"),
    (
        request(BroadcastHeader(0, tuple(f"{P}1_{i}v0" for i in range(VCHANNELS_MAX + 1)))),
        Code.INVALID_ARGUMENT,
        f"this one to {VCHANNELS_MAX + 1}",
    ),
    (request(BroadcastHeader(0, V, (HeaderKey(9, "k", True),))), Code.INVALID_ARGUMENT, "domain 9"),
    (request(BroadcastHeader(0, V, (HeaderKey(0, "k", True),))), Code.INVALID_ARGUMENT, "domain 0"),
    (
        request(BroadcastHeader(0, V, tuple(HeaderKey(3, str(i), True) for i in range(1025)))),
        Code.INVALID_ARGUMENT,
        f"at most {KEYS_MAX}",
    ),
    (request(GOOD, _t="0"), Code.INVALID_ARGUMENT, "_t is missing"),
    (request(GOOD, _t="903"), Code.UNRECOVERABLE, "_t is 903, an unknown step"),
    (request(GOOD, _t="1900"), Code.UNRECOVERABLE, "_t is 1900"),
    (request(GOOD, _t="700"), Code.UNRECOVERABLE, "another log implementation"),
    (request(GOOD, _t="800"), Code.UNRECOVERABLE, "replication between clusters"),
    (request(GOOD, _t="1"), Code.INVALID_ARGUMENT, "TIME_TICK"),
    (request(GOOD, _t="900"), Code.INVALID_ARGUMENT, "BEGIN_TXN"),
    (request(GOOD, _v="0"), Code.INVALID_ARGUMENT, "_v"),
    (request(GOOD, _vc=V[0]), Code.INVALID_ARGUMENT, "_vc is not allowed"),
    (request(GOOD, _tx="CAEQkE4="), Code.INVALID_ARGUMENT, "_tx is not allowed"),
    (request(GOOD, _btt="1"), Code.INVALID_ARGUMENT, "_btt is not allowed"),
    (request(GOOD, _ik="nonsense"), Code.INVALID_ARGUMENT, "_ik"),
    (request(GOOD, _rh="CgNzcmM="), Code.REPLICATE_VIOLATION, "_rh"),
    (request(GOOD, _t="5", _v="1"), Code.UNRECOVERABLE, "header of CREATE_COLLECTION"),
    (request(GOOD, big="x" * (9 << 20)), Code.UNRECOVERABLE, "the limit is 8388608"),
]


async def test_a_bad_broadcast_is_refused_with_its_cause_and_changes_nothing() -> None:
    async with world() as it:
        for asked, code, cause in BAD:
            found = await it.refusal("Broadcast", asked)
            assert found[0] is code, found
            assert cause in found[1]
        assert await it.untouched()


async def test_copies_that_are_too_much_together_are_refused() -> None:
    many = BroadcastHeader(0, tuple(f"{P}1_{i}v0" for i in range(40)))
    async with world() as it:
        code, cause = await it.refusal("Broadcast", request(many, big="x" * (7 << 20)))
        assert code is Code.UNRECOVERABLE
        assert "40 copies" in cause
        assert await it.untouched()


async def appended(it: World) -> list[Stored]:
    """Every copy, when each vchannel has one."""
    await until(lambda: _all(it))
    return [copies[0] for copies in [await it.on(vchannel) for vchannel in V]]


async def _all(it: World) -> bool:
    return all([await it.on(vchannel) for vchannel in V])


SYNC_UP = BroadcastHeader(0, V, (COLLECTION,), ack_sync_up=True)


async def test_with_ack_sync_up_the_answer_waits_for_an_ack_of_each_vchannel() -> None:
    async with world(node_acks=False) as it, anyio.create_task_group() as tasks:
        answers: list[wire.BroadcastResponse] = []

        async def ask() -> None:
            answers.append(await it.broadcast(request(SYNC_UP)))

        tasks.start_soon(ask)
        copies = await appended(it)
        await it.ack(copies[0].delivered())
        await it.ack(copies[0].delivered())
        legacy = read_broadcast_header(copies[1].tags["_bh"]).broadcast_id
        await it.ack(None, broadcast_id=legacy, vchannel=V[1])
        assert not answers
        await it.ack(copies[2].delivered())
        await until(lambda: _done(answers))
        assert {name: landed.timetick for name, landed in answers[0].results.items()} == {
            copy.tags["_vc"]: copy.tick for copy in copies
        }
        await it.ack(copies[1].delivered())  # long after: no effect, no error


async def _done(answers: list[wire.BroadcastResponse]) -> bool:
    return bool(answers)


async def test_the_node_acknowledges_what_it_has_processed() -> None:
    async with world() as it:
        assert set((await it.broadcast(request(SYNC_UP))).results) == set(V)


async def test_a_bad_ack_is_refused_and_changes_nothing() -> None:
    async with world(node_acks=False) as it, anyio.create_task_group() as tasks:
        tasks.start_soon(it.broadcast, request(SYNC_UP))
        copies = await appended(it)
        good = copies[1].delivered()
        of_another = dict(good.properties) | {"_vc": f"{P}1_7v0"}
        forged = dict(of_another) | {
            "_bh": write_broadcast_header(BroadcastHeader(copies[1].broadcast_id, (f"{P}1_7v0",)))
        }
        id = good.id
        bad = [
            (common.ImmutableMessage(id=id, properties={"_t": "5"}), "_bh is missing"),
            (common.ImmutableMessage(id=id, properties={"_bh": "!"}), "_bh"),
            (common.ImmutableMessage(id=id, properties=of_another), "is not one of broadcast"),
            (common.ImmutableMessage(id=id, properties=forged), "was never sent to vchannel"),
            (common.ImmutableMessage(id=id, properties={**good.properties, "_tt": "!"}), "_tt"),
        ]
        for message, cause in bad:
            found = await it.refusal("Ack", bytes(wire.BroadcastAckRequest(message=message)))
            assert found[0] is Code.INVALID_ARGUMENT
            assert cause in found[1]
        other_log = common.MessageId(id="1", WAL_name=common.WalName(2))
        wrong = common.ImmutableMessage(id=other_log, properties=good.properties)
        code, _ = await it.refusal("Ack", bytes(wire.BroadcastAckRequest(message=wrong)))
        assert code is Code.WAL_NAME_MISMATCH
        never = wire.BroadcastAckRequest(broadcast_id=copies[1].broadcast_id, vchannel="x")
        assert (await it.refusal("Ack", bytes(never)))[0] is Code.INVALID_ARGUMENT
        nowhere = wire.BroadcastAckRequest(broadcast_id=copies[1].broadcast_id)
        assert "must name its vchannel" in (await it.refusal("Ack", bytes(nowhere)))[1]
        broadcaster = it.broker.system.find(LOCKS)

        async def unchanged() -> bool:
            (view,) = await broadcaster.ask(ListBroadcasts(), deadline_s=ANSWER_S)
            assert view.acked == 0
            return bool(view.appended == 3)

        await until(unchanged)
        for copy in copies:
            await it.ack(copy.delivered())


async def test_an_ack_of_an_unknown_broadcast_succeeds() -> None:
    async with world() as it:
        await it.ack(None, broadcast_id=7, vchannel=V[1])
        header = write_broadcast_header(BroadcastHeader(7, V))
        await it.ack(common.ImmutableMessage(properties={"_bh": header, "_vc": V[0]}))
        assert await it.untouched()


async def test_the_same_key_gives_the_same_broadcast_and_another_content_is_refused() -> None:
    async with world() as it:
        first = await it.broadcast(request(GOOD, _ik="1:0:once"))
        again = await it.broadcast(request(GOOD, _ik="1:0:once"))
        assert again == first
        other = await it.broadcast(request(GOOD, _ik="1:0:twice"))
        assert other.broadcast_id > first.broadcast_id
        code, cause = await it.refusal("Broadcast", request(GOOD, _ik="1:0:once", _h=""))
        assert code is Code.INVALID_ARGUMENT
        assert "other content" in cause
        assert [len(await it.on(vchannel)) for vchannel in V] == [2, 2, 2]


async def test_two_calls_without_a_key_are_two_broadcasts() -> None:
    async with world() as it:
        ids = [(await it.broadcast(request(GOOD))).broadcast_id for _ in range(2)]
        assert ids[0] < ids[1]


async def test_a_failure_for_good_is_unrecoverable_and_the_copies_are_there() -> None:
    async def never(_: Broadcast, __: Broadcasted) -> None:
        raise FailedForGood("the collection has no schema")

    async with world(callbacks={CREATE_DATABASE: never}) as it:
        code, cause = await it.refusal("Broadcast", request(GOOD, _ik="1:0:k"))
        assert code is Code.UNRECOVERABLE
        assert "the collection has no schema" in cause
        again = await it.refusal("Broadcast", request(GOOD, _ik="1:0:k"))
        assert again == (code, cause)
        assert [len(await it.on(vchannel)) for vchannel in V] == [1, 1, 1]


async def test_a_caller_that_hangs_up_while_it_waits_for_its_keys_leaves_no_lock() -> None:
    """The second waits for the first; the third, which came last, gets the keys after it."""
    async with world(node_acks=False) as it, anyio.create_task_group() as tasks:
        tasks.start_soon(it.broadcast, request(SYNC_UP))
        copies = await appended(it)
        call = it.peer.channel.unary_unary(SERVICE + "Broadcast")
        with pytest.raises(grpc.aio.AioRpcError):
            await call(request(GOOD), timeout=0.2)
        broadcaster = it.broker.system.find(LOCKS)

        async def only_one() -> bool:
            return len(await broadcaster.ask(ListLocks(), deadline_s=ANSWER_S)) == 1

        await until(only_one)
        for copy in copies:
            await it.ack(copy.delivered())
        await it.broadcast(request(GOOD))
        assert [len(await it.on(vchannel)) for vchannel in V] == [2, 2, 2]


async def test_a_broker_that_stops_tells_those_who_wait() -> None:
    async with world(node_acks=False) as it, anyio.create_task_group() as tasks:
        found: list[tuple[Code, str]] = []

        async def ask() -> None:
            found.append(await it.refusal("Broadcast", request(SYNC_UP)))

        tasks.start_soon(ask)
        await appended(it)
        await it.broker.edge.stop(deadline_s=60.0)
        await until(lambda: _told(found))
        assert found[0][0] is Code.ON_SHUTDOWN


async def _told(found: list[tuple[Code, str]]) -> bool:
    return bool(found)


async def test_a_broadcast_of_another_cluster_is_remembered_by_its_acks() -> None:
    done: list[int] = []

    async def remember(_: Broadcast, outcome: Broadcasted) -> None:
        done.append(outcome.id)

    origin = messages.ReplicateHeader(cluster_id="src")
    async with world(callbacks={CREATE_DATABASE: remember}) as it:
        header = write_broadcast_header(BroadcastHeader(7, V, (COLLECTION,)))
        for number, vchannel in enumerate(V):
            properties = {"_bh": header, "_vc": vchannel, "_t": "16", "_v": "2", "_h": ""}
            properties |= {"_tt": "zz", "_lcs": "", REPLICATE.key: REPLICATE.encode(bytes(origin))}
            message = common.ImmutableMessage(
                id=common.MessageId(id=f"1{number}", WAL_name=common.WalName(1)),
                payload=b"ddl",
                properties=properties,
            )
            await it.ack(message)
            await it.ack(message)
        await until(lambda: _called(done))
        assert done == [7]


async def _called(done: list[int]) -> bool:
    return bool(done)
