"""The edge as a whole: one port, the services of a role, an orderly start and stop.

Owns the listening socket and the server's state. It starts no actor and stops none: the caller
starts the edge last and stops it first.
"""

import socket

import anyio

from broker.edge.milvus.state_service import ServerState
from broker.edge.roles import Role, RoleParts, single_process
from broker.edge.rpc.edge_limits import EdgeLimits
from broker.edge.rpc.middleware import Middleware
from broker.edge.rpc.proxies import Proxies
from broker.edge.rpc.request_metadata import Identity
from broker.edge.rpc.stream_meters import EdgeMeters
from broker.edge.tidemark.admin_service import ServerFacts
from broker.edge.tidemark.process_view import ProcessView
from broker.transport import Listener

DRAIN_SHARE = 0.7
HANG_UP_SHARE = 0.2
"""Of the time a stop has: for calls to end by themselves, then for peers to read the rest."""
BACKLOG = 1024
"""Connections that may wait to be accepted: a whole crowd of clients comes back after a restart."""


class EdgeServer:
    """Serves until `stop`. Build it on the loop it runs on. `role`: by default everything."""

    def __init__(
        self,
        facts: ServerFacts,
        proxies: Proxies,
        view: ProcessView,
        limits: EdgeLimits | None = None,
        role: Role | None = None,
    ) -> None:
        limits = limits or EdgeLimits()
        self._state = ServerState.STARTING
        self._middleware = middleware = Middleware(Identity(facts.cluster, facts.node_id), limits)
        parts = RoleParts(facts, proxies, self.state, view)
        self._listener = Listener((role or single_process)(middleware, parts), limits.listener)

    def state(self) -> ServerState:
        """What callers are told."""
        return self._state

    @property
    def port(self) -> int:
        """The port served; the one the system chose when 0 was asked for."""
        return self._listener.port

    @property
    def meters(self) -> EdgeMeters:
        """Who is connected, by pchannel."""
        return self._middleware.meters

    @property
    def connections(self) -> int:
        """Connections now."""
        return self._listener.connections

    @property
    def open_calls(self) -> int:
        """Calls now, streams included."""
        return self._middleware.open_calls

    async def start(self, host: str, port: int) -> None:
        """Serve on this address. Raises OSError when it cannot be had."""
        await self._listener.start(host, port, backlog=BACKLOG)
        self._state = ServerState.HEALTHY

    async def start_on(self, bound: socket.socket) -> None:
        """Serve on a socket that is bound already; it belongs to the server from now on."""
        await self._listener.start(sock=bound, backlog=BACKLOG)
        self._state = ServerState.HEALTHY

    async def stop(self, *, deadline_s: float) -> None:
        """Take no more calls, let what is in hand end with ON_SHUTDOWN, then hang up.

        Back within about `deadline_s`, whatever the peers do.
        """
        self._state = ServerState.STOPPING
        self._listener.stop_accepting()
        self._middleware.drain()
        with anyio.move_on_after(deadline_s * DRAIN_SHARE):
            await self._middleware.wait_until_idle()
        with anyio.move_on_after(deadline_s * (1 - DRAIN_SHARE)):
            await self._listener.hang_up(deadline_s=deadline_s * HANG_UP_SHARE)
