"""What an ordered group delivers: the messages of one tick each, from the floor up to the edge."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from broker.core.groups.leases import NO_TXN
from broker.model.failure import Refusal, StreamingCode
from broker.model.groups.consumer_group import TickSpan
from broker.model.ids import TimeTick, TxnId

WAITING: Final = 0
"""The unit is to be delivered."""
SETTLING: Final = -1
"""It is on no lease: what settles it is being written, or a transaction holds it."""
_SLACK: Final = 64


@dataclass(slots=True)
class Unit:
    """The messages at `tick`: one, or all of a transaction.

    `span`: with the empty ticks before it. `lanes`: it comes behind what is before it in these, and
    before what is behind. `times`: how often it was delivered. `lease`: a number, WAITING or
    SETTLING. `txn`: which is to acknowledge it, if any. `first_s`: when it was delivered first.
    """

    tick: TimeTick
    span: TickSpan
    lanes: tuple[int, ...]
    times: int = 0
    due_s: float = 0.0
    lease: int = WAITING
    txn: TxnId = NO_TXN
    first_s: float | None = None


class OrderedUnits:
    """Units by tick. Iteration is in the order of ticks."""

    def __init__(self) -> None:
        self._units: dict[TimeTick, Unit] = {}
        self._ticks: list[TimeTick] = []
        """With those of units that are gone, now and then without."""

    def __len__(self) -> int:
        return len(self._units)

    def __iter__(self) -> Iterator[Unit]:
        """In order; none may be added meanwhile, or removed."""
        return iter(self._units.values())

    def add(self, unit: Unit) -> None:
        """Add a unit at a new tick; cheap above all others."""
        if len(self._ticks) > 2 * len(self._units) + _SLACK:
            self._ticks = list(self._units)
        in_order = not self._ticks or self._ticks[-1] < unit.tick
        self._units[unit.tick] = unit
        if in_order:
            self._ticks.append(unit.tick)
            return
        self._ticks = sorted(self._units)
        self._units = {it: self._units[it] for it in self._ticks}

    def remove(self, unit: Unit) -> None:
        del self._units[unit.tick]

    def within(self, spans: Iterable[TickSpan]) -> list[Unit]:
        """The units whose ticks are in these spans, which are in order."""
        found: list[Unit] = []
        for span in spans:
            first, end = bisect_right(self._ticks, span.after), bisect_right(self._ticks, span.upto)
            found += [self._units[it] for it in self._ticks[first:end] if it in self._units]
        return found

    def reaching(self, spans: Iterable[TickSpan]) -> list[Unit]:
        """Units whose spans may have ticks of these: those within, and the next ones around."""
        found: list[Unit] = []
        for span in spans:
            first, end = bisect_right(self._ticks, span.after), bisect_right(self._ticks, span.upto)
            while first and self._ticks[first - 1] not in self._units:
                first -= 1
            while end < len(self._ticks) and self._ticks[end] not in self._units:
                end += 1
            around = self._ticks[max(0, first - 1) : end + 1]
            found += [self._units[it] for it in around if it in self._units]
        return found


LATER: Final = Refusal(
    StreamingCode.INVALID_REQUEST_SEQ,
    "the messages are no longer on this lease, as an earlier one of the same key is delivered"
    " again, and they come behind it",
)


def order_refusal(units: Iterable[Unit], ticks: set[TimeTick]) -> Refusal | None:
    """Why these units of a lease cannot be settled: something before them in a lane is not."""
    left: set[int] = set()
    last = max(ticks)
    for unit in units:
        if unit.tick > last:
            break
        if unit.tick not in ticks:
            left.update(unit.lanes)
        elif not left.isdisjoint(unit.lanes):
            cause = (
                f"the message at tick {unit.tick} comes behind one of the same key, or of the same"
                " vchannel, that is not settled; acknowledge that before it, or with it"
            )
            return Refusal(StreamingCode.INVALID_ARGUMENT, cause)
    return None


def mixed_refusal(settling: Iterable[Unit], units: Iterable[Unit], txn: TxnId) -> Refusal | None:
    """Why units cannot be settled: others of their lanes could take effect without them."""
    others = {lane for it in settling if it.txn != txn for lane in it.lanes}
    if all(others.isdisjoint(it.lanes) for it in units):
        return None
    cause = (
        "earlier messages of the same key are acknowledged in another transaction, or in none;"
        " acknowledge them together, or wait until that is done"
    )
    return Refusal(StreamingCode.INVALID_ARGUMENT, cause)
