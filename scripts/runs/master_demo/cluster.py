"""A coordinator and nodes, each a process of its own, that are killed and started again."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from runs.failover_clusters import Restarted, free_port

PCHANNELS = 4


@dataclass(frozen=True, slots=True)
class Cluster:
    """The running processes; `nodes[i]` has the id i + 1."""

    address: str
    coordinator: Restarted
    nodes: tuple[Restarted, ...]


@contextmanager
def running(folder: Path, nodes: int) -> Iterator[Cluster]:
    """Run them with their data and logs below `folder`; all have stopped when the block ends."""
    log, data = folder / "log", ("--data-dir", str(folder / "data"))
    address = f"127.0.0.1:{free_port()}"
    with ExitStack() as stack:
        shape = ("--pchannels", str(PCHANNELS), "--listen", address)
        coordinator = Restarted("coordinator", *data, *shape, log=log)
        stack.callback(coordinator.stop)
        coordinator.address()  # its ready line
        started = []
        for number in range(1, nodes + 1):
            options = ("--node-id", str(number), "--coordinator", address)
            node = Restarted("node", *options, *data, "--listen", "127.0.0.1:0", log=log)
            stack.callback(node.stop)
            started.append(node)
        yield Cluster(address, coordinator, tuple(started))
