"""One transaction of a pchannel as it stands, for watchers, and totals over several."""

from collections.abc import Iterable
from dataclasses import dataclass

from broker.core.txn.txn_state import TxnState
from broker.model.ids import TimeTick
from broker.model.stage import StageName
from broker.model.txn import TxnContext


@dataclass(frozen=True, slots=True)
class TxnView:
    """One transaction as it is now."""

    context: TxnContext
    vchannel: str
    last_tick: TimeTick
    bodies: int
    size_bytes: int
    state: TxnState
    stage: StageName | None = None


@dataclass(frozen=True, slots=True)
class StagedUsage:
    """Number and bytes of staged transactions; `oldest`: the tick of the first begin, 0: none."""

    txns: int
    size_bytes: int
    oldest: TimeTick


def staged_usage(views: Iterable[TxnView]) -> StagedUsage:
    """The totals of those transactions that are staged."""
    staged = [view for view in views if view.stage is not None]
    oldest = min((TimeTick(view.context.id) for view in staged), default=TimeTick(0))
    return StagedUsage(len(staged), sum(view.size_bytes for view in staged), oldest)
