"""What our channel offers a server in the first bytes of a connection."""

import asyncio
import errno
import socket

import pytest
from grpclib.protocol import H2Protocol
from h2.settings import SettingCodes

from broker.transport import NOT_READ, Channel, MessageCodec, StreamGone
from broker.transport.dialling import UNACKNOWLEDGED_S, NotConnected, _limit_unacknowledged
from broker.transport.listener import HTTP_FRAME_BYTES_MAX
from tests.broker.transport.echo import HOST, call, serving
from tests.broker.transport.test_streams import collected
from tests.hanging_address import hanging_address
from tests.missing_part import missing_part


async def test_a_server_may_send_frames_as_large_as_it_takes_itself() -> None:
    async with serving() as (listener, _):
        channel = Channel(HOST, listener.port, codec=MessageCodec())
        try:
            async with call(channel) as stream:
                body = bytes(500_000)
                await stream.write_batch([body])
                assert await collected(stream, 1) == [body]
                (served,) = listener.open_connections.all()
                sent = served.connection._connection.remote_settings
                assert sent[SettingCodes.MAX_FRAME_SIZE] == HTTP_FRAME_BYTES_MAX
        finally:
            channel.close()


async def test_a_call_that_goaway_excludes_ends_as_one_that_did_nothing() -> None:
    async with serving() as (listener, _):
        listener.open_connections.limit_each(lambda _: "ann", lambda name, _: f"not {name}")
        channel = Channel(HOST, listener.port, codec=MessageCodec())
        try:
            with pytest.raises(StreamGone, match=NOT_READ):
                async with call(channel) as stream:
                    await stream.read_batch()
            assert channel.refused == "not ann"
        finally:
            channel.close()


async def test_a_host_that_acknowledges_nothing_is_given_up_by_the_kernel() -> None:
    if not hasattr(socket, "TCP_USER_TIMEOUT"):
        missing_part("this system has no TCP_USER_TIMEOUT")
    async with serving() as (listener, _):
        channel = Channel(HOST, listener.port, codec=MessageCodec())
        try:
            async with call(channel) as stream:
                await stream.write_batch([b"x"])
                assert channel._protocol is not None
                transport = channel._protocol.connection._transport
                wire = transport.get_extra_info("socket")
                limit_ms = wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
                assert limit_ms == UNACKNOWLEDGED_S * 1000
        finally:
            channel.close()


class ClosedTransport(asyncio.Transport):
    """Of a connection that was lost before it was set up."""

    def get_extra_info(self, name: str, default: object = None) -> object:
        assert name == "socket"
        closed = socket.socket()
        closed.close()
        return closed


def test_a_connection_that_is_lost_before_it_is_set_up_raises_nothing_by_that() -> None:
    _limit_unacknowledged(ClosedTransport())


class LostAtOnce(Channel):
    """Its peer leaves between the handshake and the first call."""

    async def _create_connection(self) -> H2Protocol:
        protocol = await super()._create_connection()
        assert protocol.connection._transport is not None
        protocol.connection._transport.abort()
        protocol.connection_lost(None)
        return protocol


async def test_a_connection_that_is_lost_before_its_first_call_is_told_as_such() -> None:
    async with serving() as (listener, _):
        channel = LostAtOnce(HOST, listener.port, codec=MessageCodec())
        try:
            with pytest.raises(ConnectionResetError, match="at once"):
                async with call(channel) as stream:
                    await stream.write_batch([b"x"])
        finally:
            channel.close()


async def test_a_peer_that_was_never_reached_gets_a_bounded_time() -> None:
    with hanging_address() as (host, port):
        channel = Channel(host, port, codec=MessageCodec())
        channel.dial_s_max = 0.05
        try:
            for _ in range(2):
                with pytest.raises(NotConnected, match=r"no answer .* for 0\.05 s"):
                    async with call(channel):
                        pass
            assert channel.failing_s() >= 0.1
            assert not channel.reached
        finally:
            channel.close()


async def test_a_connection_ends_the_count_of_failures() -> None:
    async with serving() as (listener, _):
        channel = Channel(HOST, listener.port, codec=MessageCodec())
        channel.dial_s_max = 30.0
        try:
            async with call(channel) as stream:
                await stream.write_batch([b"x"])
            assert channel.reached
            assert channel.failing_s() == 0.0
        finally:
            channel.close()


class NoRoute(Channel):
    """The network does not reach its peer."""

    async def _create_connection(self) -> H2Protocol:
        raise OSError(errno.EHOSTUNREACH, "No route to host")


@pytest.mark.parametrize("kind", [LostAtOnce, NoRoute])
async def test_a_connection_that_was_never_there_is_told_as_such(kind: type[Channel]) -> None:
    async with serving() as (listener, _):
        channel = kind(HOST, listener.port, codec=MessageCodec())
        try:
            with pytest.raises(NotConnected, match=r"at once|No route"):
                async with call(channel) as stream:
                    await stream.write_batch([b"x"])
        finally:
            channel.close()
