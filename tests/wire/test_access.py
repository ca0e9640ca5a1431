"""With access under control: every call of every service, for callers with and without a right."""

from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import anyio
import grpc.aio
import pytest

from broker.core.security.book_changes import with_user, without_token, without_user
from broker.core.security.tokens import read_token
from broker.edge.rpc.access import book_refresh
from broker.edge.rpc.access.needs import Who
from broker.edge.rpc.access.permissions import PERMISSIONS
from broker.edge.rpc.incoming.request_reader import AT_ONCE
from broker.model.failure import StreamingCode as Code
from broker.transport import WireMessage
from schemas.generated.milvus.proto import streaming as wire
from schemas.generated.tidemark import v1
from schemas.properties.txn_context import begin_header
from schemas.wire import (
    Produced,
    ProduceFailed,
    VChannelCreated,
    produce_request,
    scan_consume_response,
    scan_produce_response,
)
from tests.wire.controlled import ADMIN, SECRET, Controlled, controlled
from tests.wire.peer import Ended, Peer, PeerStream, connected, ended, insert
from tests.wire.small_broker import FIRST_TERM, P0, V0
from tests.wire.test_consume import request

INVALID, DENIED, NOT_HERE, UNKNOWN = 3, 7, 12, 16
OTHER = f"{P0}_200v0"
WHO_AM_I = "/tidemark.v1.Auth/WhoAmI"
BEGIN, COMMIT, DROP_COLLECTION, FLUSH_ALL = "900", "901", "6", "37"
OF_STREAMS = {
    path
    for path, it in PERMISSIONS.items()
    if it.inside or path.endswith(("AssignmentDiscover", "Watch", "WatchBarrier"))
}


@asynccontextmanager
async def world() -> AsyncIterator[tuple[Controlled, Peer]]:
    """A broker with a few users, and a peer."""
    async with controlled() as here, connected(here.broker) as peer:
        yield here, peer


async def outcome(peer: Peer, path: str, asked: bytes, metadata: Mapping[str, str]) -> Ended | None:
    """How a call with one request was refused; None when it was answered."""
    try:
        await peer.call(path, asked, metadata)
    except grpc.aio.AioRpcError as error:
        # What another role serves is not here: the transport says so before anybody asks.
        missing = error.code() is grpc.StatusCode.UNIMPLEMENTED
        return Ended(NOT_HERE, None) if missing else ended(error)
    return None


def code(of: Ended | None) -> int:
    return 0 if of is None else of.code


async def test_without_a_proof_every_call_but_those_of_probes_is_refused() -> None:
    async with world() as (_, peer):
        for path, permission in PERMISSIONS.items():
            if path.endswith("/Watch"):
                continue
            found = await outcome(peer, path, b"", {})
            if permission.who is Who.ANYBODY:
                assert found is None, path
            elif code(found) != NOT_HERE:
                assert found is not None, path
                assert found.code == UNKNOWN, path
                assert found.error is not None, path
                # Clients of Milvus know no such code; this one they do not repeat.
                assert found.error.code == Code.UNRECOVERABLE, path
                assert "pass a token" in found.error.cause, path


async def test_a_user_without_grants_may_only_ask_what_everybody_may() -> None:
    async with world() as (here, peer):
        await here.add("nobody")
        for path, permission in PERMISSIONS.items():
            if path in OF_STREAMS:
                continue
            found = code(await outcome(peer, path, NAMED.get(path, b""), here.proof("nobody")))
            if permission.who in (Who.PROCESS, Who.GRANTED):
                assert found in (DENIED, NOT_HERE), (path, found)
            else:
                assert found not in (DENIED, UNKNOWN), path


def named(vchannel: str) -> Mapping[str, bytes]:
    """Requests that would otherwise name nothing, and so ask for nothing."""
    return {path: bytes(it) for path, it in _naming(vchannel).items()}


