"""Limits and periods of a node, each with what it protects."""

from dataclasses import dataclass

from broker.core.compaction.compaction_due import CompactionShares
from broker.core.log.numbered_producers import ProducerLimits
from broker.core.pressure.limit_rules import LimitRules
from broker.core.pressure.watermarks import Watermarks
from broker.core.segments.segment_sealing import MemoryShares, SegmentLimits
from broker.core.txn.txn_limits import TxnLimits
from broker.model.retention.policy import Retention

MIB = 1024 * 1024
GIB = 1024 * MIB

DISK_ROOM = (20 * GIB, 4 * GIB, GIB)
"""No watermark of the disk begins while so many bytes are free: of warning, slowing, refusing."""


@dataclass(frozen=True, slots=True)
class PressureMarks:
    """When appends are slowed and refused; by default never."""

    disk: Watermarks = Watermarks()
    memory: Watermarks = Watermarks()
    memory_bytes: int = 0
    """Of this the shares of memory are; 0: what the machine or the container has."""


@dataclass(frozen=True, slots=True)
class NodeLimits:
    """Settings of one node; the defaults are those of `broker.process_settings.Settings`."""

    message_bytes_max: int = 8 * MIB
    """A larger message is refused; the others of its batch are not."""
    barrier_wait_s_max: float = 10.0
    """How long an append waits for the oracle to pass its barrier tick."""
    backlog_bytes_max: int = 64 * MIB
    """Bytes waiting to be appended on one pchannel; bounds memory under any load."""
    backlog_batches_max: int = 4096
    """Batches waiting in one Appender's mailbox; bounds memory for many tiny ones."""
    group_bytes_max: int = 4 * MIB
    """A group shares one write and one sync. Larger ones gain nothing and raise latency."""
    group_messages_max: int = 16_384
    """Messages of one group commit."""
    tick_interval_s: float = 0.2
    """Time between two heartbeats that close a tick on an idle pchannel."""
    tail_bytes_max: int = 64 * MIB
    tail_total_bytes_max: int = 256 * MIB
    tail_age_s: float = 30.0
    read_ahead_bytes_max: int = 4 * MIB
    """The largest log read for a consumer that is behind, whatever its credit."""
    pull_wait_s: float = 1.0
    """A Pull with nothing to deliver is answered empty after so long."""
    scanner_idle_s: float = 600.0
    """A Scanner without a Pull for so long stops: its consumer is gone."""
    probe_s: float = 1.0
    """Between two probes of a storage that refused a write."""
    txns: TxnLimits = TxnLimits()
    producers: ProducerLimits = ProducerLimits()
    txn_finish_s: float = 3.0
    """How long an orderly close waits for open transactions to end."""
    pause_consumption: bool = False
    """Whether new consumers are held back when the node starts."""
    snapshot_period_s: float = 10.0
    snapshot_records: int = 100
    """A snapshot is saved after that time, or sooner after so many records. A restart replays what
    lies behind the newest one."""
    snapshot_look_s: float = 1.0
    """Between two polls of the log, so also the least time between two snapshots."""
    snapshot_flush_s: float = 3.0
    """How long an orderly close may take to save the last snapshot."""
    segments: SegmentLimits = SegmentLimits()
    require_collection: bool = False
    """Rows for a vchannel on which no collection was created are refused."""
    seal_check_s: float = 60.0
    """Between two checks for segments that are too old or idle."""
    pressure: MemoryShares = MemoryShares()
    memory_look_s: float = 2.0
    """Between two checks of the memory of the process and of all growing segments."""
    memory_pause_s: float = 30.0
    """No further sealing for so long after one: memory shrinks only a while later."""
    retention: Retention = Retention()
    hold_bytes_max: int = 1 << 30
    """Kept of each pchannel beyond retention while the coordinator does not name the holders."""
    unasked_grace_s: float = 60.0
    """So long the coordinator may not answer before anything beyond that is removed."""
    retention_period_s: float = 10.0
    """Time between two checks for segments that retention may drop."""
    marks: PressureMarks = PressureMarks()
    storage: LimitRules = LimitRules()
    """The limits of collections, of which a node holds them to those of storage."""
    compaction: CompactionShares = CompactionShares()
    compaction_map_bytes: int = 64 * MIB
    """Memory for the keys of one pass; one that does not fit is done in several passes."""
