"""grpcio as a whole peer: keepalive, flow control, large messages, and many streams."""

import anyio
import grpc.aio
import pytest

from broker.node.state.node_limits import NodeLimits
from schemas.generated.google.protobuf import Empty
from schemas.generated.milvus.proto import streaming as wire
from schemas.wire import Consumed, Produced, scan_consume_response, scan_produce_response
from tests.wire.peer import BIG, Peer, PeerStream, append, connected
from tests.wire.small_broker import DISCOVER, V0, SmallBroker, small_broker

LATEST = bytes(
    wire.ConsumeRequest(
        create_vchannel_consumer=wire.CreateVChannelConsumerRequest(
            vchannel=V0, deliver_policy=wire.DeliverPolicy(latest=Empty())
        )
    )
)
KEEPALIVE = (
    ("grpc.keepalive_time_ms", 20),
    ("grpc.keepalive_timeout_ms", 60_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.use_local_subchannel_pool", 1),
)


async def test_streams_outlive_keepalive_pings_far_denser_than_milvus_sends(
    broker: SmallBroker,
) -> None:
    async with grpc.aio.insecure_channel(broker.address, options=KEEPALIVE) as channel:
        peer = Peer(channel)
        discover, produce, consume = peer.open(DISCOVER, {}), peer.produce(), peer.consume()
        for stream in (discover, produce, consume):
            await stream.receive()
        await consume.send(LATEST)
        await consume.receive()
        for _ in range(5):  # a tick each 200 ms: some fifty pings in all
            await consume.receive()
        await produce.send(append(1))
        assert isinstance(scan_produce_response(await produce.receive()), Produced)
        await discover.half_close()
        await discover.receive()
        assert await discover.status() == (0, None)


async def test_a_message_just_below_the_limit_goes_in_and_out(peer: Peer) -> None:
    payload = b"x" * ((8 << 20) - 1024)
    consume, produce = peer.consume(), peer.produce()
    await consume.receive()
    await consume.send(LATEST)
    await consume.receive()
    await produce.receive()
    await produce.send(append(1, payload))
    assert isinstance(scan_produce_response(await produce.receive()), Produced)
    while True:
        found = scan_consume_response(await consume.receive())
        assert isinstance(found, Consumed)
        if found.payload == payload:
            break


@pytest.mark.parametrize("consumers", [300])
async def test_many_idle_consumers_of_one_connection_all_hear_ticks(consumers: int) -> None:
    """Opened one after the other: all at once, a slow machine lets some wait for too long."""
    limits = NodeLimits(tick_interval_s=1.0)
    async with small_broker(pchannels=4, node_limits=limits) as broker:
        async with grpc.aio.insecure_channel(broker.address, options=BIG) as channel:
            peer = Peer(channel)
            streams = [await _idle(peer) for _ in range(consumers)]
            for stream in streams:
                await _hear_two_ticks(stream)
            assert broker.edge.connections == 1
            assert len(broker.scanner_paths()) == consumers
            for stream in streams:
                stream.call.cancel()
        with anyio.fail_after(60):
            while broker.scanner_paths():
                await anyio.lowlevel.checkpoint()


async def test_calls_on_many_connections_share_one_log(broker: SmallBroker) -> None:
    ids: list[int] = []

    async def produce(number: int) -> None:
        async with connected(broker) as own:
            stream = own.produce()
            await stream.receive()
            await stream.send(*[append(request) for request in range(20)])
            for _ in range(20):
                result = scan_produce_response(await stream.receive())
                assert isinstance(result, Produced), (number, result)
                ids.append(result.message_id)
            await stream.half_close()

    async with anyio.create_task_group() as tasks:
        for number in range(10):
            tasks.start_soon(produce, number)
    assert len(set(ids)) == 200


async def _idle(peer: Peer) -> PeerStream:
    stream = peer.consume()
    await stream.receive()
    await stream.send(LATEST)
    await stream.receive()
    return stream


async def _hear_two_ticks(stream: PeerStream) -> None:
    first = scan_consume_response(await stream.receive())
    second = scan_consume_response(await stream.receive())
    assert isinstance(first, Consumed)
    assert isinstance(second, Consumed)
    assert first.properties["_t"] == second.properties["_t"] == "1"
    assert first.tick < second.tick
