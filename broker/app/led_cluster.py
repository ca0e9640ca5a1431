"""The start that a single broker and a coordinator share: open the metadata and take the lead."""

import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from broker.app.advertised import with_advertised
from broker.app.broadcast_callbacks import load_callbacks
from broker.app.process_errors import CannotStart
from broker.app.settings_in_force import SettingsInForce
from broker.app.storage import disk_reserve, metadata
from broker.app.stores.store_outages import through_outages
from broker.coordinator.assignment.founding import found_cluster
from broker.coordinator.catalog.collection_records import ensure_indexes
from broker.coordinator.leases.leader_lease import LeaderLease
from broker.coordinator.leases.leadership import LedStore, lead
from broker.coordinator.live_config.config_records import ConfigRecords
from broker.coordinator.records import Cluster
from broker.core.cluster.assignment import STREAMING_VERSION
from broker.core.naming import control_channel, pchannel_names
from broker.data_folder import DataFolder
from broker.edge.tidemark.process_view import Coordinators
from broker.model.failure import Refused
from broker.model.ids import PChannelName, VChannelName
from broker.model.master.live_config import StoredSettings
from broker.ports.callbacks import Callbacks
from broker.ports.leader_check import Candidates
from broker.ports.meta import MetaError, MetaStore
from broker.process_settings import Settings


@dataclass(frozen=True, slots=True)
class Lead:
    """The lead over a cluster that other coordinators stand by for."""

    store: LedStore
    lease: LeaderLease
    candidates: Candidates
    name: str
    """Of this process in the data folder."""

    def reasons_against(self) -> Sequence[str]:
        """Why this process refuses calls now; empty while it leads.

        Empty for one that was replaced, too, which ends: who looks at its store says so.
        """
        if self.store.deposed or self.lease.left_s > 0:
            return ()
        refuses = f"this coordinator, of term {self.store.term}, does not lead at the moment"
        failure = self.lease.failure
        return (f"{refuses}. {failure}" if failure else refuses,)

    def warnings(self) -> Sequence[str]:
        """What `health` says of the lease, also while something is left of it."""
        failure = self.lease.failure
        return self.reasons_against() or ((failure,) if failure else ())


@dataclass(frozen=True, slots=True)
class LedCluster:
    """The cluster of a data folder, led by this process. `address`: the one clients are given.

    `control`: the control channel.
    """

    identity: str
    store: LedStore
    pchannels: tuple[PChannelName, ...]
    address: str
    callbacks: Callbacks
    settings: SettingsInForce
    """With those that are stored; the coordinator starts with them."""
    control: VChannelName
    lead: Lead | None = None
    """None where nobody stands by, because this process keeps all others out of the folder."""


@asynccontextmanager
async def led_cluster(
    settings: Settings,
    folder: DataFolder,
    bound: socket.socket,
    callbacks: Callbacks,
    taken: Lead | None = None,
) -> AsyncIterator[LedCluster]:
    """Lead the cluster of the folder, made on the first start, with its metadata open.

    `callbacks` come on top of those that the settings name. `taken`: the lead, where it was taken
    already. Raises CannotStart.
    """
    callbacks = {**load_callbacks(settings.callbacks), **callbacks}
    address = with_advertised(settings, bound).advertise
    disk_reserve(settings, folder)
    async with AsyncExitStack() as opened:
        led = None if taken is None else taken.store
        store: MetaStore | None = led
        if store is None:
            store = await opened.enter_async_context(metadata(settings, folder))
        pchannels = pchannel_names(settings.cluster, settings.pchannels)
        cluster, led, stored = await _founded(store, led, pchannels, streaming=settings.streaming)
        in_force = SettingsInForce(settings, stored)
        control = control_channel(cluster.control_host)
        yield LedCluster(
            cluster.identity, led, pchannels, address, callbacks, in_force, control, taken
        )


async def coordinators_of(leader: str, candidates: Candidates) -> Coordinators:
    """The leader, and the others that run, as `tidemark health` shows them."""
    others = [it.address for it in await candidates.running() if it.address]
    return Coordinators(leader, [it for it in others if it != leader])


async def _founded(
    store: MetaStore, led: LedStore | None, pchannels: tuple[PChannelName, ...], *, streaming: bool
) -> tuple[Cluster, LedStore, StoredSettings]:
    """The cluster, its metadata store under a new leader term, and the stored settings.

    Waits while the store takes no writes (a full disk), as the parts above it do. Raises
    CannotStart.
    """

    async def found() -> Cluster:
        return await found_cluster(store, pchannels, STREAMING_VERSION if streaming else 0)

    try:
        # Whoever starts a broker is told at once that its store is away. This writes only if the
        # cluster is new or grows, so a full disk does not end a normal start here.
        cluster = await (found() if led is None else through_outages(found))
        leading = await through_outages(lambda: lead(store)) if led is None else led
        # Here, not in the catalog alone: nodes look collections up by their ids, too, and an
        # actor has a deadline to start.
        await through_outages(partial(ensure_indexes, leading))
        stored = await through_outages(ConfigRecords(leading).read)
    except Refused as refused:
        raise CannotStart(refused.refusal.cause) from refused
    except MetaError as error:
        raise CannotStart(str(error)) from error
    return cluster, leading, stored.settings()
