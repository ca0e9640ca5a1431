"""Peers that send garbage, half of something, too much or nothing are cut; others are not."""

import base64
import socket
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import anyio
import anyio.lowlevel
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.edge.rpc.edge_limits import EdgeLimits
from broker.model.failure import StreamingCode as Code
from broker.transport import ListenerLimits
from schemas.encoding.frames import frame
from schemas.handshake import CREATE_CONSUMER, CREATE_PRODUCER, CreateHeader
from schemas.status import read_status_details
from schemas.wire import Produced, ProduceFailed, scan_produce_response
from tests.create_headers import create_header
from tests.wire.peer import LOST, Ended, Peer, append, connected
from tests.wire.raw_peer import (
    CONTINUATION,
    DATA,
    GOAWAY,
    HEADERS,
    HELLO,
    PING,
    PREFACE,
    SETTINGS,
    RawCall,
    RawPeer,
    deaf,
    http_frame,
    raw,
)
from tests.wire.small_broker import (
    CONSUME,
    FIRST_TERM,
    P0,
    PRODUCE,
    STATE,
    SmallBroker,
    small_broker,
)

HASTY = EdgeLimits(
    idle_peer_s=0.2,
    message_bytes_max=10_000,
    frame_bytes_max=20_000,
    listener=ListenerLimits(idle_peer_s=0.2, connections_max=8, unsent_bytes_max=200_000),
)
RIGHT = create_header(CreateHeader(P0, FIRST_TERM))
CREATE = {PRODUCE: (CREATE_PRODUCER, RIGHT), CONSUME: (CREATE_CONSUMER, RIGHT)}


@asynccontextmanager
async def hasty_broker() -> AsyncIterator[tuple[SmallBroker, Peer]]:
    async with small_broker(limits=HASTY) as broker, connected(broker) as peer:
        await healthy_at_last(peer)
        yield broker, peer


async def healthy(peer: Peer) -> None:
    """An append through another connection works."""
    stream = peer.produce()
    await stream.receive()
    await stream.send(append(1))
    assert isinstance(scan_produce_response(await stream.receive()), Produced)
    stream.call.cancel()


async def healthy_at_last(peer: Peer) -> None:
    """The same with hasty limits, which also cut a peer that a busy machine makes slow."""
    with anyio.fail_after(60):
        while True:
            try:
                return await healthy(peer)
            except Ended as ended:
                if ended.code != LOST.value[0]:
                    raise
                await anyio.lowlevel.checkpoint()


async def greeted(broker: SmallBroker, stack: AsyncExitStack) -> RawPeer:
    """A connection that the broker has heard of, so that it may be idle from now on."""
    with anyio.fail_after(60):
        while True:
            one = await stack.enter_async_context(raw(broker))
            await one.send(HELLO)
            # A busy machine may be so slow that it is cut before.
            with suppress(EOFError, ConnectionError):
                async for kind, flags, _ in one.frames():
                    if (kind, flags) == (SETTINGS, 1):
                        return one


async def trailers_of(
    broker: SmallBroker, path: str, headers: Sequence[tuple[str, str]], sent: bytes = b""
) -> dict[str, str]:
    """Of a call with so much of a request; again if its connection was cut before."""
    with anyio.fail_after(60):
        while True:
            async with raw(broker) as peer:
                call = RawCall(peer, path, headers)
                await call.open()
                if sent:
                    await call.send(sent)
                if trailers := await call.until_ended():
                    return trailers


def code_of(trailers: dict[str, str]) -> tuple[int, Code]:
    text = trailers["grpc-status-details-bin"]
    error = read_status_details(base64.b64decode(text + "=" * (-len(text) % 4)))
    assert error is not None
    return int(trailers["grpc-status"]), Code(error.code)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        PREFACE[:10],
        PREFACE,
        HELLO + http_frame(DATA, b"", 0, 1)[:5],
        HELLO + http_frame(PING, b"12345678")[:-3],
        HELLO + http_frame(HEADERS, b"\x82", 0, 1),
    ],
    ids=["nothing", "half a preface", "no settings", "half a head", "half a frame", "half headers"],
)
async def test_a_peer_that_stops_inside_something_is_cut_and_others_are_not(sent: bytes) -> None:
    async with hasty_broker() as (broker, peer):
        async with raw(broker) as silent:
            await silent.send(sent)
            await silent.until_closed()
        await healthy_at_last(peer)


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x00" * 100,
        HELLO + http_frame(DATA, b"x", 0, 0),
        HELLO + http_frame(DATA, b"x", 0, 3),
        HELLO + http_frame(HEADERS, b"\xff" * 50, 4, 1),
        HELLO + http_frame(SETTINGS, b"abc"),
        HELLO + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01",
        HELLO + http_frame(CONTINUATION, b"x", 0, 1),
    ],
    ids=[
        "HTTP/1", "TLS", "zeros", "data on stream 0", "data on an idle stream", "bad hpack",
        "bad settings", "16 MiB announced", "lone continuation",
    ],
)  # fmt: skip
async def test_garbage_closes_its_connection_at_once(broker: SmallBroker, sent: bytes) -> None:
    """With limits of 15 s, so it is not a limit that closes it."""
    async with raw(broker) as peer:
        await peer.send(sent)
        with anyio.fail_after(60):
            await peer.until_closed()


