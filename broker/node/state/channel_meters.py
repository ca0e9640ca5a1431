"""Counters of each pchannel since the process started, for metrics.

They outlive the actors that count, so that they only grow.
"""

from dataclasses import dataclass, field

from broker.core.histogram import Histogram
from broker.model.ids import PChannelName
from broker.node.state.vchannel_traffic import TrafficCounts

STORE_BOUNDS_S = (
    0.00025, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0, 4.0,
)  # fmt: skip
TXN_BOUNDS_S = (0.001, 0.004, 0.016, 0.064, 0.256, 1.0, 4.0, 16.0, 64.0, 256.0)


@dataclass(slots=True)
class ChannelMeter:
    """Counters of one pchannel. `stores`: seconds from write to synced, for each group.

    `txns`: seconds from begin to end of transactions, by the state they ended in.
    """

    messages: int = 0
    bytes: int = 0
    scanned: int = 0
    tick_violations: int = 0
    count_mismatches: int = 0
    stores: Histogram = field(default_factory=lambda: Histogram(STORE_BOUNDS_S))
    ticks_allocated: int = 0
    ticks_acknowledged: int = 0
    tick_records_acknowledged: int = 0
    insert_rows: int = 0
    insert_bytes: int = 0
    delete_rows: int = 0
    txns: dict[str, Histogram] = field(default_factory=dict)

    def txn_ended(self, state: str, took_s: float) -> None:
        """Count a transaction that ended in this state."""
        if state not in self.txns:
            self.txns[state] = Histogram(TXN_BOUNDS_S)
        self.txns[state].add(took_s)


class Meters:
    """One per node."""

    def __init__(self) -> None:
        self.traffic = TrafficCounts()
        self._channels: dict[PChannelName, ChannelMeter] = {}

    def of(self, name: PChannelName) -> ChannelMeter:
        """The meter of a pchannel, made at the first call."""
        meter = self._channels.get(name)
        if meter is None:
            meter = self._channels[name] = ChannelMeter()
        return meter

    def all(self) -> list[tuple[PChannelName, ChannelMeter]]:
        """The meters of all pchannels that were served here, by name."""
        return [(name, self._channels[name]) for name in sorted(self._channels)]
