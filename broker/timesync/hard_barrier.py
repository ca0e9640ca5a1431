"""The hard barriers: every peer has processed the tick that passes.

Owns nothing of its own: the kinds differ in their rule only.
"""

from broker.model.barrier import BarrierKind
from broker.timesync.barriers import Barriers


class HardBarrier(Barriers):
    """HARD: peers report the same ticks. HARD_MINIMUM: each peer reports ticks of its own."""

    kinds = frozenset({BarrierKind.HARD, BarrierKind.HARD_MINIMUM})
