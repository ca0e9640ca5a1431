"""What all producers and readers of one client share: connections and assignments."""

import random
from collections.abc import Callable

from broker.client.lifetime import ClientLifetime
from broker.client.net.assignment_table import Location
from broker.client.net.assignments import Assignments
from broker.client.net.connection import Connection, Given
from broker.client.net.deadlines import Deadlines
from broker.client.net.leader_connection import LeaderConnection, split_servers
from broker.client.net.wait_report import Wait
from broker.client.net.waits import Waits, answer_of
from broker.model.ids import PChannelName
from broker.transport.tls import ClientTls


class Network:
    """One client's connections to the cluster at `server`: HOST:PORT, or several with commas.

    `spread` is the jitter that keeps many clients from retrying at the same moments. `tls`: how to
    connect to each server; None connects without TLS. `token`: sent with every call.
    """

    def __init__(
        self,
        server: str,
        *,
        cluster: str,
        deadlines: Deadlines,
        spread: random.Random,
        tls: ClientTls | None = None,
        token: str = "",
    ) -> None:
        self._cluster = cluster
        self._token = token
        self._tls = tls
        self.lifetime = ClientLifetime()
        self._connections: dict[str, Connection] = {}
        servers = split_servers(server)
        self._server = server
        self._servers = frozenset(servers)
        self.waits = Waits()
        self.on_dropped: Callable[[], None] = lambda: None
        """Called when a server refuses an append because the collection was dropped."""
        self.open_s = deadlines.open_s
        """Bounds the opening of any stream."""
        self.silence_s = deadlines.silence_s
        """Bounds the server's silence in a bounded read."""
        self.spread = spread
        # Not a seeded generator: with one seed two programs would share producer names, and the
        # server would take batches of one for repeats.
        self.names: random.Random = random.SystemRandom()
        self.coordinator = LeaderConnection(servers, self.connection, self.lifetime, spread)
        self.assignments = Assignments(self.coordinator, self.waits, deadlines, spread)

    def new_name(self) -> str:
        """A random name for a producer; no two producers must ever share one."""
        return f"{self.names.getrandbits(96):024x}"

    def connection(self, address: str) -> Connection:
        """The one connection to `address`."""
        found = self._connections.get(address)
        if found is None:
            found = Connection(
                address,
                cluster=self._cluster,
                lifetime=self.lifetime,
                given=None if address in self._servers else self._given(address),
                tls=self._tls,
                token=self._token,
            )
            self._connections[address] = found
        return found

    def begin_wait(self, owner: str, name: PChannelName, location: Location | None) -> Wait:
        """Begin to wait for the `owner` of a pchannel, which was at this location, if anywhere."""
        # One process may be server and node: the program then waits for one thing, not for two.
        if location is not None and location.address in self._servers:
            return self.waits.begin(answer_of(self._server))
        return self.waits.begin(owner, name)

    def _given(self, address: str) -> Given:
        return Given(self._server, lambda: self.assignments.names(address))

    def close(self) -> None:
        """Close all connections."""
        self.waits.close()
        for connection in self._connections.values():
            connection.close()
