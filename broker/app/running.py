"""A process that runs, whatever its role, and the wait until it can be used.

Owns the patience of a start.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import anyio
import structlog

from actors import ActorError, System, SystemClock
from broker.app.logs import program_version
from broker.app.paths import ROOT, Found
from broker.app.start_failures import CannotStart, LeadLost
from broker.config import Settings
from broker.coordinator.assignment.messages import NextAssignment
from broker.coordinator.leases.leadership import LedStore
from broker.edge.server import EdgeServer
from broker.edge.tidemark.admin_service import ServerFacts
from broker.edge.tidemark.process_view import ProcessView
from broker.model.channel import Assignment, AssignmentVersion
from broker.model.ids import NodeId
from broker.wal.damage_registry import DamageRegistry

OPEN_S_MAX = 600.0
"""Recovery of all logs; the port answers meanwhile, so clients wait rather than fail."""
TELL_S = 3.0
"""A start that takes longer says what it waits for, again and again."""
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
    led: LedStore | None = None
    """Of a coordinator: the metadata, as long as it leads."""

    async def until_ended(self) -> None:
        """Raises what the tree ended with, or LeadLost when a newer coordinator leads."""
        failure: Exception | None = None

        async def of_tree() -> None:
            nonlocal failure
            try:
                await self.system.wait_failed()
            except Exception as error:  # noqa: BLE001 - raised again below, without a group round it
                failure = error
            watching.cancel_scope.cancel()

        async def of_lead(led: LedStore) -> None:
            nonlocal failure
            await led.until_deposed()
            failure = lead_lost(led)
            watching.cancel_scope.cancel()

        async with anyio.create_task_group() as watching:
            watching.start_soon(of_tree)
            if self.led is not None:
                watching.start_soon(of_lead, self.led)
        if failure is not None:
            raise failure


def lead_lost(led: LedStore) -> LeadLost:
    """What the person is told who started this coordinator."""
    return LeadLost(
        f"a newer coordinator leads this cluster; this one, of term {led.term}, has stopped,"
        " because a cluster has one coordinator at a time"
    )


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


def inside(system: System, settings: Settings, damages: DamageRegistry) -> ProcessView:
    """What may be seen of this process, and done to it."""
    return ProcessView(
        tree=system,
        chaos_allowed=settings.allow_chaos,
        damages=damages.found,
        damages_unlisted=lambda: damages.unnamed,
    )


def _nothing_else() -> Mapping[str, str]:
    return {}


async def wait_until_open(
    found: Found,
    pchannels: int,
    check: Callable[[], None],
    missing: Callable[[], Mapping[str, str]] = _nothing_else,
) -> None:
    """Until every pchannel has an owner that serves; says now and then what it still waits for.

    CannotStart when that takes too long; `check` raises it when no time would help. `missing`: what
    else is not there yet.
    """
    seen, open_now = None, 0
    told_s = anyio.current_time()
    with anyio.move_on_after(OPEN_S_MAX):
        while True:
            table = await _next_table(found, seen)
            check()
            if table is not None:
                seen, open_now = table.version, serving(table)
            if open_now == pchannels:
                return
            if anyio.current_time() - told_s >= TELL_S:
                told_s = anyio.current_time()
                opened = f"{open_now} of {pchannels}"
                log.warning("still starting", pchannels_open=opened, **missing())
    cause = f"not every pchannel could be opened within {OPEN_S_MAX:.0f} s; see the log"
    raise CannotStart(cause)


def serving(table: Assignment) -> int:
    """How many pchannels have an owner that serves."""
    return sum([len(node.channels) for node in table.nodes])


async def _next_table(found: Found, seen: AssignmentVersion | None) -> Assignment | None:
    """None while the coordinator waits for its store; raises when the tree has given up."""
    try:
        return await found.proxies.assigner.ask(NextAssignment(seen))
    except ActorError as error:
        found.find(ROOT)
        log.warning("still starting", waits_for=str(error))
        return None
