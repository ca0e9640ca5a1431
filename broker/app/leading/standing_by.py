"""Runs one of several coordinators: it stands by while another one leads, then leads itself.

The port answers meanwhile: health, and where the leader is. It stays open when this process takes
over, so that callers wait for a moment instead of being refused.
"""

import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import structlog

from actors import SupervisorSpec, System
from broker.app.actor_lookup import ActorLookup
from broker.app.advertised import with_advertised
from broker.app.broadcast_callbacks import NONE
from broker.app.leading.folder_candidates import FolderCandidates, candidate_of
from broker.app.leading.host_candidates import HostCandidates, announced_candidates
from broker.app.leading.leader_witness import leader_witness
from broker.app.led_cluster import Lead, coordinators_of
from broker.app.limits_from_settings import edge_limits
from broker.app.probes.http_endpoint import sources_of
from broker.app.probes.readiness import Readiness
from broker.app.process_errors import CannotStart
from broker.app.run_coordinator import COORDINATOR_ID, run_coordinator
from broker.app.running_process import Broker, process_view, running, server_facts
from broker.app.security.process_access import ProcessAccess, node_access
from broker.app.settings_in_force import SettingsInForce
from broker.app.storage import disk_reserve, metadata
from broker.app.stores.etcd_metadata import MetadataUse, folder_token, read_note
from broker.beside import beside
from broker.coordinator.assignment.founding import check_cluster
from broker.coordinator.json_records import UnreadableRecord
from broker.coordinator.leases.candidacy import Candidacy
from broker.coordinator.leases.leader_lease import LeaderLease
from broker.coordinator.leases.leader_records import read_leader
from broker.coordinator.leases.leadership import LedStore
from broker.core.naming import pchannel_names
from broker.data_folder import DataFolder
from broker.edge.roles import coordinator as coordinator_role
from broker.edge.roles import standby as standby_role
from broker.edge.rpc.audit.audit_trail import AuditTrail
from broker.edge.rpc.leader_gate import standby_gate
from broker.edge.server import EdgeServer
from broker.edge.tidemark.cluster_service import ClusterProxies
from broker.edge.tidemark.process_view import Coordinators
from broker.etcd.etcd_store import EtcdMetaStore
from broker.metrics.view import Sources
from broker.model.channel import ChannelOffsets
from broker.model.failure import Refused
from broker.model.ids import PChannelName
from broker.ports.callbacks import Callbacks
from broker.ports.meta import MetaError, MetaStore, UnusableStore
from broker.process_settings import Settings
from broker.wal.damage_registry import DamageRegistry

DRAIN_S = 0.2
"""A coordinator that stands by has no work in progress; nodes wait for it to take over."""

StandingBy = Callable[[str, str], None]
"""Called with HOST:PORT listened on, and the URL of probes or "", when the process stands by."""

log = structlog.get_logger("tidemark")


@asynccontextmanager
async def run_candidate(
    settings: Settings,
    folder: DataFolder,
    bound: socket.socket,
    callbacks: Callbacks = NONE,
    *,
    standing_by: StandingBy = lambda _listen, _http: None,
) -> AsyncIterator[Broker]:
    """A coordinator that leads when the block begins: entering waits until no other one does.

    `bound` is used up. `callbacks`: as for `run_broker`. Raises CannotStart with nothing left
    running, also when the folder belongs to another cluster, and DataFolderError.
    """
    settings = with_advertised(settings, bound)
    disk_reserve(settings, folder)  # before the store: on a full disk it makes room
    with candidate_of(folder, settings.advertise) as local:
        async with (
            metadata(settings, folder, MetadataUse.CANDIDATE) as store,
            _candidates(local, folder, store) as candidates,
            leader_witness(settings, store) as witness,
        ):
            await _refuse_other_cluster(store, settings)
            candidacy = Candidacy(store, candidates, settings.leader_lease_s)
            access = await node_access(settings, folder.root, store)
            parts = _StandbyParts(settings, candidacy, candidates, access)
            try:
                led, lease = await _lead(candidacy, parts, bound, standing_by)
            except BaseException:
                # A stop may come when the lead is written: the port of the standby closes then.
                await candidacy.withdraw()
                raise
            witness.watch(led)
            log.info("leads", term=led.term, address=settings.advertise)
            lead = Lead(led, lease, candidates, candidates.process)
            try:
                async with (
                    beside(lease.keep),
                    run_coordinator(settings, folder, bound, callbacks, lead) as broker,
                ):
                    yield broker
            finally:
                await led.end()


