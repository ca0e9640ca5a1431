"""A process that runs, whatever its role, and the wait until it can be used.

Owns the patience of a start. Next: broker/coordinator/assigner.py
"""

import os
from collections.abc import Callable
from dataclasses import dataclass

import anyio
import structlog

from actors import ActorError, System, SystemClock
from broker.app.failures import CannotStart
from broker.app.logs import program_version
from broker.app.paths import ROOT, Found
from broker.config import Settings
from broker.coordinator.messages import NextAssignment
from broker.edge.admin_service import ServerFacts
from broker.edge.inside import Inside
from broker.edge.server import EdgeServer
from broker.model.channel import Assignment, AssignmentVersion
from broker.model.ids import NodeId
from broker.wal.damages import Damages

OPEN_S_MAX = 600.0
"""Recovery of all logs; the port answers meanwhile, so clients wait rather than fail."""
EDGE_SHARE = 0.5
TREE_SHARE = 0.25
"""Of the time a stop has; the tree may need its share twice, to stop in order and to be killed."""

log = structlog.get_logger("tidemark")


@dataclass(frozen=True, slots=True)
class Broker:
    """A running process. `address` is what clients are told; `metrics`, "" without, a URL."""

    address: str
    system: System
    edge: EdgeServer
    metrics: str = ""


def facts(settings: Settings, node_id: NodeId) -> ServerFacts:
    """What this process says of itself."""
    return ServerFacts(
        version=program_version(),
        node_id=node_id,
        cluster=settings.cluster,
        wal_name="rocksmq",
        data=str(settings.data_dir),
        pid=os.getpid(),
        started_ms=SystemClock().wall_ms(),
    )


def inside(system: System, settings: Settings, damages: Damages) -> Inside:
    """What may be seen of this process, and done to it."""
    return Inside(
        tree=system,
        chaos_allowed=settings.allow_chaos,
        damages=damages.found,
        damages_unlisted=lambda: damages.unnamed,
    )


async def wait_until_open(found: Found, pchannels: int, check: Callable[[], None]) -> None:
    """Until every pchannel has an owner that serves.

    CannotStart when that takes too long; `check` raises it when no time would help.
    """
    seen = None
    with anyio.move_on_after(OPEN_S_MAX):
        while True:
            table = await _next_table(found, seen)
            check()
            if table is None:
                continue
            seen = table.version
            if serving(table) == pchannels:
                return
    cause = f"not every pchannel could be opened within {OPEN_S_MAX:.0f} s; see the log"
    raise CannotStart(cause)


def serving(table: Assignment) -> int:
    """How many pchannels have an owner that serves."""
    return sum([len(node.channels) for node in table.nodes])


async def _next_table(found: Found, seen: AssignmentVersion | None) -> Assignment | None:
    """None while the coordinator waits for its store; raises when the tree has given up."""
    try:
        return await found.reaches.assigner.ask(NextAssignment(seen))
    except ActorError as error:
        found.find(ROOT)
        log.warning("still starting", waits_for=str(error))
        return None
