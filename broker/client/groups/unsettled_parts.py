"""What keeps a group from going on, as a server tells it."""

from collections.abc import Mapping
from typing import Final

from broker.model.groups.unsettled import FirstUnsettled, HeldByTxn, Unsettled
from broker.model.ids import TimeTick, TxnId
from schemas.generated.tidemark import v1

_DECODED: Final[Mapping[int, Unsettled]] = {
    v1.UnsettledState.UNSETTLED_WAITING: Unsettled.WAITING,
    v1.UnsettledState.UNSETTLED_LEASED: Unsettled.LEASED,
    v1.UnsettledState.UNSETTLED_DELAYED: Unsettled.DELAYED,
    v1.UnsettledState.UNSETTLED_SETTLING: Unsettled.SETTLING,
    v1.UnsettledState.UNSETTLED_HELD: Unsettled.HELD,
}


def told_first(first: v1.FirstUnsettled | None) -> FirstUnsettled | None:
    """What an ordered group has to settle first; a state of a later release counts as waiting."""
    if first is None:
        return None
    return FirstUnsettled(
        TimeTick(first.tick),
        first.key_hash,
        _DECODED.get(int(first.state), Unsettled.WAITING),
        first.deliveries,
        None if first.first_ms is None else first.first_ms / 1000,
        first.behind,
        first.unsettled,
        first.unsettled_max,
    )


def told_held(held: v1.HeldByTxn) -> HeldByTxn:
    """Acknowledgements inside of an open transaction."""
    last_tick = TimeTick(held.last_tick)
    return HeldByTxn(TxnId(held.txn_id), held.ranges, held.stage, last_tick, held.ends_ms)