@asynccontextmanager
async def _candidates(
    local: FolderCandidates, folder: DataFolder, store: MetaStore
) -> AsyncIterator[FolderCandidates | HostCandidates]:
    """Those of the folder; with the metadata in etcd, those of other hosts, too. CannotStart."""
    if not isinstance(store, EtcdMetaStore):
        yield local
        return
    joined = read_note(folder.metadata_note).joined
    if joined:
        await _refuse_lone_leader(store)
    token = folder_token(folder.root)
    async with announced_candidates(local, store, token, shares_locks=not joined) as found:
        yield found


async def _refuse_lone_leader(store: MetaStore) -> None:
    try:
        seen = await read_leader(store)
    except MetaError as error:
        raise CannotStart(str(error)) from error
    if seen.term and not seen.holder.name:
        raise CannotStart(
            "this cluster was led last by `tidemark serve`, which keeps others from standing by:"
            " stop it, and start `tidemark coordinator` on its data folder first"
        )


async def _refuse_other_cluster(store: MetaStore, settings: Settings) -> None:
    """At once: a wrong start would otherwise be told when the leader dies."""
    try:
        await check_cluster(store, pchannel_names(settings.cluster, settings.pchannels))
    except Refused as refused:
        raise CannotStart(refused.refusal.cause) from refused
    except MetaError as error:
        raise CannotStart(str(error)) from error


async def _lead(
    candidacy: Candidacy,
    parts: "_StandbyParts",
    bound: socket.socket,
    standing_by: StandingBy,
) -> tuple[LedStore, LeaderLease]:
    try:
        led = await _first_attempt(candidacy)
        if led is not None:
            return led
        # Another socket object of the same port, which stays open when this one is closed.
        async with running(parts, parts.standby_settings, bound.dup()) as waiting:
            standing_by(waiting.listen, waiting.http)
            return await candidacy.until_leading()
    except (UnreadableRecord, UnusableStore) as error:
        raise CannotStart(str(error)) from error


async def _first_attempt(candidacy: Candidacy) -> tuple[LedStore, LeaderLease] | None:
    try:
        return await candidacy.attempt()
    except (UnreadableRecord, UnusableStore):
        raise
    except MetaError as error:
        log.warning("waiting for the metadata to take writes", error=str(error))
        return None


class _StandbyParts:
    """The port of a coordinator that stands by; see ProcessParts."""

    def __init__(
        self,
        settings: Settings,
        candidacy: Candidacy,
        candidates: FolderCandidates | HostCandidates,
        access: ProcessAccess,
    ) -> None:
        self.lookup = ActorLookup()
        self.name = candidates.process
        self.address = settings.advertise
        self.settings = SettingsInForce(settings)
        self.standby_settings = settings.model_copy(update={"drain_s": DRAIN_S})
        self._candidacy = candidacy
        self._candidates = candidates
        self._access = access

    def spec(self) -> SupervisorSpec:
        """Who calls is all that it follows: what other actors would do is the leader's."""
        return SupervisorSpec("root", children=tuple(self._access.children()))

    def edge(self, system: System, readiness: Readiness, audit: AuditTrail) -> EdgeServer:
        """See ProcessParts."""
        proxy = self.lookup.proxies
        # Never asked: the gate refuses every call before.
        proxies = ClusterProxies(proxy.oracle, proxy.oracle, proxy.assigner, proxy.cursors)
        view = process_view(
            system,
            self.standby_settings,
            DamageRegistry(skipped=False),
            readiness,
            (audit.sink.warnings, self._access.warnings),
        )
        return EdgeServer(
            server_facts(self.standby_settings, COORDINATOR_ID, ""),
            proxy,
            view.with_coordinators(self._coordinators),
            edge_limits(self.standby_settings),
            standby_role(coordinator_role(proxies, _nothing)),
            audit,
            standby_gate(lambda: self._candidacy.leader),
            self._access.gate,
        )

    async def until_ready(self, system: System) -> None:
        """See ProcessParts."""

    def reasons_against(self, system: System) -> Sequence[str]:
        """See ProcessParts."""
        leader = self._candidacy.leader
        return [f"standing by: the leader is {leader}" if leader else "standing by: no leader yet"]

    def adopt(self, settings: Settings) -> None:
        """See ProcessParts. They are read again when this process leads."""

    def sources(self, system: System, edge: EdgeServer) -> Sources:
        """See ProcessParts."""
        return sources_of(self.standby_settings, system, edge, leads=lambda: False)

    async def hand_off(self, system: System, deadline_s: float) -> None:
        """See ProcessParts."""

    async def _coordinators(self) -> Coordinators:
        return await coordinators_of(self._candidacy.leader, self._candidates)


async def _nothing() -> dict[PChannelName, ChannelOffsets]:
    return {}
