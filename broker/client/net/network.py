"""What all producers and readers of one client share: connections by address, and the assignments.

It never opens a stream itself. Next: broker/client/append/producer.py
"""

import random

from broker.client.lifetime import ClientLifetime
from broker.client.net.assignments import Assignments
from broker.client.net.connection import Connection


class Network:
    """One client's view of the cluster it was told the address of.

    `open_s` bounds the opening of any stream, `give_up_s` the silence in a bounded read; `spread`
    keeps many clients from retrying in step.
    """

    def __init__(
        self, server: str, *, cluster: str, open_s: float, give_up_s: float, spread: random.Random
    ) -> None:
        self._cluster = cluster
        self.lifetime = ClientLifetime()
        self._connections: dict[str, Connection] = {}
        self.open_s = open_s
        self.give_up_s = give_up_s
        self.spread = spread
        self.names: random.Random = random.SystemRandom()
        self.coordinator = self.connection(server)
        self.assignments = Assignments(self.coordinator, open_s=open_s, spread=spread)

    def new_name(self) -> str:
        """A name that no producer ever had."""
        return f"{self.names.getrandbits(96):024x}"

    def connection(self, address: str) -> Connection:
        """The one connection to `address`."""
        found = self._connections.get(address)
        if found is None:
            found = Connection(address, cluster=self._cluster, lifetime=self.lifetime)
            self._connections[address] = found
        return found

    def close(self) -> None:
        """Cut all connections."""
        for connection in self._connections.values():
            connection.close()
