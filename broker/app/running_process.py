"""Runs the parts of one process of any role: tree, port, metrics; stops them in order."""

import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Protocol

import anyio
import structlog

from actors import ActorError, SupervisorSpec, System, SystemClock
from broker.app.actor_lookup import ROOT, ActorLookup
from broker.app.audit.process_audit import ProcessAudit, process_audit
from broker.app.listening import address_of
from broker.app.logs import program_version
from broker.app.probes.http_endpoint import probes_served
from broker.app.probes.page_readers import PageReaders
from broker.app.probes.readiness import Readiness
from broker.app.process_errors import CannotGoOn, CannotStart, LeadLost
from broker.app.security.secured import security_warnings, server_tls
from broker.app.settings_in_force import SettingsInForce
from broker.app.stores.plain_links import plain_links
from broker.coordinator.assignment.messages import NextAssignment
from broker.coordinator.leases.leadership import LedStore
from broker.core.pressure.limit_rules import parsed_limits
from broker.edge.rpc.audit.audit_trail import AuditTrail
from broker.edge.server import EdgeServer
from broker.edge.tidemark.admin_service import ServerFacts
from broker.edge.tidemark.process_view import ProcessView
from broker.metrics.view import Sources
from broker.model.channel import Assignment, AssignmentVersion
from broker.model.ids import NodeId
from broker.node.state.node_runtime import NodeRuntime
from broker.ports.meta import UnusableStore
from broker.process_settings import Settings
from broker.wal.damage_registry import DamageRegistry

OPEN_S_MAX = 600.0
"""How long the recovery of all logs may take; clients wait meanwhile, because the port answers."""
REPORT_S = 3.0
"""A start that takes longer logs what it waits for, this often."""
HAND_OFF_SHARE = 0.45
"""Share of `drain_s` that a process gets to hand its work over, or to stop those it has started."""
EDGE_SHARE = 0.05
"""Share for the calls in progress. They also get what handing over did not use."""
TREE_SHARE = 0.25
"""Share for the actors. The tree may need it twice: to stop in order, then to kill."""

log = structlog.get_logger("tidemark")


@dataclass(frozen=True, slots=True)
class Broker:
    """A running process. `address`: the one clients are given. `http`: a URL, or ""."""

    address: str
    system: System
    edge: EdgeServer
    settings: SettingsInForce
    http: str = ""
    listen: str = ""
    """HOST:PORT of the socket; another than `address` when something else is advertised."""
    led: LedStore | None = None
    """The metadata store of a coordinator, as long as it leads; None for a node."""
    watch: Callable[[], Awaitable[None]] | None = None
    """Of a node: raises UnusableStore when the metadata store answers nothing more."""

    async def until_ended(self) -> None:
        """Raises the failure that ended the tree, or LeadLost when a newer coordinator leads.

        CannotGoOn when the metadata store answers nothing more to this process.
        """
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
            try:
                await led.until_deposed()
                failure = lead_lost(led)
            except UnusableStore as error:
                failure = CannotGoOn(str(error))
            watching.cancel_scope.cancel()

        async def of_store(watch: Callable[[], Awaitable[None]]) -> None:
            nonlocal failure
            try:
                await watch()
            except UnusableStore as error:
                failure = CannotGoOn(str(error))
                watching.cancel_scope.cancel()

        async with anyio.create_task_group() as watching:
            watching.start_soon(of_tree)
            if self.led is not None:
                watching.start_soon(of_lead, self.led)
            if self.watch is not None:
                watching.start_soon(of_store, self.watch)
        if failure is not None:
            raise failure


class ProcessParts(Protocol):
    """The parts of a process of one role; `running` uses them in this order."""

    lookup: ActorLookup
    name: str
    """Of the process in its data folder, such as `node-1`."""
    address: str
    settings: SettingsInForce

    def spec(self) -> SupervisorSpec:
        """The tree of actors."""
        ...

    def edge(self, system: System, readiness: Readiness, audit: AuditTrail) -> EdgeServer:
        """The services that answer calls with this tree, and are recorded."""
        ...

    def reasons_against(self, system: System) -> Sequence[str]:
        """Why this role does not serve at the moment, besides what all roles have in common."""
        ...

    async def until_ready(self, system: System) -> None:
        """Wait until the process can serve. Raises CannotStart or LeadLost."""
        ...

    def adopt(self, settings: Settings) -> None:
        """Apply those settings that change live and that this role uses."""
        ...

    def sources(self, system: System, edge: EdgeServer) -> Sources:
        """Where its metrics are read."""
        ...

    async def hand_off(self, system: System, deadline_s: float) -> None:
        """Stop serving, before the port closes; shielded from cancellation."""
        ...


