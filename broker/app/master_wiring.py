"""Connects the master to its ports; the same for a single broker and for a coordinator."""

from broker.app.actor_lookup import IDS, ORACLE, ActorLookup
from broker.app.led_cluster import LedCluster
from broker.codec.tick_messages import NodeTickAppends
from broker.coordinator.time.oracle import OracleTicks
from broker.master.ids.id_allocator import AskedIds
from broker.master.segments.partition_lookup import LogPartitions
from broker.master.segments.segment_keeper import SegmentParts
from broker.master.segments.segment_owners import DescribeChannels, Owners
from broker.master.tree import MasterParts


def master_parts(
    cluster: LedCluster, lookup: ActorLookup, owners: Owners, describe: DescribeChannels
) -> MasterParts:
    """What the master needs. `owners`: of the pchannels that take appends now."""
    segments = SegmentParts(
        cluster.store,
        LogPartitions(cluster.store),
        AskedIds(lookup.find, IDS),
        OracleTicks(lookup.find, ORACLE),
        owners,
        describe,
        cluster.pchannels,
    )
    return MasterParts(cluster.store, cluster.pchannels, NodeTickAppends(owners), segments)
