"""Channels that are served to readers only, as Milvus's clients and ours see them."""

from pathlib import Path

import anyio
import grpc
import pytest

from broker.client import connect
from broker.client.cluster.targets import NewVChannel
from broker.client.errors import DeadlineExceeded, ServerFailed
from broker.model.failure import StreamingCode as Code
from schemas.generated.milvus.proto import streaming as wire
from schemas.handshake import CREATE_PRODUCER, CreateHeader
from tests.create_headers import create_header
from tests.local_broker import local_broker
from tests.wire.peer import Peer
from tests.wire.small_broker import DISCOVER, NODE_CONTROL, P0, PRODUCE, SmallBroker
from tests.wire.test_assignment import table
from tests.wire.test_consume import appended, next_messages, opened
from tests.wire.test_handshake import refusal
from tests.wire.test_node_control import status

DEADLINE_S = 60.0
INVALID = 3
ROWS = NewVChannel(f"{P0}_7v0")
READ_ONLY = wire.PChannelAccessMode.PCHANNEL_ACCESS_READONLY


async def test_a_read_only_owner_serves_consumers_and_takes_no_producer(peer: Peer) -> None:
    with anyio.fail_after(DEADLINE_S):
        await appended(peer, b"a", b"b")
        channel = wire.PChannelInfo(name=P0, term=9, access_mode=READ_ONLY)
        request = wire.StreamingNodeManagerAssignRequest(pchannel=channel)
        assert await peer.call(NODE_CONTROL + "Assign", bytes(request)) == b""
        found = (await status(peer))[P0]
        assert (found.info, found.rw) == (channel, None)
        assert found.ro is not None
        consumer = await opened(peer, term=9)
        assert [it.payload for it in await next_messages(consumer, 2)] == [b"a", b"b"]
        for header in (CreateHeader(P0, 9), CreateHeader(P0, 9, int(READ_ONLY))):
            stream = peer.open(PRODUCE, {CREATE_PRODUCER: create_header(header)})
            assert await refusal(stream) == (INVALID, Code.INVALID_ARGUMENT)


async def test_the_table_says_so(broker: SmallBroker, peer: Peer) -> None:
    with anyio.fail_after(DEADLINE_S):
        stream = peer.open(DISCOVER, {})
        await table(stream)
        channel = wire.PChannelInfo(name=P0, term=9, access_mode=READ_ONLY)
        request = wire.StreamingNodeManagerAssignRequest(pchannel=channel)
        await peer.call(NODE_CONTROL + "Assign", bytes(request))
        while True:
            listed = [it for node in (await table(stream)).assignments for it in node.channels]
            if listed == [channel]:
                return


async def test_a_cluster_that_begins_read_only_takes_appends_once_it_is_enabled(
    tmp_path: Path,
) -> None:
    with anyio.fail_after(3 * DEADLINE_S):
        async with (
            local_broker(tmp_path, pchannels=2, streaming=False) as broker,
            connect(broker.address) as log,
            grpc.aio.insecure_channel(broker.address) as channel,
        ):
            # A change of definitions is written to the log, too.
            with pytest.raises(ServerFailed, match="tidemark streaming enable"):
                await log.collections.create("rows", shards=1)
            # The client learns the reason after half a second, on a slow machine later.
            for deadline_s in (1.0, 4.0, 16.0):
                with pytest.raises(DeadlineExceeded) as late:
                    await log.append(ROWS, b"early", deadline_s=deadline_s)
                if "read-only" in str(late.value):
                    break
            else:
                pytest.fail(f"the reason is not told: {late.value}")
            assert [it.read_only for it in await log.admin.channels()] == [True, True]
            assert await log.admin.streaming_version() == 0
            discover = channel.stream_stream(DISCOVER)()
            listed = await table(_Frames(discover))  # type: ignore[arg-type]
            assert listed.streaming_version is None

            results: list[object] = []

            async def wait() -> None:
                await log.append(ROWS, b"waited", deadline_s=DEADLINE_S)

            async def broadcast() -> None:
                done = await log.broadcast.append([ROWS], b"ddl", deadline_s=DEADLINE_S)
                results.append(done)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(broadcast)
                tasks.start_soon(wait)
                assert await log.admin.streaming_version(1) == 1
                # Appends begin with version 1, broadcasts with 2.
                await log.append(ROWS, b"at 1", deadline_s=DEADLINE_S)
                assert (await log.broadcast.list(), results) == ([], [])
                assert await log.admin.streaming_version(2) == 2
            assert len(results) == 1
            found = [it.payload async for it in log.read(ROWS, until="now").messages()]
            assert sorted(found) == [b"at 1", b"ddl", b"waited"]
        async with (
            local_broker(tmp_path, pchannels=2, streaming=False) as broker,
            connect(broker.address) as log,
        ):
            assert await log.admin.streaming_version() == 2
            await log.append(ROWS, b"later")


class _Frames:
    """A grpcio stream as `table` reads it."""

    def __init__(self, call: grpc.aio.StreamStreamCall) -> None:
        self._call = call

    async def receive(self) -> bytes:
        found: bytes = await self._call.read()
        return found
