"""What every BroadcastTask is given: its ports, the paths of its partners, and its intervals."""

from dataclasses import dataclass, field

from broker.coordinator.broadcast.broadcast_meters import BroadcastMeters
from broker.coordinator.broadcast.broadcast_records import BroadcastRecords
from broker.ports.broadcast_appends import BroadcastAppends
from broker.ports.callbacks import Callbacks


@dataclass(frozen=True, slots=True)
class BroadcastTiming:
    """Seconds. A failure is retried after `retry_first_s`, doubling to `retry_max_s`."""

    retry_first_s: float = 0.01
    retry_max_s: float = 10.0
    poll_s: float = 0.1
    poll_max_s: float = 2.0
    """First and longest interval between polls of a node that has to process a copy."""
    announce_s: float = 1.0
    callback_deadline_s: float = 60.0


@dataclass(frozen=True, slots=True)
class BroadcastTaskParts:
    """Dependencies of every task. `node_acks`: owners of channels acknowledge, not consumers."""

    records: BroadcastRecords
    copies: BroadcastAppends
    callbacks: Callbacks
    broadcaster_path: str
    cut_lock_path: str
    timing: BroadcastTiming
    node_acks: bool = True
    meters: BroadcastMeters = field(default_factory=BroadcastMeters)
