"""Turns filters of a batch query into a range of ticks and a set of vchannels.

Only filters that the range fulfils exactly are taken; Spark applies the others to what was read.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, cast

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from broker.spark.source.bounds import TICK_LOGICAL_BITS, TICK_MAX


class PositionColumns(NamedTuple):
    """The columns that say where a row lies; never null. A row's own columns may be named alike."""

    tick: str
    time: str
    vchannel: str


OF_ROWS: Final = PositionColumns("_time_tick", "_timestamp", "_vchannel")
OF_MESSAGES: Final = PositionColumns("time_tick", "timestamp", "vchannel")
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
US_PER_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class FilteredRange:
    """Ticks in (after, until], on some vchannels; None for all."""

    after: int = 0
    until: int = TICK_MAX
    vchannels: frozenset[str] | None = None

    def includes(self, vchannel: str) -> bool:
        return self.vchannels is None or vchannel in self.vchannels

    def and_ticks(self, first: int, last: int) -> "FilteredRange":
        """Return the part of the range with ticks in [first, last]."""
        after = min(max(self.after, first - 1), TICK_MAX)
        return replace(self, after=after, until=max(min(self.until, last), 0))

    def and_vchannels(self, names: Iterable[str]) -> "FilteredRange":
        """Return the part of the range on these vchannels."""
        wanted = frozenset(names)
        return replace(
            self, vchannels=wanted if self.vchannels is None else self.vchannels & wanted
        )


def pushed(
    filters: Iterable[Filter], columns: PositionColumns
) -> tuple[FilteredRange, list[Filter]]:
    """Return the range of all filters that one can fulfil, and the other filters."""
    found, left = FilteredRange(), []
    for each in filters:
        narrower = _narrowed(found, each, columns)
        if narrower is None:
            left.append(each)
        else:
            found = narrower
    return found, left


def _narrowed(
    found: FilteredRange, given: Filter, columns: PositionColumns
) -> FilteredRange | None:
    attribute: tuple[str, ...] = getattr(given, "attribute", ())
    if len(attribute) != 1 or attribute[0] not in columns:
        return None
    if isinstance(given, IsNotNull):
        return found
    if type(given) not in _SPANS:
        return None
    column, value = attribute[0], cast("Any", given).value
    if column == columns.vchannel:
        names = value if isinstance(given, In) else [value]
        taken = isinstance(given, In | EqualTo) and all(isinstance(it, str) for it in names)
        return found.and_vchannels(names) if taken else None
    if isinstance(given, In):
        return None
    if column == columns.tick and type(value) is int:
        return found.and_ticks(*_SPANS[type(given)](value, value))
    if column == columns.time and isinstance(value, datetime) and value.tzinfo is not None:
        # A tick has whole milliseconds, a moment of Spark microseconds.
        microseconds = (value - EPOCH) // MICROSECOND
        floor, ceiling = microseconds // US_PER_MS, -(-microseconds // US_PER_MS)
        first, last = _SPANS[type(given)](floor, ceiling)
        if isinstance(given, EqualTo) and floor != ceiling:
            first, last = 1, 0
        return found.and_ticks(first << TICK_LOGICAL_BITS, ((last + 1) << TICK_LOGICAL_BITS) - 1)
    return None


def _equal(floor: int, ceiling: int) -> tuple[int, int]:
    return ceiling, floor


_SPANS: Final[Mapping[type[Filter], Callable[[int, int], tuple[int, int]]]] = {
    EqualTo: _equal,
    GreaterThan: lambda floor, _: (floor + 1, TICK_MAX),
    GreaterThanOrEqual: lambda _, ceiling: (ceiling, TICK_MAX),
    LessThan: lambda _, ceiling: (0, ceiling - 1),
    LessThanOrEqual: lambda floor, _: (0, floor),
    In: _equal,
}
"""The first and the last value that fulfil a filter, of its value rounded down and up."""
