"""Maps the settings of a process to the limits and timings of its components."""

from broker.core.cluster.balance import BalanceRules
from broker.core.compaction.compaction_due import CompactionShares
from broker.core.pressure.limit_rules import parsed_limits
from broker.core.segments.segment_sealing import SegmentLimits
from broker.core.txn.txn_limits import TxnLimits
from broker.edge.rpc.edge_limits import EdgeLimits
from broker.model.retention.policy import (
    HoldLimits,
    Retention,
)
from broker.node.state.node_limits import NodeLimits, PressureMarks
from broker.node.state.pressure import marks_of
from broker.process_settings import Settings
from broker.timesync.timing import TimesyncTiming
from broker.transport import ListenerLimits


def node_limits(settings: Settings) -> NodeLimits:
    """The limits of a node."""
    return NodeLimits(
        message_bytes_max=settings.message_bytes_max,
        barrier_wait_s_max=settings.barrier_wait_ms_max / 1000,
        tick_interval_s=settings.tick_interval_ms / 1000,
        tail_bytes_max=settings.tail_bytes_max,
        tail_total_bytes_max=settings.tail_total_bytes_max,
        tail_age_s=settings.tail_age_s,
        txns=TxnLimits(
            open_max=settings.open_txns_max,
            txn_bytes_max=settings.txn_bytes_max,
            open_bytes_max=settings.open_txn_bytes_max,
            keepalive_default_ms=settings.txn_keepalive_ms,
            keepalive_max_ms=settings.txn_keepalive_ms_max,
            age_ms_max=settings.txn_age_ms_max,
            stage_idle_ms=settings.stage_idle_ms,
            stage_age_ms_max=settings.stage_age_ms_max,
        ),
        pause_consumption=settings.pause_consumption,
        snapshot_period_s=settings.snapshot_period_s,
        snapshot_records=settings.snapshot_records,
        snapshot_look_s=min(settings.snapshot_period_s, 1.0),
        segments=SegmentLimits(
            storage_version=settings.storage_version, delete_segments=settings.delete_segments
        ),
        require_collection=settings.require_collection,
        retention=retention(settings),
        hold_bytes_max=settings.hold_bytes_max,
        retention_period_s=settings.retention_check_s,
        marks=pressure_marks(settings),
        storage=parsed_limits(settings.limits),
        compaction=CompactionShares(
            settings.compaction_min_bytes, settings.compaction_dirty_percent
        ),
        compaction_map_bytes=settings.compaction_map_bytes,
    )


def pressure_marks(settings: Settings) -> PressureMarks:
    """When disk and memory slow appends, and refuse them."""
    return PressureMarks(
        disk=marks_of(
            settings.disk_warn_percent, settings.disk_slow_percent, settings.disk_refuse_percent
        ),
        memory=marks_of(
            settings.memory_warn_percent,
            settings.memory_slow_percent,
            settings.memory_refuse_percent,
        ),
        memory_bytes=settings.memory_bytes_max,
    )


def retention(settings: Settings) -> Retention:
    """How much of each log is kept."""
    return Retention(settings.retention_bytes, settings.retention_ms)


def hold_limits(settings: Settings) -> HoldLimits:
    """How much retention keeps for a named cursor."""
    return HoldLimits(settings.hold_bytes_max, settings.hold_s_max)


def balance_rules(settings: Settings) -> BalanceRules:
    """The rules of the balancer."""
    return BalanceRules(
        allow_rebalance=settings.allow_rebalance,
        min_interval_ms=round(settings.min_rebalance_interval_s * 1000),
        lag_ms_max=settings.rebalance_lag_ms_max,
        count_fair=settings.balance_policy == "pchannel_count_fair",
    )


def timesync_timing(settings: Settings) -> TimesyncTiming:
    """The timing of cluster-wide time ticks."""
    return TimesyncTiming(
        poll_s=settings.tick_interval_ms / 1000,
        interval_ms=settings.soft_tick_interval_ms,
        pchannel_lease_s=settings.silent_pchannel_s,
    )


def edge_limits(settings: Settings) -> EdgeLimits:
    """The limits of the port."""
    return EdgeLimits(
        message_bytes_max=settings.message_bytes_max,
        frame_bytes_max=settings.frame_bytes_max,
        produce_inflight_bytes_max=settings.produce_inflight_bytes_max,
        consume_credit_bytes=settings.consume_credit_bytes,
        idle_peer_s=settings.idle_peer_s,
        listener=ListenerLimits(
            connections_max=settings.connections_max, idle_peer_s=settings.idle_peer_s
        ),
    )
