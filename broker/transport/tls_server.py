"""Accepts connections with TLS; handshakes in progress are bounded in number and in time.

A peer inside a handshake holds a file and up to 300 KB. When `in_progress_max` are there, the next
connection waits in the system's queue until one ends, or takes the place of the oldest one once
that has lasted `yield_s`: many peers may connect at once, and silent ones keep nobody out.

Why not `create_server(ssl=...)`: it begins any number of handshakes, and it has one context for all
of them. That context keeps the sessions of earlier clients, who would resume them after their
authority was replaced.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from broker.transport.tls import ServerTls

ACCEPTS_AT_ONCE = 32
"""Between two looks at the other sockets of the process."""
RETRY_S = 1.0
"""Pause after the system had no file for a connection."""

logger = logging.getLogger("tidemark.tls")

Refused = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class HandshakeLimits:
    """`handshake_s` and `shutdown_s`: how long a peer may take to begin and to end TLS."""

    handshake_s: float
    shutdown_s: float
    in_progress_max: int = 512
    yield_s: float = 1.0
    """A handshake that takes longer may be ended for another one."""


class TlsServer:
    """Accepts on a listening socket until `close`, which also ends the handshakes in progress.

    `made` gives the protocol of each connection; its `connection_made` is called once the handshake
    is over, and nothing is called when it fails. Has the part of asyncio's Server that is used.
    """

    def __init__(
        self,
        listening: socket.socket,
        made: Callable[[], asyncio.BaseProtocol],
        tls: ServerTls,
        limits: HandshakeLimits,
        refused: Refused = lambda _, __: None,
    ) -> None:
        """`refused` is called for handshakes that fail, with HOST:PORT of the peer and why."""
        self._refused = refused
        self._loop = asyncio.get_running_loop()
        self._socket: socket.socket | None = listening
        self._made = made
        self._tls = tls
        self._limits = limits
        # With the time of its begin, the oldest first.
        self._in_progress: dict[asyncio.Task[None], float] = {}
        self._paused: asyncio.TimerHandle | None = None
        listening.setblocking(False)
        self._loop.add_reader(listening.fileno(), self._accept)

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        """The listening socket; none after `close`."""
        return () if self._socket is None else (self._socket,)

    def close(self) -> None:
        """Release the port and end handshakes in progress; other connections stay."""
        if self._socket is None:
            return
        if self._paused is None:
            self._loop.remove_reader(self._socket.fileno())
        else:
            self._paused.cancel()
        self._socket.close()
        self._socket = None
        for handshake in self._in_progress:
            handshake.cancel()

    async def wait_closed(self) -> None:
        """Wait until no handshake is in progress."""
        if self._in_progress:
            await asyncio.wait(list(self._in_progress))

    def _accept(self) -> None:
        assert self._socket is not None
        for _ in range(ACCEPTS_AT_ONCE):
            if not self._has_room():
                return
            try:
                peer, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                logger.error("cannot accept connections for %g s: %s", RETRY_S, error)
                self._pause_until(self._loop.time() + RETRY_S)
                return
            # Not a task of a group: it belongs to this server, which ends it in `close`.
            handshake = self._loop.create_task(self._shake(peer, address))
            self._in_progress[handshake] = self._loop.time()
            handshake.add_done_callback(partial(self._ended, peer))

    def _has_room(self) -> bool:
        """Whether one more handshake may begin; else accepts nothing until that may change."""
        if len(self._in_progress) < self._limits.in_progress_max:
            return True
        oldest, began_s = next(iter(self._in_progress.items()))
        if self._loop.time() - began_s < self._limits.yield_s:
            self._pause_until(began_s + self._limits.yield_s)
            return False
        del self._in_progress[oldest]
        oldest.cancel()
        return True

    def _pause_until(self, moment_s: float) -> None:
        if self._socket is not None and self._paused is None:
            self._loop.remove_reader(self._socket.fileno())
            self._paused = self._loop.call_at(moment_s, self._resume)

    def _resume(self) -> None:
        if self._socket is not None and self._paused is not None:
            self._paused.cancel()
            self._paused = None
            self._loop.add_reader(self._socket.fileno(), self._accept)

    async def _shake(self, peer: socket.socket, address: tuple[object, ...]) -> None:
        peer.setblocking(False)
        try:
            await self._loop.connect_accepted_socket(
                self._made,
                peer,
                ssl=self._tls.context(),
                ssl_handshake_timeout=self._limits.handshake_s,
                ssl_shutdown_timeout=self._limits.shutdown_s,
            )
        except OSError as error:
            peer.close()  # the context has logged why
            if isinstance(error, ssl.SSLError):
                bad = isinstance(error, ssl.SSLCertVerificationError)
                outcome = "BAD_CERTIFICATE" if bad else "BAD_HANDSHAKE"
                self._refused(f"{address[0]}:{address[1]}", outcome)

    def _ended(self, peer: socket.socket, handshake: asyncio.Task[None]) -> None:
        self._in_progress.pop(handshake, None)
        if handshake.cancelled():
            peer.close()  # which may have been all there was: a task is cancelled before it begins
        if len(self._in_progress) < self._limits.in_progress_max:
            self._resume()
