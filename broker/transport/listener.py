# ruff: noqa: SLF001 - this package is the one that may know grpclib's inside (see its docstring)
"""A gRPC listening socket that holds its peers to limits; healthy idle connections live for ever.

One connection can make this process hold at most its unread receive window, one HTTP/2 frame, one
header block, the headers and unfinished messages of open calls (`held_bytes`), and
`unsent_bytes_max` of answers it does not read. A peer that causes work without sending messages, or
whose calls are refused, is read slowly (`frame_costs`). One that is silent inside the handshake, a
frame or a header block for `idle_peer_s` is disconnected; one timer a connection looks for
progress, so it takes at most twice that time.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import grpclib.server
from grpclib.config import Configuration
from grpclib.const import Handler
from grpclib.protocol import AbstractHandler, Connection, EventsProcessor, H2Protocol
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RemoteSettingsChanged, RequestReceived
from h2.exceptions import H2Error
from h2.settings import SettingCodes, Settings
from hpack.exceptions import HPACKError
from hyperframe.exceptions import HyperframeError

from broker.transport.codec import MessageCodec, RawDetailsCodec
from broker.transport.frame_costs import HEADER_BYTES_A_UNIT
from broker.transport.held_bytes import LONG_BYTES, HeldHeaders, UnfinishedMessages
from broker.transport.methods import UNIMPLEMENTED, Methods
from broker.transport.open_connections import OpenConnections
from broker.transport.peer_pace import PeerPace
from broker.transport.peer_settings import PeerSettings
from broker.transport.timeouts import with_least_timeout
from broker.transport.tls import ServerTls
from broker.transport.tls_server import HandshakeLimits, Refused, TlsServer
from broker.transport.untraced import untrace
from broker.transport.whole_frames import WholeFrames

if TYPE_CHECKING:
    from grpclib._typing import IServable

HTTP_FRAME_BYTES_MAX = 256 * 1024
"""Peers that use it send fewer, larger DATA frames; grpc-go stays at 16 KiB."""
HEADER_BLOCK_BYTES_MAX = 16 * 1024
"""As sent, and as decoded: a token and a few names take less. To check 64 KiB takes h2 20 ms."""
WRITE_BUFFER_BYTES_HIGH = 128 * 1024
"""Above this the streams of a connection wait; below a quarter of it they continue."""
HANG_UP_S = 0.5
CLOSE_S = 5.0
"""How long a closed connection may take to read the last bytes before it is reset."""
SERVER_PING_S, SERVER_PING_TIMEOUT_S = 60.0, 10.0
"""Finds peers that vanished. Pings of clients are always answered, at any rate."""


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """`streams_max` and the windows hold for each connection; bytes and seconds."""

    connections_max: int = 4096
    handshakes_max: int = 512
    """Handshakes of TLS in progress; a connection counts once it has ended."""
    streams_max: int = 16384
    """Open gRPC streams of one connection; more are refused."""
    idle_peer_s: float = 15.0
    stream_window_bytes: int = 2 * 1024 * 1024
    """Flow-control window of one HTTP/2 stream."""
    connection_window_bytes: int = 16 * 1024 * 1024
    """Flow-control window of one HTTP/2 connection."""
    unsent_bytes_max: int = 16 * 1024 * 1024
    """Bytes queued for one connection; writers wait beyond this."""


class Listener(grpclib.server.Server):
    """A gRPC server: `listen(host, port)`, later `stop_accepting()` and `hang_up()`."""

    def __init__(
        self,
        services: "Sequence[IServable]",
        limits: ListenerLimits,
        refused: Refused = lambda _, __: None,
        unknown: Handler = UNIMPLEMENTED,
    ) -> None:
        """`refused` is called with HOST:PORT of a peer that is not let in, and why.

        `unknown`: what answers calls of methods that no service has.
        """
        super().__init__(
            services,
            codec=MessageCodec(),
            status_details_codec=RawDetailsCodec(),
            config=Configuration(
                _keepalive_time=SERVER_PING_S,
                _keepalive_timeout=SERVER_PING_TIMEOUT_S,
                # Idle connections are pinged too: nothing else finds a peer that vanished. grpclib
                # leaves a ping out unless the last one is older than the interval below.
                _keepalive_permit_without_calls=True,
                _http2_max_pings_without_data=0,
                _http2_min_sent_ping_interval_without_data=SERVER_PING_TIMEOUT_S,
                http2_connection_window_size=limits.connection_window_bytes,
                http2_stream_window_size=limits.stream_window_bytes,
            ),
        )
        # As grpclib's, but headers of peers are checked: grpclib trusts them.
        self._h2_config = H2Configuration(
            client_side=False,
            header_encoding="ascii",
            validate_inbound_headers=True,
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
        self._mapping = Methods(self._mapping, unknown)
        self._limits = limits
        self._tell_refused = refused
        self.open_connections = OpenConnections[PeerConnection](limits.connections_max, refused)

    @property
    def port(self) -> int:
        """The port listened on; the system's choice if 0 was given."""
        assert self._server is not None, "not started"
        sockets = cast(asyncio.Server, self._server).sockets
        return int(sockets[0].getsockname()[1])

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self.open_connections)

    async def listen(
        self,
        host: str | None = None,
        port: int | None = None,
        *,
        bound: socket.socket | None = None,
        backlog: int = 100,
        tls: ServerTls | None = None,
    ) -> None:
        """Serve on an address, or on a bound socket; with TLS if it is given.

        Raises OSError when the address cannot be bound.
        """
        server: asyncio.AbstractServer | TlsServer
        if tls is None:
            where: dict[str, Any] = (
                {"host": host, "port": port} if bound is None else {"sock": bound}
            )
            server = await self._loop.create_server(
                self._protocol_factory, **where, backlog=backlog
            )
        else:
            listening = bound or socket.create_server((host or "", port or 0), backlog=backlog)
            limits = HandshakeLimits(self._limits.idle_peer_s, CLOSE_S, self._limits.handshakes_max)
            made, told = self._protocol_factory, self._tell_refused
            server = TlsServer(listening, made, tls, limits, told)
        self._server = cast(asyncio.AbstractServer, server)
        self._server_closed_fut = self._loop.create_future()

    def stop_accepting(self) -> None:
        """Release the port; open connections stay."""
        self.open_connections.accepting = False
        if self._server is not None:
            self._server.close()

    @property
    def has_calls(self) -> bool:
        """Whether a request was read and not answered yet; its handler may not have begun."""
        return any(it.has_calls for it in self.open_connections.all())

    async def hang_up(self, *, deadline_s: float = HANG_UP_S) -> None:
        """Close every connection and cancel the calls on it.

        Peers have `deadline_s` to read what was sent, then their connections are reset.
        """
        self.stop_accepting()
        for connection in self.open_connections.all():
            connection.hang_up("the server stopped")
        self.close()
        try:
            async with asyncio.timeout(deadline_s):
                await self.open_connections.wait_until_gone()
        except TimeoutError:
            for connection in self.open_connections.all():
                connection.abort()
        await self.wait_closed()

    def new_handler(self) -> AbstractHandler:
        """What answers the calls of a connection; grpclib keeps it until that is lost."""
        return super()._protocol_factory().handler

    def _protocol_factory(self) -> H2Protocol:
        return PeerConnection(self, self._limits, self._config, self._h2_config)