@asynccontextmanager
async def running(
    parts: ProcessParts, settings: Settings, bound: socket.socket, led: LedStore | None = None
) -> AsyncIterator[Broker]:
    """Run the parts while the block runs; the process is ready when the block begins.

    The port is open before the parts are ready, so that clients wait instead of failing, and so
    that a coordinator's nodes find it. `bound` is used up. Raises what `until_ready` raises.
    """
    system = System(parts.spec(), stop_deadline_s=settings.drain_s * TREE_SHARE)
    parts.lookup.system = system
    listen = address_of(bound)
    readiness = Readiness(led, lambda: parts.reasons_against(system))
    # The audit ends last, so that it has the calls that a stop ends.
    async with process_audit(settings, parts.name) as audit, system:
        edge = parts.edge(system, readiness, audit.trail)
        sources = parts.sources(system, edge)
        # Before the port opens, so that probes see the recovery; it closes last, so that they see
        # the process stop.
        readers = PageReaders(edge.access, audit.trail)
        against = readiness.reasons_against
        async with probes_served(sources, settings, against, readers) as http:
            await edge.start_on(bound, server_tls(settings))
            parts.settings.listen(partial(_adopt, parts, edge, audit))
            try:
                await parts.until_ready(system)
                readiness.started = True
                yield Broker(parts.address, system, edge, parts.settings, http, listen, led)
            finally:
                readiness.stopping = True
                # Shielded, because a stop arrives as a cancellation; both steps have deadlines. The
                # port closes late: the coordinator calls a node on it to move its channels away.
                with anyio.CancelScope(shield=True):
                    await _stop_serving(parts, system, edge, settings.drain_s)


async def _stop_serving(
    parts: ProcessParts, system: System, edge: EdgeServer, drain_s: float
) -> None:
    began_s = anyio.current_time()
    await parts.hand_off(system, drain_s * HAND_OFF_SHARE)
    handing_s = anyio.current_time() - began_s
    left_s = max(0.0, drain_s * HAND_OFF_SHARE - handing_s)
    await edge.stop(deadline_s=left_s + drain_s * EDGE_SHARE)


def _adopt(parts: ProcessParts, edge: EdgeServer, audit: ProcessAudit, settings: Settings) -> None:
    audit.adopt(settings)
    edge.limit_connections(settings.connections_max)
    edge.limit_rates(parsed_limits(settings.limits))
    parts.adopt(settings)


def lead_lost(led: LedStore) -> LeadLost:
    """The error of a coordinator that a newer one has replaced."""
    return LeadLost(
        f"a newer coordinator leads this cluster; this one, of term {led.term}, has stopped,"
        " because a cluster has one coordinator at a time"
    )


def server_facts(settings: Settings, node_id: NodeId, cluster_id: str) -> ServerFacts:
    """What this process reports about itself."""
    return ServerFacts(
        version=program_version(),
        node_id=node_id,
        cluster=settings.cluster,
        wal_name="rocksmq",
        # Absolute: a command on this machine runs in another working directory.
        data=str(settings.data_dir.absolute()),
        pid=os.getpid(),
        started_ms=SystemClock().wall_ms(),
        cluster_id=cluster_id,
    )


def process_view(
    system: System,
    settings: Settings,
    damages: DamageRegistry,
    readiness: Readiness,
    more: Sequence[Callable[[], Sequence[str]]],
    node: NodeRuntime | None = None,
) -> ProcessView:
    """What operators may see of this process, and do to it; `node`: its own, if any.

    `more`: what else warns in `health`.
    """
    # Now: a file of client properties that is changed later does not change the connections.
    plain = plain_links(settings)
    return ProcessView(
        tree=system,
        chaos_allowed=settings.allow_chaos,
        damages=damages.found,
        damages_unlisted=lambda: damages.unnamed,
        reasons_against=readiness.reasons_against,
        warnings=lambda: [
            *(node.warnings() if node else ()),
            *security_warnings(settings, datetime.now(UTC), plain),
            *[each for warnings in more for each in warnings()],
        ],
        traffic=node.meters.traffic.all if node else tuple,
    )


def _nothing_else() -> Mapping[str, str]:
    return {}


async def wait_until_open(
    lookup: ActorLookup,
    pchannels: int,
    check: Callable[[], None],
    missing: Callable[[], Mapping[str, str]] = _nothing_else,
) -> None:
    """Wait until every pchannel has an owner that serves it, logging what is missing meanwhile.

    `check` raises when waiting is useless; `missing` names what else is not there yet. Raises
    CannotStart when it takes too long.
    """
    seen, open_now = None, 0
    reported_s = anyio.current_time()
    with anyio.move_on_after(OPEN_S_MAX):
        while True:
            table = await _next_table(lookup, seen)
            check()  # after each answer, at least once a second: the table may never change
            if table is not None:
                seen, open_now = table.version, serving(table)
            if open_now == pchannels:
                return
            if anyio.current_time() - reported_s >= REPORT_S:
                reported_s = anyio.current_time()
                opened = f"{open_now} of {pchannels}"
                log.warning("still starting", pchannels_open=opened, **missing())
    raise CannotStart(
        f"{open_now} of {pchannels} pchannels were open after {OPEN_S_MAX:.0f} s; the log above"
        " says why the others are not"
    )


def serving(table: Assignment) -> int:
    """The number of pchannels with an owner that serves them."""
    return sum([len(node.channels) for node in table.nodes])


async def _next_table(lookup: ActorLookup, seen: AssignmentVersion | None) -> Assignment | None:
    """None while the coordinator waits for its store. Raises when the tree has failed for good."""
    try:
        return await lookup.proxies.assigner.ask(NextAssignment(seen))
    except ActorError as error:
        lookup.find(ROOT)  # raises when the tree has ended: waiting would then be useless
        log.warning("still starting", waits_for=str(error))
        return None