async def test_endless_headers_close_the_connection(broker: SmallBroker) -> None:
    async with raw(broker) as peer:
        await peer.send(HELLO + http_frame(HEADERS, b"", 0, 1))
        for _ in range(40):
            await peer.send(http_frame(CONTINUATION, b"\x00" * 4096, 0, 1))
        with anyio.fail_after(60):
            await peer.until_closed()


async def test_a_healthy_idle_connection_outlives_the_limits_of_silent_ones() -> None:
    async with hasty_broker() as (broker, _), AsyncExitStack() as stack:
        idle = await greeted(broker, stack)
        for _ in range(3):
            async with raw(broker) as silent:
                await silent.until_closed()
        await idle.send(http_frame(PING, b"still ok"))
        async for kind, flags, payload in idle.frames():
            assert kind != GOAWAY
            if kind == PING:
                assert (flags, payload) == (1, b"still ok")
                break


async def test_pings_are_answered_at_any_pace_and_never_punished(broker: SmallBroker) -> None:
    async with raw(broker) as peer:
        await peer.send(HELLO + http_frame(PING, b"8 bytes.") * 300)
        answered = 0
        async for kind, _, _ in peer.frames():
            assert kind != GOAWAY
            answered += kind == PING
            if answered == 300:
                break


async def test_an_unknown_kind_of_frame_is_ignored(broker: SmallBroker) -> None:
    async with raw(broker) as peer:
        await peer.send(HELLO + http_frame(0xBE, b"what") + http_frame(PING, b"8 bytes."))
        async for kind, _, _ in peer.frames():
            assert kind != GOAWAY
            if kind == PING:
                break


async def test_one_connection_too_many_is_turned_away_and_the_others_stay() -> None:
    async with hasty_broker() as (broker, peer):
        async with AsyncExitStack() as crowd:
            for _ in range(7):
                await greeted(broker, crowd)
            with anyio.fail_after(60):
                while broker.edge.connections != 8:
                    await anyio.lowlevel.checkpoint()
            async with raw(broker) as refused:
                assert await refused.until_closed() == b""
            await healthy_at_last(peer)
        with anyio.fail_after(60):
            while broker.edge.connections > 1:
                await anyio.lowlevel.checkpoint()
        async with raw(broker) as late:
            await late.send(HELLO)
            async for kind, _, _ in late.frames():
                assert kind == SETTINGS
                break


async def test_a_peer_that_reads_no_answers_cannot_make_them_pile_up() -> None:
    async with hasty_broker() as (broker, peer):
        async with deaf(broker) as flood:
            await flood.send(HELLO)
            shrink_send_buffers(broker)
            with anyio.fail_after(120):
                while broker.edge.connections > 1:
                    with anyio.move_on_after(0.1):
                        await flood.send(http_frame(PING, b"8 bytes.") * 5000)
        await healthy_at_last(peer)


def shrink_send_buffers(broker: SmallBroker) -> None:
    """The kernel would hold megabytes before the broker itself has to."""
    for connection in broker.edge._listener.open_connections.all():
        assert connection._transport is not None
        connection._transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDBUF, 4096
        )


@pytest.mark.parametrize("path", [PRODUCE, CONSUME])
async def test_half_a_message_and_then_nothing_ends_the_stream(path: str) -> None:
    async with hasty_broker() as (broker, _):
        trailers = await trailers_of(broker, path, [CREATE[path]], frame(append(1))[:-1])
        assert code_of(trailers) == (13, Code.INNER)


