"""What one connection may hold and how often it may be refused; others do not suffer from it."""

import anyio
import anyio.lowlevel
from hpack import Decoder, Encoder

from broker.edge.rpc.edge_limits import EdgeLimits
from broker.model.failure import StreamingCode as Code
from broker.transport.frame_costs import REFUSED_CALL, UNITS_AT_ONCE
from broker.transport.held_bytes import UNFINISHED_BYTES_MAX
from broker.transport.listener import BoundedConnection, PeerConnection
from tests.wire.peer import connected
from tests.wire.raw_peer import DATA, HEADERS, HELLO, http_frame, raw
from tests.wire.small_broker import STATE, SmallBroker, small_broker
from tests.wire.test_malformed import code_of, healthy


async def test_messages_that_have_begun_on_one_connection_are_bounded_together() -> None:
    mib = 1024 * 1024
    limits = EdgeLimits(frame_bytes_max=16 * mib, idle_peer_s=60.0)
    count = UNFINISHED_BYTES_MAX // (16 * mib)
    async with small_broker(limits=limits) as broker, raw(broker) as peer:
        encoder = Encoder()
        head = [
            *((":method", "POST"), (":scheme", "http"), (":authority", "broker")),
            *((":path", STATE), ("te", "trailers"), ("content-type", "application/grpc")),
        ]
        begun = b"\x00" + (16 * mib).to_bytes(4, "big") + b"x"
        await peer.send(HELLO)
        for number in range(count + 1):
            stream = 2 * number + 1
            call = http_frame(HEADERS, encoder.encode(head), 4, stream)
            await peer.send(call + http_frame(DATA, begun, 0, stream))
        answered: list[bytes] = []
        async for kind, _, payload in peer.frames():
            if kind == HEADERS:
                answered.append(payload)
                break
        named = {str(name): str(text) for name, text in Decoder().decode(answered[0])}
        assert code_of(named)[1] is Code.INNER
        (open_one,) = broker.edge._listener.open_connections.all()
        assert isinstance(open_one.connection, BoundedConnection)
        unfinished = open_one.connection.unfinished
        assert unfinished._bytes == count * 16 * mib
        await peer.send(b"".join(http_frame(3, bytes(4), 0, 2 * it + 1) for it in range(count)))
        with anyio.fail_after(60):
            while unfinished._bytes:
                await anyio.lowlevel.checkpoint()


async def test_a_connection_whose_calls_are_refused_is_read_slowly_and_others_are_not() -> None:
    async with small_broker() as broker, connected(broker) as peer, raw(broker) as hostile:
        await healthy(peer)
        await hostile.send(HELLO)
        with anyio.fail_after(60):
            while len(broker.edge._listener.open_connections.all()) < 2:
                await anyio.lowlevel.checkpoint()
        for connection in broker.edge._listener.open_connections.all():
            pay_back_hardly_anything(connection)
        encoder = Encoder()
        head = [
            *((":method", "POST"), (":scheme", "http"), (":authority", "broker")),
            *((":path", STATE), ("te", "trailers"), ("content-type", "application/grpc")),
        ]
        for number in range(1, 2 * (UNITS_AT_ONCE // REFUSED_CALL + 200), 2):
            call = http_frame(HEADERS, encoder.encode(head), 4, number)
            # Bytes that are no request.
            await hostile.send(call + http_frame(DATA, b"\0\0\0\0\1\xff", 1, number))
        with anyio.fail_after(60):
            while not slow_connections(broker):
                await anyio.lowlevel.checkpoint()
        await healthy(peer)
        assert len(slow_connections(broker)) == 1


def pay_back_hardly_anything(connection: PeerConnection) -> None:
    """However long this machine takes for refusals, they are more than is paid back meanwhile."""
    connection._pace._bucket.change(1.0, UNITS_AT_ONCE, connection._pace._loop.time())


def slow_connections(broker: SmallBroker) -> list[PeerConnection]:
    return [it for it in broker.edge._listener.open_connections.all() if is_slow(it)]


def is_slow(connection: PeerConnection) -> bool:
    return connection._pace._goes_on is not None and connection._pace._bucket._tokens < 0
