"""The lifetime of a transaction in ticks: keepalive after its newest message, and maximum age."""

from broker.core.txn.txn_state import TxnState
from broker.core.txn.txn_view import TxnView
from broker.model.ids import TICK_LOGICAL_BITS, TimeTick
from broker.model.txn import TxnContext

PREPARED_LOOK_MS = 60_000
"""How soon a prepared transaction is looked at again; it has no lease."""
_TICKS_PER_MS = 1 << TICK_LOGICAL_BITS


def tick_after(tick: TimeTick, ms: int) -> int:
    """The tick `ms` milliseconds later."""
    return tick + (ms << TICK_LOGICAL_BITS)


def lease_end(context: TxnContext, last_tick: TimeTick, age_ms_max: int) -> int:
    """The first tick after the lease of a transaction whose newest message is at `last_tick`."""
    # The id of a transaction is the tick of its begin.
    oldest = tick_after(TimeTick(context.id), age_ms_max)
    if context.keepalive_ms < 0:
        return oldest
    return min(oldest, tick_after(last_tick, context.keepalive_ms))


def is_over(context: TxnContext, last_tick: TimeTick, tick: TimeTick, age_ms_max: int) -> bool:
    """Whether the lease is over at `tick`."""
    return tick >= lease_end(context, last_tick, age_ms_max)


def lease_left_ms(view: TxnView, tick: TimeTick, age_ms_max: int) -> int:
    """Milliseconds left of a transaction's lease at this tick, rounded up; 0: it is over.

    A prepared transaction has no lease; the result is when to look at it again.
    """
    if view.state is TxnState.PREPARED:
        return PREPARED_LOOK_MS
    left = lease_end(view.context, view.last_tick, age_ms_max) - tick
    return max(0, (left + _TICKS_PER_MS - 1) >> TICK_LOGICAL_BITS)
