"""What all producers and readers of one client share: connections and assignments."""

import random

from broker.client.lifetime import ClientLifetime
from broker.client.net.assignments import Assignments
from broker.client.net.connection import Connection


class Network:
    """One client's connections to the cluster at `server`.

    `open_s` bounds the opening of any stream, `silence_s` the server's silence in a bounded read;
    `spread` is the jitter that keeps many clients from retrying at the same moments.
    """

    def __init__(
        self, server: str, *, cluster: str, open_s: float, silence_s: float, spread: random.Random
    ) -> None:
        self._cluster = cluster
        self.lifetime = ClientLifetime()
        self._connections: dict[str, Connection] = {}
        self.open_s = open_s
        self.silence_s = silence_s
        self.spread = spread
        # Not a seeded generator: with one seed two programs would share producer names, and the
        # server would take batches of one for repeats.
        self.names: random.Random = random.SystemRandom()
        self.coordinator = self.connection(server)
        self.assignments = Assignments(self.coordinator, open_s=open_s, spread=spread)

    def new_name(self) -> str:
        """A random name for a producer; no two producers must ever share one."""
        return f"{self.names.getrandbits(96):024x}"

    def connection(self, address: str) -> Connection:
        """The one connection to `address`."""
        found = self._connections.get(address)
        if found is None:
            found = Connection(address, cluster=self._cluster, lifetime=self.lifetime)
            self._connections[address] = found
        return found

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
