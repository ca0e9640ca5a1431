# ruff: noqa: SLF001 - this package is the one that may know grpclib's inside (see its docstring)
"""A gRPC channel that accepts large frames and reads DATA frames on the fast path."""

import asyncio
import socket
import ssl
from contextlib import suppress
from typing import Final, cast

import grpclib.client
from grpclib.protocol import H2Protocol
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated
from h2.settings import SettingCodes

from broker.transport.listener import HTTP_FRAME_BYTES_MAX
from broker.transport.open_connections import TEXT_BYTES_MAX
from broker.transport.tls import ClientTls
from broker.transport.untraced import untrace
from broker.transport.whole_frames import WholeFrames

NOT_READ = "the server stopped before it read this call, so it did nothing"
"""The reason of a StreamTerminatedError for a call that GOAWAY excludes (RFC 9113, 6.8)."""
UNACKNOWLEDGED_S: Final = 10.0
"""A host has gone that acknowledges nothing of what was sent for so long, or has no room for it.
TCP alone would go on for minutes. Of a process that is busy or stopped the kernel acknowledges."""
FORGET_S = 5.0
"""Without an attempt for so long, earlier failures say nothing about the next one."""


PLAIN_REFUSED = (
    "it ended the connection before it answered: it went away, or takes no more connections; if it"
    " speaks TLS, connect with TLS: set tls_ca (for etcd, meta_tls_ca)"
)


class NotConnected(OSError):
    """There was no connection: none within `dial_s_max`, or the attempt failed otherwise."""


class LostAtOnce(NotConnected, ConnectionResetError):
    """The connection was lost before its first use."""


class Channel(grpclib.client.Channel):
    """grpclib's channel, with the connections of this package."""

    dial_s_max: float | None = None
    """How long an attempt to connect may take as long as the peer was never reached."""
    reached = False
    """Whether there ever was a connection."""
    tls: ClientTls | None = None
    """None connects without TLS. Set it by `secure`."""
    refused = ""
    """What is wrong, when the newest connection ended before the server answered any call.

    A server of TLS 1.3 refuses a client's certificate when the client takes the connection for
    open already, and does not say so.
    """
    _failing_since_s: float | None = None
    _tried_s = 0.0

    def secure(self, tls: ClientTls | None) -> None:
        """Connect with TLS from now on, if it is given."""
        self.tls = tls
        self._scheme = "http" if tls is None else "https"

    async def __connect__(self) -> H2Protocol:
        """Connect. Raises ConnectionResetError when the connection is lost before its first use.

        grpclib returns such a connection, and its first call raises AttributeError. Raises
        NotConnected after `dial_s_max`.
        """
        if self._connected:
            return await super().__connect__()
        began_s = self._loop.time()
        if self._failing_since_s is None or began_s - self._tried_s > FORGET_S:
            self._failing_since_s = began_s
        try:
            protocol = await self._dial()
        finally:
            self._tried_s = self._loop.time()
        self.reached, self._failing_since_s = True, None
        return protocol

    def failing_s(self) -> float:
        """Since when every attempt to connect has failed, in seconds; 0 after a success."""
        return 0.0 if self._failing_since_s is None else self._loop.time() - self._failing_since_s

    def drop(self) -> None:
        """Close at once; for who waits for no answer and has nothing left to send.

        `close` with TLS waits for the peer's last word, and leaves the socket open when the event
        loop ends before it comes.
        """
        connection = self._protocol
        if isinstance(connection, DialledConnection):
            connection.drop()
        self.close()

    async def _dial(self) -> H2Protocol:
        limit_s = None if self.reached else self.dial_s_max
        # For each connection anew: its files may have changed.
        self._ssl = None if self.tls is None else self.tls.context()
        self.refused = ""
        try:
            async with asyncio.timeout(limit_s) as dialling:
                protocol = await super().__connect__()
        except TimeoutError:
            if not dialling.expired():
                raise  # the operating system's own
            raise NotConnected(f"no answer to a connection attempt for {limit_s:g} s") from None
        except (ssl.SSLError, ConnectionRefusedError):
            raise  # these say more
        except OSError as error:
            raise NotConnected(*error.args) from error
        if not self._connected:
            raise LostAtOnce(f"{self._host}:{self._port} ended the connection at once")
        return protocol

    def _protocol_factory(self) -> H2Protocol:
        plain = super()._protocol_factory()
        return DialledConnection(self, plain)


class DialledConnection(H2Protocol):
    """One connection to a server: grpclib's protocol with other HTTP/2 settings."""

    def __init__(self, channel: Channel, plain: H2Protocol) -> None:
        super().__init__(plain.handler, plain.config, plain.h2_config)
        self._channel = channel
        self._heard = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As grpclib's; also announces the largest frame accepted."""
        _limit_unacknowledged(transport)
        super().connection_made(transport)
        h2_connection = self.connection._connection
        # grpclib has no setting for the frame size, so a second SETTINGS frame follows its first.
        untrace(h2_connection)
        h2_connection.update_settings({SettingCodes.MAX_FRAME_SIZE: HTTP_FRAME_BYTES_MAX})
        self.connection.flush()
        # Before grpclib ends all calls with one reason.
        self.processor.processors[ConnectionTerminated] = self._terminated
        streams = self.processor.streams
        self._frames = WholeFrames(h2_connection, streams, self._to_h2, HTTP_FRAME_BYTES_MAX)
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """As grpclib's, with the fast path for DATA frames."""
        self._heard = True
        self._frames.receive(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        """As grpclib's; also notes that the server said nothing."""
        if not self._heard:
            tls = self._channel.tls
            self._channel.refused = PLAIN_REFUSED if tls is None else tls.why_refused()
        super().connection_lost(exc)

    def drop(self) -> None:
        """Close the socket in the next turn of the event loop."""
        # Not where it closes already: asyncio's TLS transport fails then.
        if not self._transport.is_closing():
            self._transport.abort()

    def _terminated(self, event: ConnectionTerminated) -> None:
        """End first those calls that the server has certainly not read."""
        if event.error_code == ErrorCodes.ENHANCE_YOUR_CALM and event.additional_data:
            # It counts connections, and says which limit is reached.
            self._channel.refused = event.additional_data[:TEXT_BYTES_MAX].decode(
                "ascii", "replace"
            )
        last = event.last_stream_id
        streams = self.processor.streams
        not_read = {it: streams[it] for it in streams if last is not None and it > last}
        for number, stream in not_read.items():
            del streams[number]
            stream.__terminated__(NOT_READ)
        self.processor.process_connection_terminated(event)
        # Their calls release them, and grpclib expects them there.
        streams.update(not_read)

    def _to_h2(self, data: bytes) -> bool:
        super().data_received(data)
        return not self._transport.is_closing()


def _limit_unacknowledged(transport: asyncio.BaseTransport) -> None:
    """Have the kernel end the connection after `UNACKNOWLEDGED_S` (RFC 5482), where it can."""
    option = getattr(socket, "TCP_USER_TIMEOUT", None)  # Linux has it
    if option is not None:
        wire = transport.get_extra_info("socket")
        with suppress(OSError):  # the peer is gone already, and `connection_lost` comes next
            wire.setsockopt(socket.IPPROTO_TCP, option, round(UNACKNOWLEDGED_S * 1000))
