"""How long broadcasts took since the process started: figures for people, nobody decides by them.

Owns the counts. They outlive the actors that add to them.
"""

from dataclasses import dataclass, field

from broker.core.histogram import Histogram

BOUNDS_S = (
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0, 4.0, 16.0, 64.0,
)  # fmt: skip


def _seconds() -> Histogram:
    return Histogram(BOUNDS_S)


@dataclass(frozen=True, slots=True)
class BroadcastMeters:
    """Seconds. `acquire_lock`: from the request to its keys and its record. `broadcast`: until all
    copies have landed. `ack_callback`: each call that succeeded. `execution`: from the request to
    the answer; of those that were read back after a restart nobody knows when they began."""

    acquire_lock: Histogram = field(default_factory=_seconds)
    broadcast: Histogram = field(default_factory=_seconds)
    ack_callback: Histogram = field(default_factory=_seconds)
    execution: Histogram = field(default_factory=_seconds)
