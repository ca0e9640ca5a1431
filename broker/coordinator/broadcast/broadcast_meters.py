"""Durations of broadcasts since the process started, for metrics only.

The object outlives the actors that add to it.
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
    """Histograms, in seconds.

    `acquire_lock`: from the request to its keys and its record. `broadcast`: until all copies are
    durable. `ack_callback`: each successful callback. `execution`: from the request to the answer;
    without broadcasts resumed after a restart, whose start is not known.
    """

    acquire_lock: Histogram = field(default_factory=_seconds)
    broadcast: Histogram = field(default_factory=_seconds)
    ack_callback: Histogram = field(default_factory=_seconds)
    execution: Histogram = field(default_factory=_seconds)
