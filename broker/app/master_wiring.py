"""Connects the master to its ports; the same for a single broker and for a coordinator."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from broker.app.actor_lookup import (
    ASSIGNER,
    BROADCASTER,
    IDS,
    META_TABLE,
    ORACLE,
    ActorLookup,
)
from broker.app.led_cluster import LedCluster
from broker.codec.recent_ddl import RecentDdl
from broker.codec.tick_messages import NodeTickAppends
from broker.coordinator.broadcast.tree import BroadcastParts
from broker.coordinator.time.oracle import OracleTicks
from broker.edge.master.row_definitions import adopted_fields
from broker.master.ddl.adopter import AdoptionParts
from broker.master.ddl.ddl_callbacks import ddl_callbacks
from broker.master.ddl.ddl_planner import DdlPlanner
from broker.master.ids.id_allocator import AskedIds
from broker.master.segments.partition_lookup import KnownPartitions
from broker.master.segments.segment_keeper import SegmentParts
from broker.master.segments.segment_owners import DescribeChannels, Owners
from broker.master.tree import MasterParts


def master_parts(
    cluster: LedCluster, lookup: ActorLookup, owners: Owners, describe: DescribeChannels
) -> MasterParts:
    """What the master needs. `owners`: of the pchannels that take appends now."""
    segments = SegmentParts(
        cluster.store,
        KnownPartitions(cluster.store),
        AskedIds(lookup.find, IDS),
        OracleTicks(lookup.find, ORACLE),
        owners,
        describe,
        cluster.pchannels,
    )
    adoption = AdoptionParts(
        cluster.store, lookup.find, BROADCASTER, ASSIGNER, owners, cluster.control, adopted_fields
    )
    ticks = NodeTickAppends(owners)
    return MasterParts(cluster.store, cluster.pchannels, ticks, segments, adoption)


def with_master(parts: BroadcastParts, cluster: LedCluster, lookup: ActorLookup) -> BroadcastParts:
    """The parts of broadcasts, which change the meta table of this cluster."""
    messages = RecentDdl()
    planner: Callable[[], DdlPlanner] = partial(
        DdlPlanner,
        cluster.store,
        cluster.pchannels,
        cluster.control,
        messages,
        AskedIds(lookup.find, IDS),
    )
    callbacks = ddl_callbacks(parts.callbacks, messages, lookup.find, META_TABLE)
    return replace(parts, callbacks=callbacks, planner=planner)
