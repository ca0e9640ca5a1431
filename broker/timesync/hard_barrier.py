"""The actor of the hard barriers: a tick passes when every peer has processed it."""

from broker.model.barrier import BarrierKind
from broker.timesync.barriers import Barriers


class HardBarrier(Barriers):
    """HARD: peers report the same ticks. HARD_MINIMUM: each peer reports its own."""

    kinds = frozenset({BarrierKind.HARD, BarrierKind.HARD_MINIMUM})
