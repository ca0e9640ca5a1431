"""The gRPC server of a process: one port, the services of its role, an orderly start and stop.

It starts and stops no actors: the caller starts the server after them and stops it before them.
"""

import socket
from collections.abc import Sequence

import anyio

from broker.core.pressure.limit_rules import LimitRules
from broker.edge.milvus.state_service import ServerState
from broker.edge.roles import Role, RoleParts, single_process
from broker.edge.rpc.access.gate import AccessGate
from broker.edge.rpc.audit.audit_trail import AuditTrail
from broker.edge.rpc.audit.audited_methods import check_audited
from broker.edge.rpc.edge_limits import EdgeLimits
from broker.edge.rpc.health_service import HealthService
from broker.edge.rpc.leader_gate import Gate
from broker.edge.rpc.middleware import Middleware
from broker.edge.rpc.peer_names import peer_identity
from broker.edge.rpc.proxies import Proxies
from broker.edge.rpc.request_metadata import Identity
from broker.edge.rpc.stream_meters import EdgeMeters
from broker.edge.tidemark.admin_service import ServerFacts
from broker.edge.tidemark.process_view import ProcessView
from broker.transport import Listener
from broker.transport.tls import ServerTls

DRAIN_SHARE = 0.7
HANG_UP_SHARE = 0.2
"""Shares of the time a stop has: for open calls to end, then for peers to read what is left."""
LOOK_S = 0.001
BACKLOG = 1024
"""Connections that may wait to be accepted: all clients connect at once after a restart."""


class EdgeServer:
    """Serves from `start` to `stop`. Create it on its event loop. `role`: all, by default."""

    def __init__(  # noqa: PLR0913 - the parts of a server
        self,
        facts: ServerFacts,
        proxies: Proxies,
        view: ProcessView,
        limits: EdgeLimits | None = None,
        role: Role | None = None,
        audit: AuditTrail | None = None,
        gate: Gate | None = None,
        access: AccessGate | None = None,
    ) -> None:
        limits = limits or EdgeLimits()
        self._state = ServerState.STARTING
        self._audit = audit = audit or AuditTrail()
        self._middleware = middleware = Middleware(
            Identity(facts.cluster, facts.node_id),
            limits,
            proxies.row_schemas,
            audit,
            gate,
            access,
        )
        parts = RoleParts(facts, proxies, self.state, view)
        services = (role or single_process)(middleware, parts)
        methods = [path for service in services for path in service.__mapping__()]
        health = HealthService(middleware, methods, self._reasons_against)
        check_audited([*methods, *health.__mapping__()])
        self._reasons_of_process = view.reasons_against
        told = audit.connection_refused
        self._listener = Listener([*services, health], limits.listener, told, middleware.unknown())
        each = self._listener.open_connections
        each.limit_each(peer_identity, middleware.quotas.turns_away)

    def state(self) -> ServerState:
        """The state that Health reports."""
        return self._state

    def _reasons_against(self) -> Sequence[str]:
        if self._state in (ServerState.STARTING, ServerState.STOPPING):
            return [self._state.value]
        return self._reasons_of_process()

    @property
    def port(self) -> int:
        """The port served; the system's choice if `start` was given 0."""
        return self._listener.port

    @property
    def meters(self) -> EdgeMeters:
        """Open streams by pchannel."""
        return self._middleware.meters

    @property
    def audit(self) -> AuditTrail:
        """What records its calls."""
        return self._audit

    @property
    def access(self) -> AccessGate:
        """What finds out who calls."""
        return self._middleware.access

    @property
    def connections(self) -> int:
        """How many connections are open now."""
        return self._listener.connections

    @property
    def open_calls(self) -> int:
        """How many calls are open now, streams included."""
        return self._middleware.open_calls

    def limit_connections(self, connections_max: int) -> None:
        """Refuse new connections beyond this number from now on."""
        self._listener.open_connections.connections_max = connections_max

    def limit_rates(self, rules: LimitRules) -> None:
        """Hold collections and identities to these limits from now on."""
        self._middleware.quotas.adopt(rules)

    async def start(self, host: str, port: int) -> None:
        """Serve on this address. Raises OSError when it cannot be bound."""
        await self._listener.listen(host, port, backlog=BACKLOG)
        self._state = ServerState.HEALTHY

    async def start_on(self, bound: socket.socket, tls: ServerTls | None = None) -> None:
        """Serve on a bound socket, which the server closes when it stops; with TLS if given."""
        await self._listener.listen(bound=bound, backlog=BACKLOG, tls=tls)
        self._state = ServerState.HEALTHY

    async def stop(self, *, deadline_s: float) -> None:
        """Refuse new calls, end the open ones with ON_SHUTDOWN, then close the connections.

        Returns within about `deadline_s`, whatever the peers do.
        """
        # New connections are refused before calls end, or clients would reconnect to this server.
        self._state = ServerState.STOPPING
        self._listener.stop_accepting()
        self._middleware.drain()
        with anyio.move_on_after(deadline_s * DRAIN_SHARE):
            await self._middleware.wait_until_idle()
            # Else a request that was read just now would be cut off instead of refused.
            while self._listener.has_calls:
                await anyio.sleep(LOOK_S)
                await self._middleware.wait_until_idle()
        with anyio.move_on_after(deadline_s * (1 - DRAIN_SHARE)):
            await self._listener.hang_up(deadline_s=deadline_s * HANG_UP_SHARE)