class PeerConnection(H2Protocol):
    """One accepted connection: grpclib's protocol with limits."""

    def __init__(
        self,
        listener: Listener,
        limits: ListenerLimits,
        config: Configuration,
        h2_config: H2Configuration,
    ) -> None:
        # Its handler comes with the connection, which may be refused or fail in the handshake.
        super().__init__(cast(AbstractHandler, None), config, h2_config)
        self._listener = listener
        self._limits = limits
        self._transport: asyncio.Transport | None = None
        self._handshaken = False
        self._completed = 0
        # No count equals it: the first look always finds progress.
        self._completed_before = -1
        self._look: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As grpclib's, with our settings in the first frame and a bounded write buffer."""
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "abort")
        wire = cast(asyncio.Transport, transport)
        # Nothing is set up for a refused connection; the callbacks below find `_transport` None.
        if not self._listener.open_connections.admit(self, wire):
            return
        self._transport = wire
        self.handler = self._listener.new_handler()
        wire.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_HIGH)
        h2_connection = H2Connection(config=self.h2_config)
        # Replaced before the first frame, so that no peer ever acts on h2's defaults.
        h2_connection.local_settings = self._settings()
        h2_connection.remote_settings = PeerSettings(client=True)
        untrace(h2_connection)
        # h2 copied it from the settings that were replaced.
        h2_connection.max_inbound_frame_size = HTTP_FRAME_BYTES_MAX
        h2_connection.decoder.max_header_list_size = HEADER_BLOCK_BYTES_MAX
        h2_connection.initiate_connection()
        # No setting changes the connection's window: it begins at 65,535 (RFC 9113, 6.9.2).
        h2_connection.increment_flow_control_window(self._limits.connection_window_bytes - 65535)
        self.connection = BoundedConnection(h2_connection, wire, config=self.config)
        self.connection.flush()
        self.connection.initialize()
        self.processor = EventsProcessor(self.handler, self.connection)
        streams = self.processor.streams
        self._held_headers = HeldHeaders(streams)
        self._pace = pace = PeerPace(wire, self.data_received)
        self.connection.pay = pace.pay
        self.connection.unfinished = UnfinishedMessages()
        self._frames = WholeFrames(
            h2_connection, streams, self._feed, HTTP_FRAME_BYTES_MAX, pace.pay
        )
        self._look_later()

    def _settings(self) -> Settings:
        return Settings(
            client=False,
            initial_values={
                SettingCodes.MAX_CONCURRENT_STREAMS: self._limits.streams_max,
                SettingCodes.INITIAL_WINDOW_SIZE: self._limits.stream_window_bytes,
                SettingCodes.MAX_FRAME_SIZE: HTTP_FRAME_BYTES_MAX,
                SettingCodes.MAX_HEADER_LIST_SIZE: HEADER_BLOCK_BYTES_MAX,
            },
        )

    def data_received(self, data: bytes) -> None:
        """Process bytes; whatever a peer sends, at worst its own connection ends."""
        # Bytes may still arrive between a close and `connection_lost`.
        if self._transport is None or self._transport.is_closing():
            return
        if self._pace.keeps(data):
            return
        if self._frames.receive(data):
            self._completed += 1
        if self._frames.held is not None:
            self._pace.pause(self._frames.take_held())
        if not self._transport.is_closing() and self._holds_too_much():
            self._cut("over a limit")
            self._transport.abort()

    def _feed(self, data: bytes) -> bool:
        """Pass h2 what the fast path left; returns whether the connection is still open."""
        assert self._transport is not None
        try:
            events = self.connection.feed(data)
        except (H2Error, HPACKError, HyperframeError, ValueError) as error:
            self._cut(f"protocol error: {error}")
            return False
        for event in events:
            self._completed += 1
            if isinstance(event, RemoteSettingsChanged):
                self._handshaken = True
            elif isinstance(event, RequestReceived):
                if not self._takes_headers(event):
                    return False
                event.headers = cast(Any, with_least_timeout(cast(Any, event.headers)))
            # Unknown frames must be ignored (RFC 9113, 5.5); grpclib would raise.
            if event.__class__ in getattr(self.processor, "processors", ()):
                self.processor.process(event)
        if self._transport.is_closing():
            return False
        self.connection.flush()
        return True

    def _takes_headers(self, request: RequestReceived) -> bool:
        """Pay for decoding long headers; hangs up when those of all open calls are too large."""
        headers = cast(Sequence[tuple[str, str]], request.headers)
        size = sum([len(name) + len(text) for name, text in headers])
        if size < LONG_BYTES:
            return True
        self._pace.pay(size // HEADER_BYTES_A_UNIT)
        if self._held_headers.add(request.stream_id, size):
            return True
        self.hang_up("the headers of its open calls are too large")
        return False

    def _holds_too_much(self) -> bool:
        """Whether a limit is exceeded; a frame that is too large is refused at its header."""
        assert self._transport is not None
        if self._transport.get_write_buffer_size() > self._limits.unsent_bytes_max:
            return True
        incoming = self.connection._connection.incoming_buffer
        if not (incoming._data or incoming._headers_buffer):
            return False  # the usual case: nothing is unfinished
        # h2 refuses a large frame only once it has arrived whole; its header has 9 bytes.
        announced = int.from_bytes(incoming._data[:3], "big") if len(incoming._data) >= 9 else 0
        headers = sum([len(frame.data) for frame in incoming._headers_buffer])
        return announced > HTTP_FRAME_BYTES_MAX or headers > HEADER_BLOCK_BYTES_MAX

    def _look_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._look = loop.call_later(self._limits.idle_peer_s, self._look_for_progress)

    def _look_for_progress(self) -> None:
        assert self._transport is not None
        incoming = self.connection._connection.incoming_buffer
        # Progress is a whole frame: a peer that sends a byte now and then is cut as well.
        unfinished = bool(self._frames.unfinished or incoming._data or incoming._headers_buffer)
        if not self._handshaken or (unfinished and self._completed == self._completed_before):
            self._cut("no progress")
            self._transport.abort()
            return
        self._completed_before = self._completed
        self._look_later()

    def _cut(self, reason: str) -> None:
        """Send GOAWAY if the peer still reads, and close the connection without waiting for it."""
        assert self._transport is not None
        self.connection.flush()
        self.processor.close(reason)

    @property
    def has_calls(self) -> bool:
        """Whether a request was read and not answered yet."""
        return bool(self.processor.streams)

    def hang_up(self, reason: str) -> None:
        """Send GOAWAY, then close."""
        if self._transport is not None and not self._transport.is_closing():
            self.connection._connection.close_connection()
            self._cut(reason)

    def abort(self) -> None:
        """Reset the connection; unread bytes are lost."""
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        """End every call on the lost socket and forget it."""
        self._listener.open_connections.forget(self)
        if self._look is not None:
            self._look.cancel()
        if self._transport is not None:
            self._pace.stop()
            super().connection_lost(exc)


class BoundedConnection(Connection):
    """grpclib's connection, whose close waits a bounded time for unsent bytes to be read."""

    pay: Callable[[int], bool]
    """See PeerPace."""
    unfinished: UnfinishedMessages

    def close(self) -> None:
        """Close, and reset the connection if the peer has not read the rest within `CLOSE_S`."""
        # Kept before the call below: grpclib deletes its reference to the transport.
        transport: asyncio.Transport | None = getattr(self, "_transport", None)
        super().close()
        if transport is not None:
            asyncio.get_running_loop().call_later(CLOSE_S, transport.abort)