def _naming(vchannel: str) -> Mapping[str, WireMessage]:
    return {
        "/tidemark.v1.Commits/Commit": (
            v1.CommitBatchRequest(app="a", txns=[v1.StagedTxn(vchannel=vchannel)])
        ),
        "/tidemark.v1.Commits/Abort": (
            v1.AbortBatchRequest(app="a", txns=[v1.StagedTxn(vchannel=vchannel)])
        ),
        "/tidemark.v1.Groups/Create": (v1.CreateGroupRequest(vchannel=vchannel, group="g")),
        "/tidemark.v1.Groups/Alter": (v1.AlterGroupRequest(vchannel=vchannel, group="g")),
        "/tidemark.v1.Groups/Seek": (v1.SeekGroupRequest(vchannel=vchannel, group="g")),
        "/tidemark.v1.Groups/Drop": (v1.DropGroupRequest(vchannel=vchannel, group="g")),
        "/tidemark.v1.Groups/List": (v1.ListGroupsRequest(vchannels=[vchannel])),
        "/tidemark.v1.Log/Describe": (v1.DescribeRequest(channels=[vchannel])),
        "/tidemark.v1.Log/Seek": (v1.SeekRequest(channel=vchannel)),
        "/tidemark.v1.Log/Advance": (v1.AdvanceRequest(channel=vchannel)),
        "/tidemark.v1.Log/Measure": (v1.MeasureRequest(channels=[vchannel])),
        "/tidemark.v1.Log/Mvcc": (v1.MvccRequest(vchannel=vchannel)),
        "/tidemark.v1.Log/HasVChannel": (v1.HasVChannelRequest(vchannel=vchannel)),
        "/tidemark.v1.TimeSync/Cut": (v1.CutRequest(channels=[vchannel])),
        "/tidemark.v1.TimeSync/HoldBroadcasts": (v1.HoldBroadcastsRequest(channels=[vchannel])),
        "/tidemark.v1.Master/ShowAliases": (v1.ShowAliasesRequest(collection_name="c")),
        "/tidemark.v1.Master/ShowSegments": (v1.ShowSegmentsRequest(collection_id=9)),
        "/tidemark.v1.Master/DescribeSegment": (v1.DescribeSegmentRequest(collection_id=9)),
        "/tidemark.v1.Master/SealCollection": (v1.SealCollectionRequest(collection_id=9)),
        "/tidemark.v1.Master/AssignSegmentID": (
            v1.AssignSegmentIdRequest(requests=[v1.SegIdRequest(collection_name="c")])
        ),
    }


NAMED = named(V0)


@pytest.mark.parametrize("call", ["Commit", "Abort"])
async def test_a_batch_of_nothing_is_no_way_to_end_the_batch_of_somebody_else(call: str) -> None:
    asked = bytes(v1.CommitBatchRequest(app="a", batch=1))
    async with world() as (here, peer):
        await here.add("ann", "txn:channel:*")
        path = f"/tidemark.v1.Commits/{call}"
        assert code(await outcome(peer, path, asked, here.proof("ann"))) == DENIED


async def test_a_new_token_and_a_new_grant_count_at_once_in_a_process_that_only_reads_them() -> (
    None
):
    get = "/tidemark.v1.Collections/Find"
    asked = bytes(v1.FindRequest(name="trains"))
    async with world() as (here, peer):
        here.follow()
        await here.store("ann", "consume:collection:other")
        assert code(await outcome(peer, get, asked, here.proof("ann"))) == DENIED
        await here.store("ann", "consume:collection:trains")
        assert code(await outcome(peer, get, asked, here.proof("ann"))) not in (DENIED, UNKNOWN)
        stream = await producing(peer, here.proof("ann"))
        assert isinstance(await said(stream), ProduceFailed)
        await here.store("ann", "produce:channel:*")
        assert isinstance(await said(stream), Produced)


async def test_a_flood_of_wrong_tokens_costs_the_store_a_few_reads_and_nobody_the_new_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # However slow this machine is, nobody is refused by the old book while he waits.
    monkeypatch.setattr(book_refresh, "WAIT_S_MAX", 60.0)
    monkeypatch.setattr(book_refresh, "PAUSE_S", 0.2)
    wrong = {"authorization": f"Bearer tm_flood_{'x' * 43}"}
    answers: list[int] = []
    async with world() as (here, peer):
        refresh, began_s = here.follow(), anyio.current_time()

        async def flood() -> None:
            answers.extend([code(await outcome(peer, WHO_AM_I, b"", wrong)) for _ in range(5)])

        async with anyio.create_task_group() as tasks:
            for _ in range(100):
                tasks.start_soon(flood)
            await here.store("ann", "consume:collection:trains")
            assert await outcome(peer, WHO_AM_I, b"", here.proof("ann")) is None
        took_s = anyio.current_time() - began_s
    assert answers == [UNKNOWN] * 500
    # A slow machine spreads the calls, and more of them come too late for the read of the others.
    assert refresh.reads <= took_s / book_refresh.PAUSE_S + 2
    # One read for each call would be 501, and take a hundred seconds.
    assert refresh.reads <= 250


HIDDEN, ABSENT = "hidden_one", "absent_one"


