"""Serves the Prometheus metrics of a process, when a port is set for them."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from actors import System, SystemClock
from broker.app.process_errors import CannotStart
from broker.coordinator.broadcast.broadcast_meters import BroadcastMeters
from broker.edge.server import EdgeServer
from broker.metrics.exposition import HOST, PATH, exposed
from broker.metrics.view import Sources
from broker.model.damage import Damage
from broker.node.state.channel_meters import Meters
from broker.node.state.node_runtime import NodeRuntime
from broker.node.state.open_channels import OpenChannels


def sources_of(
    system: System,
    edge: EdgeServer,
    node: NodeRuntime | None = None,
    damages: Callable[[], Sequence[Damage]] = tuple,
    broadcasts: BroadcastMeters | None = None,
) -> Sources:
    """Where the metrics of a process are read.

    `node`: None in a process that is not a node; `broadcasts`: None without a coordinator.
    """
    return Sources(
        statistics=system.statistics,
        channels=node.open_channels if node else OpenChannels(0),
        meters=node.meters if node else Meters(),
        edge=edge.meters,
        broadcasts=broadcasts,
        damages=damages,
        connections=lambda: edge.connections,
        open_calls=lambda: edge.open_calls,
        clock=SystemClock(),
    )


@asynccontextmanager
async def metrics_served(sources: Sources, port: int | None) -> AsyncIterator[str]:
    """Serve metrics while the block runs; the URL, or "" without a port. Raises CannotStart."""
    if port is None:
        yield ""
        return
    try:
        # Entered by hand, so that an OSError of the block is not taken for one of listening.
        serving = exposed(sources, port)
        chosen = await serving.__aenter__()
    except OSError as error:
        cause = f"cannot serve metrics on {HOST}:{port}: {error.strerror or error}"
        raise CannotStart(f"{cause}; pass another --metrics-port") from error
    try:
        yield f"http://{HOST}:{chosen}{PATH}"
    finally:
        await serving.__aexit__(None, None, None)
