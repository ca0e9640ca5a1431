"""How much a node takes on, and at which pace. Every number says what it protects."""

from dataclasses import dataclass

from broker.core.log.numbered_producers import ProducerLimits
from broker.core.segments.segment_sealing import MemoryShares, SegmentLimits
from broker.core.txn.txn_limits import TxnLimits
from broker.ports.wal import Retention

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class NodeLimits:
    """Settings of one streaming node; the defaults are those of `broker.config.Settings`."""

    message_bytes_max: int = 8 * MIB
    """A larger message is refused on its own."""
    backlog_bytes_max: int = 64 * MIB
    """Bytes waiting to be appended on one pchannel: memory, whatever the producers do."""
    backlog_batches_max: int = 4096
    """Batches in one Appender's mailbox: the same for many tiny ones."""
    group_bytes_max: int = 4 * MIB
    """One write and one sync: larger groups gain nothing and make everybody in them wait."""
    group_messages_max: int = 16_384
    tick_interval_s: float = 0.2
    tail_bytes_max: int = 64 * MIB
    tail_total_bytes_max: int = 256 * MIB
    tail_age_s: float = 30.0
    read_ahead_bytes_max: int = 4 * MIB
    """One read of a consumer that is behind, whatever credit it gave."""
    pull_wait_s: float = 1.0
    """A Pull without an answer for this long is answered empty."""
    scanner_idle_s: float = 600.0
    """A Scanner nobody pulls from leaves after this: its consumer is gone."""
    probe_s: float = 1.0
    """Between two looks at a storage that refused a write."""
    txns: TxnLimits = TxnLimits()
    producers: ProducerLimits = ProducerLimits()
    txn_finish_s: float = 3.0
    """How long an orderly close of a pchannel waits for open transactions."""
    pause_consumption: bool = False
    """Whether a node starts with its consumers held back."""
    snapshot_period_s: float = 10.0
    snapshot_records: int = 100
    """A snapshot is saved after that time, or sooner after so many records: what lies behind the
    newest one is read again at a restart."""
    snapshot_look_s: float = 1.0
    """Between two looks at the log, and so the least time between two snapshots."""
    snapshot_flush_s: float = 3.0
    """How long an orderly close may take to save the last snapshot."""
    segments: SegmentLimits = SegmentLimits()
    require_collection: bool = False
    """Rows for a vchannel on which no collection was created are refused."""
    seal_check_s: float = 60.0
    """Between two looks for segments that are too old, or idle."""
    pressure: MemoryShares = MemoryShares()
    memory_look_s: float = 5.0
    """Between two looks at what grows on all pchannels together."""
    memory_pause_s: float = 30.0
    """After sealing because of the process's memory: it takes a while to go back."""
    retention: Retention = Retention()
    retention_period_s: float = 10.0