async def test_a_name_that_one_may_not_see_is_answered_as_one_that_is_not_there() -> None:
    requests: Mapping[str, Callable[[str], WireMessage]] = {
        "/tidemark.v1.Collections/Get": lambda it: v1.GetCollectionRequest(name=it),
        "/tidemark.v1.Collections/Find": lambda it: v1.FindRequest(name=it),
        "/tidemark.v1.Collections/Drop": lambda it: v1.DropCollectionRequest(name=it),
        "/tidemark.v1.Collections/Create": lambda it: v1.CreateCollectionRequest(name=it, shards=1),
        "/tidemark.v1.Master/HasCollection": lambda it: v1.HasCollectionRequest(collection_name=it),
        "/tidemark.v1.Master/DescribeCollection": (
            lambda it: v1.DescribeCollectionRequest(collection_name=it)
        ),
        "/tidemark.v1.TimeSync/GetCursor": lambda it: v1.GetCursorRequest(name=it),
        "/tidemark.v1.TimeSync/DropCursor": lambda it: v1.DropCursorRequest(name=it),
    }
    async with world() as (here, peer):
        await here.add("ann", "*:collection:mine*", "*:cursor:mine*")
        admin = here.proof(ADMIN)
        made = v1.CreateCollectionRequest(name=HIDDEN, shards=1)
        await peer.call("/tidemark.v1.Collections/Create", bytes(made), admin)
        opened = v1.OpenCursorRequest(name=HIDDEN, positions=[v1.CursorPosition(channel=V0)])
        await peer.call("/tidemark.v1.TimeSync/OpenCursor", bytes(opened), admin)
        for path, asked in requests.items():
            hidden = await outcome(peer, path, bytes(asked(HIDDEN)), here.proof("ann"))
            absent = await outcome(peer, path, bytes(asked(ABSENT)), here.proof("ann"))
            assert hidden is not None, path
            assert absent is not None, path
            assert hidden.error is not None, path
            assert absent.error is not None, path
            words = hidden.error.cause.replace(HIDDEN, ABSENT)
            assert (hidden.code, words) == (absent.code, absent.error.cause), path
            # It is there, and who may see it does.
            found = await outcome(peer, path, bytes(asked(HIDDEN)), admin)
            assert code(found) != DENIED, path


async def test_the_processes_of_a_cluster_call_by_its_secret() -> None:
    collect = "/milvus.proto.streaming.StreamingNodeManagerService/CollectStatus"
    async with world() as (here, peer):
        assert await outcome(peer, collect, b"", {"tidemark-process": SECRET}) is None
        refused = await outcome(peer, collect, b"", {"tidemark-process": "1" * 64})
        assert code(refused) == UNKNOWN
        # Not even an administrator is a process of the cluster.
        assert code(await outcome(peer, collect, b"", here.proof(ADMIN))) == DENIED


async def test_a_process_of_the_cluster_does_not_wait_behind_the_large_requests_of_strangers() -> (
    None
):
    collect = "/milvus.proto.streaming.StreamingNodeManagerService/CollectStatus"
    many, answered, first = b"\x78\x01" * (2 * AT_ONCE), list[str](), anyio.Event()
    async with world() as (_, peer), anyio.create_task_group() as tasks:

        async def ask(path: str, asked: bytes, metadata: Mapping[str, str]) -> None:
            assert await outcome(peer, path, asked, metadata) is None
            answered.append(path)
            first.set()

        for _ in range(12):
            tasks.start_soon(ask, "/grpc.health.v1.Health/Check", 40 * many, {})
        await first.wait()
        await ask(collect, many, {"tidemark-process": SECRET})
    assert answered.index(collect) < 6


# ---- Milvus's streams ---------------------------------------------------------------------------


async def producing(peer: Peer, proof: Mapping[str, str]) -> PeerStream:
    stream = peer.produce(FIRST_TERM, **proof)
    await stream.receive()
    return stream


async def said(stream: PeerStream, **properties: str) -> Produced | ProduceFailed:
    await stream.send(produce_request(7, insert(b"x", **properties)))
    answer = scan_produce_response(await stream.receive())
    assert isinstance(answer, Produced | ProduceFailed), answer
    return answer


async def test_a_producer_is_refused_message_by_message_and_its_stream_continues() -> None:
    async with world() as (here, peer):
        await here.add("ann", f"produce:channel:{V0}")
        stream = await producing(peer, here.proof("ann"))
        for _ in range(2):  # what was allowed is remembered, and what was not is refused again
            assert isinstance(await said(stream), Produced)
            refused = await said(stream, _vc=OTHER)
            assert isinstance(refused, ProduceFailed)
            assert refused.code == Code.UNRECOVERABLE
            assert refused.cause.startswith("permission denied: 'ann' may not append to channel")


