"""When a segment is sealed (full, old, idle, or memory is short), and which segments go first.

The policies and their defaults are Milvus's. Ticks serve as the clock.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from broker.model.effect import SegmentLevel
from broker.model.ids import (
    TICK_LOGICAL_BITS,
    CollectionId,
    PartitionId,
    SegmentId,
    TimeTick,
    TxnId,
)

MIB = 1024 * 1024


class SealReason(Enum):
    """Why a segment takes no more rows."""

    CAPACITY = "capacity"
    BINLOGS = "binlog_number"
    LIFETIME = "lifetime"
    IDLE = "idle"
    GROWING_BYTES = "growing_bytes_hwm"
    NODE_MEMORY = "node_memory"
    FENCED = "fenced"
    PARTITION_REMOVED = "partition_removed"
    COLLECTION_REMOVED = "collection_removed"
    RECOVERED = "recover"
    FORCED = "force"


@dataclass(frozen=True, slots=True)
class SegmentLimits:
    """How much one segment holds, and for how long it grows. The defaults are Milvus's."""

    segment_bytes: int = 1024 * MIB
    """Nominal size of a segment; Milvus seals at a share of it."""
    seal_proportion: float = 0.12
    """Share of `segment_bytes` at which a segment is sealed."""
    seal_jitter: float = 0.1
    """Byte limits vary by this share, so that segments created together are not sealed together."""
    row_bytes_min: int = 16
    """The size of a row's id and time tick, a lower bound whatever the producer reports."""
    binlogs_max: int = 32
    """A segment with more binlogs than this is sealed."""
    life_ms_max: int = 86_400_000
    """An older segment is sealed."""
    idle_ms_max: int = 600_000
    """A segment without rows for this long is sealed."""
    idle_bytes_min: int = 16 * MIB
    """A smaller segment is not sealed for being idle."""
    storage_version: int = 2
    """What a CreateSegment says of the format of its files: 0 binlogs, 2 packed, 3 manifest."""
    delete_segments: bool = False
    """Create segments for deletes, too. Milvus's log creates none."""
    deletes_life_ms_max: int = 600_000
    """An older segment of deletes is sealed."""
    deletes_rows_max: int = 500_000
    """A segment of deletes with this many rows is sealed."""
    deletes_bytes_max: int = 32 * MIB
    """A segment of deletes of this size is sealed."""

    @property
    def insert_bytes_max(self) -> int:
        """The largest insert: a whole segment."""
        return int(self.segment_bytes * self.seal_proportion)

    @property
    def insert_rows_max(self) -> int:
        return self.insert_bytes_max // self.row_bytes_min

    def drawn_bytes_max(self, chance: float) -> int:
        """The byte limit of a new segment; `chance` in [0, 1] picks it."""
        return int(self.insert_bytes_max * (1 - self.seal_jitter * chance))


@dataclass(slots=True)
class GrowingSegment:
    """The segment that takes the rows of one partition of one vchannel, or the vchannel's deletes.

    `held_by`: rows and bytes in it of each open transaction. `sealed`: why it takes no more rows.
    `binlogs`: number of files written from it, as reported by their writer.
    """

    id: SegmentId
    vchannel: str
    collection_id: CollectionId
    partition_id: PartitionId
    level: SegmentLevel
    bytes_max: int
    rows_max: int
    created_tick: TimeTick
    modified_tick: TimeTick
    rows: int = 0
    size_bytes: int = 0
    binlogs: int = 0
    sealed: SealReason | None = None
    held_by: dict[TxnId, tuple[int, int]] = field(default_factory=dict)

    def takes(self, rows: int, size_bytes: int) -> bool:
        """Whether these rows and bytes fit."""
        return self.rows + rows <= self.rows_max and self.size_bytes + size_bytes <= self.bytes_max

    def add(self, rows: int, size_bytes: int, txn_id: TxnId | None) -> None:
        """Count rows and bytes in; those of a transaction may be taken out at its rollback."""
        self.rows += rows
        self.size_bytes += size_bytes
        if txn_id is not None:
            held_rows, held_bytes = self.held_by.get(txn_id, (0, 0))
            self.held_by[txn_id] = held_rows + rows, held_bytes + size_bytes


def overdue(segment: GrowingSegment, tick: TimeTick, limits: SegmentLimits) -> SealReason | None:
    """Why a segment should be sealed at this tick; None if it should not."""
    deletes = segment.level is SegmentLevel.DELETES
    if segment.binlogs > limits.binlogs_max:
        return SealReason.BINLOGS
    life_ms_max = limits.deletes_life_ms_max if deletes else limits.life_ms_max
    if _ms(segment.created_tick, tick) >= life_ms_max:
        return SealReason.LIFETIME
    idle = _ms(segment.modified_tick, tick) >= limits.idle_ms_max
    if idle and segment.size_bytes > limits.idle_bytes_min:
        return SealReason.IDLE
    return None


@dataclass(frozen=True, slots=True)
class MemoryShares:
    """Shares of the node's memory: above `…_high`, segments are sealed until below `low`."""

    growing_high: float = 0.2
    process_high: float = 0.6
    low: float = 0.1


def memory_pressure(
    growing_bytes: int, process_bytes: int, memory_bytes: int, shares: MemoryShares
) -> tuple[SealReason, int] | None:
    """Why the node should seal segments, and down to how many growing bytes; None: no pressure."""
    if growing_bytes > shares.growing_high * memory_bytes:
        return SealReason.GROWING_BYTES, int(shares.low * memory_bytes)
    if process_bytes > shares.process_high * memory_bytes:
        return SealReason.NODE_MEMORY, int(shares.low * memory_bytes)
    return None


def largest_first(
    sizes: Iterable[tuple[int, SegmentId]], growing_bytes_max: int
) -> tuple[SegmentId, ...]:
    """The segments, given as `(size_bytes, id)`, to seal so that the rest is below the limit."""
    ordered = sorted(sizes, reverse=True)
    growing_bytes = sum([size_bytes for size_bytes, _ in ordered])
    chosen: list[SegmentId] = []
    for size_bytes, segment_id in ordered:
        if growing_bytes < growing_bytes_max:
            break
        growing_bytes -= size_bytes
        chosen.append(segment_id)
    return tuple(chosen)


def _ms(since: TimeTick, now: TimeTick) -> int:
    return (now >> TICK_LOGICAL_BITS) - (since >> TICK_LOGICAL_BITS)
