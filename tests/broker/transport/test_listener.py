"""The listening socket: what it counts, how it ends. For its limits see tests/wire."""

import asyncio
import socket

import anyio
import pytest

from broker.transport import ClientBatchStream, ListenerLimits, ServerBatchStream, StreamGone
from tests.broker.transport.echo import HOST, call, serving

HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

SETTINGS_ACKNOWLEDGED = b"\x00\x00\x00\x04\x01\x00\x00\x00\x00"


async def test_a_thousand_streams_fit_on_one_connection() -> None:
    async with serving() as (listener, channel):
        async with anyio.create_task_group() as tasks:
            everybody = anyio.Event()
            arrived = 0

            async def one(number: int) -> None:
                nonlocal arrived
                async with call(channel) as stream:
                    await stream.write_batch([b"%d" % number])
                    assert await stream.read_batch() == [b"%d" % number]
                    arrived += 1
                    if arrived == 1000:
                        everybody.set()
                    await everybody.wait()

            for number in range(1000):
                tasks.start_soon(one, number)
        assert listener.connections == 1


async def test_connections_are_counted_and_turned_away_beyond_their_number() -> None:
    limits = ListenerLimits(connections_max=1)
    async with serving(limits=limits) as (listener, channel), call(channel) as stream:
        await stream.write_batch([b"in"])
        await stream.read_batch()
        reader, writer = await asyncio.open_connection(HOST, listener.port)
        with anyio.fail_after(60):
            try:
                assert await reader.read(100) == b""
            except ConnectionError:
                pass
        writer.close()
        assert (listener.connections, listener.open_connections.refused) == (1, 1)


async def test_hanging_up_frees_the_port_and_says_goodbye() -> None:
    async with serving() as (listener, _):
        port = listener.port
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(HELLO)
        await reader.readuntil(SETTINGS_ACKNOWLEDGED)
        await listener.hang_up()
        with anyio.fail_after(60):
            last = await reader.read()
        assert last[-17 + 3] == 7, "GOAWAY"
        writer.close()
        assert listener.connections == 0
        again = socket.socket()
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind((HOST, port))
        again.close()


async def test_hanging_up_does_not_wait_for_a_peer_that_does_not_read() -> None:
    stuck = anyio.Event()

    async def blast(stream: ServerBatchStream) -> None:
        await stream.read_batch()
        stuck.set()
        await stream.write_batch([b"x" * 1_000_000] * 30)

    async with serving(blast) as (listener, channel), call(channel) as stream:
        await stream.write_batch([b"go"])
        await stuck.wait()
        assert channel._protocol is not None
        channel._protocol.connection._transport.pause_reading()
        with anyio.fail_after(60):
            await listener.hang_up()
        assert listener.connections == 0
        channel._protocol.connection._transport.resume_reading()
        with pytest.raises(StreamGone):
            await read_on(stream)


async def read_on(stream: ClientBatchStream) -> None:
    while await stream.read_batch():
        pass


async def test_a_handler_that_fails_ends_its_call_alone() -> None:
    async def serve(stream: ServerBatchStream) -> None:
        if await stream.read_batch() == [b"fail"]:
            raise asyncio.CancelledError
        await stream.write_batch([b"fine"])

    async with serving(serve) as (_, channel), call(channel) as failing, call(channel) as fine:
        await failing.write_batch([b"fail"])
        await fine.write_batch([b"work"])
        assert await fine.read_batch() == [b"fine"]
