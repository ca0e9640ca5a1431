"""How far a barrier tick lies ahead of the oracle, and when an append that names it may proceed."""

from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import TICK_LOGICAL_BITS, TimeTick


def lead_s(barrier: TimeTick, issued: TimeTick) -> float:
    """Seconds until an oracle that follows the clock issues a tick above `barrier`.

    `issued`: a tick that it has issued. 0: its next tick is above `barrier`.
    """
    if barrier <= issued:
        return 0.0
    # A millisecond more: within the millisecond of the barrier, the counter decides.
    return ((barrier >> TICK_LOGICAL_BITS) - (issued >> TICK_LOGICAL_BITS) + 1) / 1000


def unreachable(barrier: TimeTick, issued: TimeTick, within_s: float) -> Refusal | None:
    """The refusal of a barrier tick that the oracle cannot reach in time; None if it can."""
    ahead_s = lead_s(barrier, issued)
    if ahead_s <= within_s:
        return None
    return Refusal(
        # Not INVALID_ARGUMENT: Milvus's client would send it again at once, without end.
        StreamingCode.UNRECOVERABLE,
        f"barrier tick {barrier} is {ahead_s:.3f} s ahead of the oracle, which is at {issued}; an"
        f" append waits at most {within_s:g} s for it, so nothing was stored. Use a tick that this"
        " cluster has issued, or append later",
    )


def not_reached(barrier: TimeTick, issued: TimeTick, waited_s: float) -> Refusal:
    """The refusal of an append that has waited in vain."""
    return Refusal(
        StreamingCode.INNER,
        f"the oracle is at {issued} and has not reached barrier tick {barrier} within"
        f" {waited_s:g} s; nothing was stored, retry later",
    )
