"""The process that has a cluster: starts it, kills hosts and cuts links when asked, ends it.

`python -m runs.hosts_demo.keeper`, with the options of `runs.cluster up`.
"""

import json
import os
import signal
import socketserver
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from typing import Any

from benchmark.options import WORK
from benchmark.processes import Unavailable
from hosts.etcd_program import NoEtcd, fetched_etcd
from hosts.host_processes import CommandOnHost, HostProcess, KafkaOnHost
from hosts.kafka_members import fetch_kafka, kafka_members
from hosts.kept_cluster import CONTROL, ClusterState, started, write_state
from hosts.namespaces import NoNamespaces

from runs.hosts_demo.seats import Network, Seats, Wanted, network_of

READY_S_MAX = 150.0
DOWNLOADS = WORK / "downloads"


class DoesNotStart(Exception):
    """A process of the cluster; the text has the end of what it said."""


class Keeper:
    """The processes by host; `tell` writes down which ones there are."""

    def __init__(self, wanted: Wanted, network: Network, etcd: str) -> None:
        self._wanted, self._network = wanted, network
        self._seats = Seats(wanted, network, etcd)
        self._hosts: dict[str, list[HostProcess]] = {it: [] for it in wanted.hosts}
        self._own = started("keeper", os.getpid())

    @contextmanager
    def run(self) -> Iterator[None]:
        """All of it serves while the block runs. Raises DoesNotStart and Unavailable."""
        with ExitStack() as stack:
            stack.callback(self._end)
            self.tell()
            for host, etcd in self._seats.etcds().items():
                self._add(host, etcd)
            kafkas = kafka_members(self._wanted.folder, DOWNLOADS, self._seats.kafkas())
            for host, node in zip(self._wanted.stores, stack.enter_context(kafkas), strict=True):
                self._hosts[host].append(KafkaOnHost(f"kafka-{host}", node))
            stack.callback(self._end)  # before Kafka, which nodes need to stop in order
            seats = self._seats
            for each in (seats.coordinators(), seats.nodes(), seats.sparks()):
                for host, command in each.items():
                    self._add(host, command)
                self._wait([*each.values()])
            self.tell(ready=True)
            yield

    def tell(self, *, ready: bool = False) -> None:
        """Write the state."""
        hosts = {
            host: [started(it.name, it.pid) for it in some if it.pid is not None]
            for host, some in self._hosts.items()
        }
        here = self._network.hosts
        state = ClusterState(
            self._own,
            self._seats.servers,
            self._seats.spark,
            {host: it.name for host, it in here.items() if it.name},
            {host: it.ip for host, it in here.items()},
            hosts,
            ready,
        )
        write_state(self._wanted.folder, state)

    def kill(self, host: str) -> None:
        """As when its power fails: processes end at once, and packets to it are lost."""
        if self._wanted.loopback:
            self._kill(host)
            return
        others = [it for it in self._hosts if it != host]
        self._network.cut(f"dead {host}", [host], others)
        self._network.cut(f"unreached {host}", others, [host])
        self._kill(host)

    def start(self, host: str) -> None:
        """Have a killed one back. Raises DoesNotStart."""
        self._network.heal(f"dead {host}")
        self._network.heal(f"unreached {host}")
        dead = [it for it in self._hosts[host] if it.pid is None]
        for each in dead:
            each.start()
        self._wait([it for it in dead if isinstance(it, CommandOnHost)])

    def cut(self, hosts: Sequence[str]) -> None:
        """No packet passes between any two of them."""
        for sender, receiver in product(hosts, hosts):
            self._network.cut(f"cut {sender} {receiver}", [sender], [receiver])

    def heal(self, hosts: Sequence[str]) -> None:
        """Take that back."""
        for sender, receiver in product(hosts, hosts):
            self._network.heal(f"cut {sender} {receiver}")

    def _kill(self, host: str) -> None:
        for each in self._hosts[host]:
            each.signal(signal.SIGKILL)
        _until(lambda: all(it.pid is None for it in self._hosts[host]))

    def _add(self, host: str, process: HostProcess) -> None:
        self._hosts[host].append(process)
        process.start()
        self.tell()

    def _wait(self, commands: Sequence[CommandOnHost]) -> None:
        def serve() -> bool:
            for each in commands:
                if each.pid is None:
                    raise DoesNotStart(f"{each.name} has ended: {each.said}")
            return all(it.serves for it in commands)

        if not _until(serve):
            late = next(it for it in commands if not it.serves)
            raise DoesNotStart(f"{late.name} is not ready after {READY_S_MAX:g} s: {late.said}")

    def _end(self) -> None:
        """The last ones first: Spark, nodes, coordinators; what they need ends after them."""
        for each in reversed([it for some in self._hosts.values() for it in some]):
            each.end()
        self.tell()


def answered(keeper: Keeper, request: dict[str, Any]) -> str:
    """Do what a line asks for; the error, or nothing."""
    try:
        match request:
            case {"kill": host}:
                keeper.kill(host)
            case {"start": host}:
                keeper.start(host)
            case {"cut": hosts}:
                keeper.cut(hosts)
            case {"heal": hosts}:
                keeper.heal(hosts)
            case _:
                return f"nobody knows how to do {request}"
    except (DoesNotStart, NoNamespaces) as error:
        return str(error)
    except KeyError as error:
        return f"there is no host {error}"
    keeper.tell(ready=True)
    return ""


def serve(keeper: Keeper, control: Path) -> None:
    """Do what is asked for, until this process is told to end."""

    class Line(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            error = answered(keeper, json.loads(self.rfile.readline()))
            self.wfile.write(json.dumps({"error": error}).encode() + b"\n")

    control.unlink(missing_ok=True)
    with socketserver.UnixStreamServer(str(control), Line) as server:
        server.serve_forever()


def main() -> int:
    """1 when it does not start; what it says is in the log."""
    folder, nodes, quorum, loopback, spark = json.loads(sys.argv[1])
    wanted = Wanted(Path(folder), nodes, quorum, loopback=loopback, spark=spark)
    signal.signal(signal.SIGTERM, _stop)
    try:
        # Before the network of the machine is left.
        fetch_kafka(DOWNLOADS)
        etcd = fetched_etcd(wanted.folder.parent / "etcd")
        with network_of(wanted) as network:
            keeper = Keeper(wanted, network, etcd)
            with keeper.run():
                serve(keeper, wanted.folder / CONTROL)
    except (DoesNotStart, NoEtcd, NoNamespaces, Unavailable) as error:
        print(f"cluster: {error}", file=sys.stderr, flush=True)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


def _stop(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once: ending must not be cut short
    raise KeyboardInterrupt


def _until(happens: Any) -> bool:
    until_s = time.monotonic() + READY_S_MAX
    while time.monotonic() < until_s:
        if happens():
            return True
        time.sleep(0.05)
    return False


if __name__ == "__main__":
    sys.exit(main())
