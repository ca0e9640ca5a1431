"""What keeps a group from going on, on the wire."""

from collections.abc import Mapping
from typing import Final

from broker.model.groups.unsettled import FirstUnsettled, HeldByTxn, Unsettled
from schemas.generated.tidemark import v1

_ENCODED: Final[Mapping[Unsettled, v1.UnsettledState]] = {
    Unsettled.WAITING: v1.UnsettledState.UNSETTLED_WAITING,
    Unsettled.LEASED: v1.UnsettledState.UNSETTLED_LEASED,
    Unsettled.DELAYED: v1.UnsettledState.UNSETTLED_DELAYED,
    Unsettled.SETTLING: v1.UnsettledState.UNSETTLED_SETTLING,
    Unsettled.HELD: v1.UnsettledState.UNSETTLED_HELD,
}


def encoded_first(first: FirstUnsettled | None) -> v1.FirstUnsettled | None:
    """What an ordered group has to settle first, as it is sent."""
    if first is None:
        return None
    return v1.FirstUnsettled(
        tick=first.tick,
        key_hash=first.key_hash,
        state=_ENCODED[first.state],
        deliveries=first.deliveries,
        first_ms=None if first.first_s is None else round(first.first_s * 1000),
        behind=first.behind,
        unsettled=first.unsettled,
        unsettled_max=first.unsettled_max,
    )


def encoded_held(held: HeldByTxn) -> v1.HeldByTxn:
    """Acknowledgements inside of a transaction, as they are sent."""
    return v1.HeldByTxn(
        txn_id=held.txn,
        ranges=held.ranges,
        stage=held.stage,
        last_tick=held.last_tick,
        ends_ms=held.ends_ms,
    )