@pytest.mark.parametrize(
    ("kind", "grant"),
    [
        ("2", f"produce:channel:{V0}"),
        ("3", f"produce:channel:{V0}"),
        (BEGIN, f"txn:channel:{V0}"),
        (DROP_COLLECTION, f"ddl:channel:{V0}"),
    ],
)
async def test_each_kind_of_message_needs_its_own_right(kind: str, grant: str) -> None:
    properties = {"_t": kind}
    if kind == BEGIN:
        properties |= {"_v": "2", "_h": b64encode(begin_header(1000)).decode()}
    async with world() as (here, peer):
        await here.add("may", grant)
        await here.add("others", "observe:*:*", "admin:*:*", "consume:*:*", "broadcast:*:*")
        may, others = here.proof("may"), here.proof("others")
        assert isinstance(await said(await producing(peer, may), **properties), Produced)
        refused = await said(await producing(peer, others), **properties)
        assert isinstance(refused, ProduceFailed)
        assert refused.cause.startswith("permission denied: ")


async def test_what_acts_on_the_whole_pchannel_needs_a_right_on_it() -> None:
    async with world() as (here, peer):
        await here.add("part", f"ddl:channel:{V0}")
        await here.add("whole", "ddl:channel:*")
        part, whole = here.proof("part"), here.proof("whole")
        for kind in ({"_t": FLUSH_ALL}, {"_t": DROP_COLLECTION, "_pcl": ""}):
            refused = await said(await producing(peer, part), **kind)
            assert isinstance(refused, ProduceFailed), kind
            assert f"channel {P0!r}" in refused.cause
            answer = await said(await producing(peer, whole), **kind)
            assert not (isinstance(answer, ProduceFailed) and "denied" in answer.cause)


async def test_a_consumer_needs_the_right_to_its_vchannel_or_to_the_whole_pchannel() -> None:
    async with world() as (here, peer):
        await here.add("ann", f"consume:channel:{V0}")
        for wanted, allowed in ((V0, True), (OTHER, False), ("", False)):
            stream = peer.consume(FIRST_TERM, **here.proof("ann"))
            await stream.receive()
            await stream.send(request(vchannel=wanted))
            if allowed:
                answer = scan_consume_response(await stream.receive())
                assert answer == VChannelCreated(1)
            else:
                assert (await stream.end()).code == DENIED, wanted


@pytest.mark.parametrize("what", ["token", "grant", "user"])
async def test_revoking_ends_open_streams_with_the_reason(what: str) -> None:
    async with world() as (here, peer):
        await here.add("ann", "produce:channel:*", "consume:channel:*")
        await here.add("eve", "produce:channel:*", "consume:channel:*")
        ann, eve = here.proof("ann"), here.proof("eve")
        producer, stays = await producing(peer, ann), await producing(peer, eve)
        for each in (producer, stays):
            assert isinstance(await said(each), Produced)
        consumer = peer.consume(FIRST_TERM, **ann)
        await consumer.receive()
        await consumer.send(request())
        assert scan_consume_response(await consumer.receive()) == VChannelCreated(1)
        # By another process: the watch of this one finds it.
        watch = here.watch()
        id = read_token(here.tokens["ann"])
        assert id is not None
        if what == "token":
            await here.records.change(lambda it: without_token(it, id.id))
        elif what == "grant":
            await here.records.change(lambda it: with_user(it, "ann", [], replaces=True))
        else:
            await here.records.change(lambda it: without_user(it, "ann"))
        await watch.receive(())
        expected = DENIED if what == "grant" else UNKNOWN
        assert (await producer.end()).code == expected
        assert (await consumer.end()).code == expected
        assert isinstance(await said(stays), Produced)


# ---- broadcasts ---------------------------------------------------------------------------------

BROADCAST = "/milvus.proto.streaming.StreamingCoordBroadcastService/Broadcast"
ACK = "/milvus.proto.streaming.StreamingCoordBroadcastService/Ack"


async def test_an_ack_needs_the_right_to_broadcast_there() -> None:
    asked = bytes(wire.BroadcastAckRequest(broadcast_id=1, vchannel=V0))
    async with world() as (here, peer):
        await here.add("ann", f"broadcast:channel:{OTHER}")
        assert code(await outcome(peer, ACK, asked, here.proof("ann"))) == DENIED
        await here.add("ann", f"broadcast:channel:{V0}")
        assert code(await outcome(peer, ACK, asked, here.proof("ann"))) != DENIED
        nowhere = bytes(wire.BroadcastAckRequest(broadcast_id=1))
        assert code(await outcome(peer, ACK, nowhere, here.proof("ann"))) == INVALID
