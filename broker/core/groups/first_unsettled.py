"""What an ordered group has to settle first, and how much waits behind it."""

from broker.core.groups.ordered_units import SETTLING, WAITING, OrderedUnits, Unit
from broker.core.groups.tick_spans import TickSpans
from broker.model.groups.unsettled import FirstUnsettled, Unsettled


def first_unsettled(
    units: OrderedUnits, units_max: int, held: TickSpans, now_s: float, *, by_key: bool
) -> FirstUnsettled | None:
    """The oldest unit; None without any. `held`: what open transactions have acknowledged."""
    first = next(iter(units), None)
    if first is None:
        return None
    mine = set(first.lanes)
    return FirstUnsettled(
        tick=first.tick,
        key_hash=first.lanes[0] if by_key and first.lanes else None,
        state=_state(first, held, now_s),
        deliveries=first.times + (first.lease > WAITING),
        first_s=None if first.first_s is None else now_s - first.first_s,
        behind=sum([not mine.isdisjoint(it.lanes) for it in units]) - bool(mine),
        unsettled=len(units),
        unsettled_max=units_max,
    )


def _state(unit: Unit, held: TickSpans, now_s: float) -> Unsettled:
    if held.has(unit.tick):
        return Unsettled.HELD
    if unit.lease == SETTLING:
        return Unsettled.SETTLING
    if unit.lease != WAITING:
        return Unsettled.LEASED
    return Unsettled.DELAYED if unit.due_s > now_s else Unsettled.WAITING
