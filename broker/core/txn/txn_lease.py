"""How long a transaction lives: its keepalive after its newest message, and its age, in ticks.

It owns the arithmetic and what a watcher is shown. It keeps nothing and reads no clock.
Next: broker/core/txn/transactions.py
"""

from collections.abc import Iterable
from dataclasses import dataclass

from broker.core.txn.txn_state import TxnState
from broker.model.ids import TICK_LOGICAL_BITS, TimeTick
from broker.model.stage import StageName
from broker.model.txn import TxnContext

PREPARED_LOOK_MS = 60_000
"""How soon one that waits for the coordinator's word is looked at again."""
_TICKS_PER_MS = 1 << TICK_LOGICAL_BITS


@dataclass(frozen=True, slots=True)
class TxnView:
    """One transaction as it is now, for who watches it."""

    context: TxnContext
    vchannel: str
    last_tick: TimeTick
    bodies: int
    size_bytes: int
    state: TxnState
    stage: StageName | None = None


@dataclass(frozen=True, slots=True)
class StagedUsage:
    """Of some transactions those that are of a batch; `oldest`: the first begin, 0 of none."""

    txns: int
    size_bytes: int
    oldest: TimeTick


def staged_among(views: Iterable[TxnView]) -> StagedUsage:
    """Those that are of a stage, together."""
    staged = [view for view in views if view.stage is not None]
    oldest = min((TimeTick(view.context.id) for view in staged), default=TimeTick(0))
    return StagedUsage(len(staged), sum(view.size_bytes for view in staged), oldest)


def later(tick: TimeTick, ms: int) -> int:
    """The tick so many milliseconds after another."""
    return tick + (ms << TICK_LOGICAL_BITS)


def lease_end(context: TxnContext, last_tick: TimeTick, age_ms_max: int) -> int:
    """The first tick at which a transaction is over whose newest message is at `last_tick`."""
    oldest = later(TimeTick(context.id), age_ms_max)
    if context.keepalive_ms < 0:
        return oldest
    return min(oldest, later(last_tick, context.keepalive_ms))


def over(context: TxnContext, last_tick: TimeTick, tick: TimeTick, age_ms_max: int) -> bool:
    """Whether it is over at `tick`."""
    return tick >= lease_end(context, last_tick, age_ms_max)


def lease_left_ms(view: TxnView, tick: TimeTick, age_ms_max: int) -> int:
    """Milliseconds of ticks that a transaction in flight still has at this tick; 0: it is over.

    One that is prepared has no lease: how soon it is worth a look.
    """
    if view.state is TxnState.PREPARED:
        return PREPARED_LOOK_MS
    left = lease_end(view.context, view.last_tick, age_ms_max) - tick
    return max(0, (left + _TICKS_PER_MS - 1) >> TICK_LOGICAL_BITS)
