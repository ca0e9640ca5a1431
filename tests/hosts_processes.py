"""A cluster of several hosts for tests: coordinators and nodes with data folders of their own."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio

from broker.client import Client, Deadlines, connect
from broker.client.cluster import Health
from broker.client.errors import TidemarkError
from tests.broker_process import free_port
from tests.local_etcd import EtcdServer
from tests.roles_processes import GUARD_S, RoleProcess

PATIENT = Deadlines(connect_s=GUARD_S)


class Hosts:
    """Two coordinators and nodes; each is one host's."""

    def __init__(self, root: Path, etcd: EtcdServer, kafka: str, **settings: str) -> None:
        """`kafka`: a place there, as a URL without options."""
        self.root = root
        self.meta = f"etcd://{etcd.address}/{root.name}"
        self.wal = f"{kafka}?replication=1&sync=replicas"
        self.settings = {"pchannels": "2", "leader_lease_s": "4", **settings}
        self.addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        self.processes: list[RoleProcess] = []

    @property
    def servers(self) -> str:
        return ",".join(self.addresses)

    def _start(self, role: str, folder: str, *options: str) -> RoleProcess:
        given = ("--data-dir", str(self.root / folder), "--meta", self.meta, "--wal", self.wal)
        self.processes.append(RoleProcess(role, *given, *options, **self.settings))
        return self.processes[-1]

    def coordinator(self, number: int) -> RoleProcess:
        return self._start(
            "coordinator", f"coordinator{number}", "--listen", self.addresses[number]
        )

    def node(self, number: int) -> RoleProcess:
        options = ("--node-id", str(number), "--coordinator", self.servers)
        return self._start("node", f"node{number}", *options, "--listen", "127.0.0.1:0")

    def end(self) -> None:
        for process in reversed(self.processes):
            process.__exit__()


@asynccontextmanager
async def running(hosts: Hosts) -> AsyncIterator[tuple[RoleProcess, RoleProcess, Client]]:
    """The leader, the other one, and a client; two nodes serve."""
    async with AsyncExitStack() as ends:
        ends.callback(hosts.end)
        leader = hosts.coordinator(0)
        await leader.ready()
        other = hosts.coordinator(1)
        await other.stands_by()
        for number in (1, 2):
            await hosts.node(number).ready()
        log = await ends.enter_async_context(connect(hosts.servers, deadlines=PATIENT))
        yield leader, other, log


async def health(log: Client) -> Health:
    with anyio.fail_after(GUARD_S):
        while True:
            try:
                return await log.admin.health()
            except TidemarkError:
                await anyio.sleep(0.05)