@pytest.mark.parametrize("path", [PRODUCE, CONSUME])
async def test_a_half_close_inside_a_message_ends_the_stream(
    broker: SmallBroker, path: str
) -> None:
    async with raw(broker) as peer:
        call = RawCall(peer, path, [CREATE[path]])
        await call.open()
        await call.send(frame(append(1))[:-1], end=True)
        assert code_of(await call.until_ended()) == (3, Code.INVALID_ARGUMENT)


@pytest.mark.parametrize("path", [PRODUCE, CONSUME, STATE])
async def test_a_length_over_the_limit_is_refused_by_its_five_bytes(
    broker: SmallBroker, path: str
) -> None:
    async with raw(broker) as peer:
        call = RawCall(peer, path, [CREATE[path]] if path in CREATE else [])
        await call.open()
        await call.send(b"\x00\xff\xff\xff\xff")
        assert code_of(await call.until_ended()) == (9, Code.UNRECOVERABLE)


async def test_memory_does_not_grow_with_what_is_refused(broker: SmallBroker, peer: Peer) -> None:
    await healthy(peer)
    tracemalloc.start()
    try:
        for _ in range(5):
            stream = peer.produce()
            await stream.receive()
            with anyio.fail_after(60):
                await stream.send(append(2, b"x" * (17 << 20)))
                refused = scan_produce_response(await stream.receive())
            assert isinstance(refused, ProduceFailed)
            assert (refused.request_id, refused.code) == (2, Code.UNRECOVERABLE)
            stream.call.cancel()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The client's own copies are part of the peak: the request, and its 17 MiB payload.
    assert peak < 17 * 4 << 20


@pytest.mark.parametrize("path", [PRODUCE, CONSUME, STATE])
async def test_a_compressed_message_is_an_invalid_argument(broker: SmallBroker, path: str) -> None:
    async with raw(broker) as peer:
        call = RawCall(peer, path, [CREATE[path]] if path in CREATE else [])
        await call.open()
        await call.send(b"\x01\x00\x00\x00\x01x")
        assert code_of(await call.until_ended()) == (3, Code.INVALID_ARGUMENT)


@pytest.mark.parametrize("body", [b"", frame(b"") * 2, frame(b"\xff")], ids=["none", "two", "bad"])
async def test_a_unary_call_takes_exactly_one_good_message(
    broker: SmallBroker, body: bytes
) -> None:
    async with raw(broker) as peer:
        call = RawCall(peer, STATE, [])
        await call.open()
        await call.send(body, end=True)
        assert code_of(await call.until_ended()) == (3, Code.INVALID_ARGUMENT)


async def test_a_unary_call_without_a_request_is_not_waited_for() -> None:
    async with hasty_broker() as (broker, _):
        assert code_of(await trailers_of(broker, STATE, [])) == (13, Code.INNER)


HTTP_FRAMES = st.builds(
    http_frame,
    st.integers(0, 12),
    st.binary(max_size=200),
    st.integers(0, 255),
    st.sampled_from([0, 1, 1, 3, 5, 2, 2**31 - 1, 2**32 - 1]),
)
FUZZ = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@FUZZ
@given(chunks=st.lists(st.binary(max_size=300) | HTTP_FRAMES, max_size=8), greet=st.booleans())
async def test_random_bytes_on_the_socket_hurt_nobody_else(
    broker: SmallBroker, peer: Peer, chunks: list[bytes], greet: bool
) -> None:
    async with raw(broker) as noisy:
        await noisy.send((HELLO if greet else b"") + b"".join(chunks))
        await noisy.send(b"\xff" * 64)
    await healthy(peer)


@FUZZ
@given(
    bodies=st.lists(st.binary(max_size=200), max_size=6),
    framed=st.booleans(),
    path=st.sampled_from([PRODUCE, CONSUME, STATE]),
)
async def test_random_bytes_on_a_stream_end_it_and_nothing_else(
    broker: SmallBroker, peer: Peer, bodies: list[bytes], framed: bool, path: str
) -> None:
    async with raw(broker) as noisy:
        call = RawCall(noisy, path, [CREATE[path]] if path in CREATE else [])
        await call.open()
        data = b"".join(frame(body) if framed else body for body in bodies)
        await call.send(data, end=True)
        assert "grpc-status" in await call.until_ended()
    await healthy(peer)


async def test_a_consumer_that_never_says_what_it_wants_is_sent_away() -> None:
    async with hasty_broker() as (_, peer):
        stream = peer.consume()
        await stream.receive()
        with pytest.raises(Ended) as sent_away:
            await stream.receive()
        assert sent_away.value.error is not None
        assert Code(sent_away.value.error.code) is Code.INNER
        await healthy_at_last(peer)
