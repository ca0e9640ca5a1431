"""The supervision tree of the coordinator.

The strategy is rest_for_one: an actor starts after those it depends on, and restarts with them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from actors import (
    ONE_FOR_ONE,
    REST_FOR_ONE,
    ChildSpec,
    MailboxSpec,
    Overflow,
    SupervisorSpec,
)
from broker.coordinator.assignment.assigner import Assigner
from broker.coordinator.assignment.balancer import Balancer, LiveBalance
from broker.coordinator.assignment.channel_reconciler import ChannelReconciler
from broker.coordinator.assignment.consumption import Consumption
from broker.coordinator.assignment.live_nodes import LiveNodes
from broker.coordinator.assignment.reconciler_timing import ReconcilerTiming
from broker.coordinator.broadcast.tree import BroadcastParts, broadcaster_tree
from broker.coordinator.catalog.catalog import Catalog
from broker.coordinator.commit.tree import BatchCommitParts, commits_tree
from broker.coordinator.cuts.cut_lock import CutLock
from broker.coordinator.cuts.messages import BROADCASTS, COMMITS, CUT_LOCK
from broker.coordinator.leases.node_probe import NodeProbe
from broker.coordinator.leases.registrar import ConnectNode, Registrar
from broker.coordinator.live_config.sys_config import SysConfig
from broker.coordinator.time.oracle import Oracle
from broker.coordinator.time.tick_window import TickWindow
from broker.core.cluster.balance import BalanceRules
from broker.core.cluster.node_leases import StartupGrace
from broker.model.ids import PChannelName
from broker.ports.master.live_settings import LiveSettings
from broker.ports.meta import MetaStore

COORDINATOR = "coordinator"
WINDOW = "window"
ORACLE = "oracle"
CATALOG = "catalog"
ASSIGNER = "assigner"
RECONCILERS = "reconcilers"
REGISTRAR = "registrar"
NODE_PROBE = "node_probe"
BALANCER = "balancer"
CONSUMPTION = "consumption"
SYS_CONFIG = "sys_config"


@dataclass(frozen=True, slots=True)
class CoordinatorParts:
    """Dependencies. `connect`: makes the proxy of a node that registers; None: `nodes` is fixed."""

    store: MetaStore
    nodes: LiveNodes
    pchannels: Sequence[PChannelName]
    connect: ConnectNode | None = None
    lease_s: float = 5.0
    startup_grace: StartupGrace = StartupGrace()
    rules: BalanceRules = BalanceRules()
    balance_s: float = 60.0
    balance: LiveBalance | None = None
    """In place of the two above, where they may change."""
    timing: ReconcilerTiming = field(default_factory=ReconcilerTiming)
    pause_consumption: bool = False
    broadcast: BroadcastParts | None = None
    """None: broadcasts are not served."""
    commits: BatchCommitParts | None = None
    """None: batch commits are not served."""
    settings: LiveSettings | None = None
    """Those of this process that change live; None: the configuration is not served."""


def coordinator_tree(parts: CoordinatorParts, parent_path: str) -> SupervisorSpec:
    """The subtree `coordinator`, for the supervisor at `parent_path`.

    Every actor is patient: while the store fails (a full disk) it is restarted again and again, and
    the process continues. Call `founding.found_cluster` before: it refuses a wrong configuration
    with an error that a person can read.
    """
    path = f"{parent_path}/{COORDINATOR}"
    return SupervisorSpec(
        name=COORDINATOR,
        strategy=REST_FOR_ONE,
        children=(
            ChildSpec(WINDOW, lambda: TickWindow(parts.store), patient=True),
            ChildSpec(
                ORACLE,
                lambda: Oracle(f"{path}/{WINDOW}"),
                MailboxSpec(bound=4096, batch_max=256),
                patient=True,
            ),
            ChildSpec(
                CATALOG,
                lambda: Catalog(parts.store, parts.pchannels),
                MailboxSpec(bound=256),
                patient=True,
            ),
            ChildSpec(
                ASSIGNER,
                lambda: Assigner(parts.store, parts.nodes, parts.pchannels, parts.startup_grace),
                MailboxSpec(bound=16_384, batch_max=1024),
                patient=True,
            ),
            _reconcilers(parts, f"{path}/{ASSIGNER}"),
            _consumption(parts),
            _cut_lock(parts),
            *_of_many_channels(parts, path),
            _balancer(parts, path),
            *_sys_config(parts),
            *_registrar(parts, f"{path}/{ASSIGNER}"),
            # Last: its restart restarts nothing else.
            ChildSpec(NODE_PROBE, lambda: NodeProbe(parts.nodes, parts.lease_s)),
        ),
    )


def _cut_lock(parts: CoordinatorParts) -> ChildSpec:
    """Before the parties: when it restarts they do too, and report what is inside the lock."""
    parties = (*((BROADCASTS,) if parts.broadcast else ()), *((COMMITS,) if parts.commits else ()))
    mailbox = MailboxSpec(bound=16_384, batch_max=1024)
    return ChildSpec(CUT_LOCK, lambda: CutLock(parties), mailbox)  # not patient: needs no store


def _of_many_channels(parts: CoordinatorParts, path: str) -> tuple[SupervisorSpec, ...]:
    trees: list[SupervisorSpec] = []
    if parts.broadcast is not None:
        trees.append(broadcaster_tree(parts.store, parts.broadcast, path))
    if parts.commits is not None:
        trees.append(commits_tree(parts.store, parts.commits, parts.pchannels, path))
    return tuple(trees)


def _consumption(parts: CoordinatorParts) -> ChildSpec:
    def consumption() -> Consumption:
        return Consumption(parts.store, parts.nodes, from_start=parts.pause_consumption)

    return ChildSpec(CONSUMPTION, consumption, MailboxSpec(bound=64), patient=True)


def _sys_config(parts: CoordinatorParts) -> tuple[ChildSpec, ...]:
    """Before the Registrar: the first lease of a node carries the settings."""
    settings = parts.settings
    if settings is None:
        return ()

    def sys_config() -> SysConfig:
        return SysConfig(parts.store, parts.nodes, settings)

    mailbox = MailboxSpec(bound=256, batch_max=64)
    return (ChildSpec(SYS_CONFIG, sys_config, mailbox, patient=True),)


def _balancer(parts: CoordinatorParts, path: str) -> ChildSpec:
    live = parts.balance or LiveBalance(parts.rules, parts.balance_s)

    def balancer() -> Balancer:
        catalog, assigner = f"{path}/{CATALOG}", f"{path}/{ASSIGNER}"
        return Balancer(parts.nodes, parts.store, catalog, assigner, live)

    return ChildSpec(BALANCER, balancer, MailboxSpec(bound=256), patient=True)


def _registrar(parts: CoordinatorParts, assigner_path: str) -> tuple[ChildSpec, ...]:
    connect = parts.connect
    if connect is None:
        return ()

    def registrar() -> Registrar:
        names = tuple(parts.pchannels)
        return Registrar(parts.store, parts.nodes, connect, names, assigner_path, parts.lease_s)

    return (ChildSpec(REGISTRAR, registrar, MailboxSpec(bound=1024, batch_max=256), patient=True),)


def _reconcilers(parts: CoordinatorParts, assigner_path: str) -> SupervisorSpec:
    def reconciler(name: PChannelName) -> ChildSpec:
        return ChildSpec(
            name,
            lambda: ChannelReconciler(name, parts.store, parts.nodes, assigner_path, parts.timing),
            # SHED: events are hints; the regular look at the record finds what a lost one said.
            MailboxSpec(bound=256, overflow=Overflow.SHED),
            patient=True,
        )

    return SupervisorSpec(
        name=RECONCILERS,
        strategy=ONE_FOR_ONE,
        children=tuple(reconciler(name) for name in parts.pchannels),
        # One cause may crash every reconciler once; that must not end the coordinator.
        restarts_max=5 + len(parts.pchannels),
    )
