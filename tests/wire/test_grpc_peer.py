"""grpcio as a whole peer: keepalive, flow control, large messages, and many streams."""

import anyio
import grpc.aio
import pytest

from schemas.generated.google.protobuf import Empty
from schemas.generated.milvus.proto import streaming as wire
from schemas.wire import Consumed, Produced, scan_consume_response, scan_produce_response
from tests.wire.peer import BIG, Peer, append, connected
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
    ("grpc.keepalive_timeout_ms", 5_000),
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
    async with small_broker(pchannels=4) as broker:
        async with grpc.aio.insecure_channel(broker.address, options=BIG) as channel:
            peer = Peer(channel)
            async with anyio.create_task_group() as tasks:
                for _ in range(consumers):
                    tasks.start_soon(_hear_two_ticks, peer)
            assert broker.edge.connections == 1
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


async def _hear_two_ticks(peer: Peer) -> None:
    stream = peer.consume()
    await stream.receive()
    await stream.send(LATEST)
    await stream.receive()
    first = scan_consume_response(await stream.receive())
    second = scan_consume_response(await stream.receive())
    assert isinstance(first, Consumed)
    assert isinstance(second, Consumed)
    assert first.properties["_t"] == second.properties["_t"] == "1"
    assert first.tick < second.tick
    stream.call.cancel()
