"""A set of ticks as spans: sorted, apart from each other, changed in place."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from broker.model.groups.consumer_group import TickSpan
from broker.model.ids import TimeTick


class TickSpans:
    """Each operation takes one search, and moves the spans behind the change."""

    __slots__ = ("_afters", "_uptos")

    def __init__(self, spans: Iterable[TickSpan] = ()) -> None:
        self._afters: list[TimeTick] = []
        self._uptos: list[TimeTick] = []
        for span in spans:
            self.add(span)

    def __len__(self) -> int:
        return len(self._afters)

    def __iter__(self) -> Iterator[TickSpan]:
        return map(TickSpan, self._afters, self._uptos)

    def add(self, span: TickSpan) -> None:
        """Add the ticks; spans that touch become one."""
        after, upto = span.after, span.upto
        if after >= upto:
            return
        first = bisect_left(self._uptos, after)
        end = bisect_right(self._afters, upto)
        if first < end:
            after, upto = min(after, self._afters[first]), max(upto, self._uptos[end - 1])
        self._afters[first:end] = [after]
        self._uptos[first:end] = [upto]

    def remove(self, span: TickSpan) -> None:
        """Remove the ticks, also those of a part of a span."""
        if span.after >= span.upto:
            return
        first = bisect_right(self._uptos, span.after)
        end = bisect_left(self._afters, span.upto)
        left: list[TickSpan] = []
        if first < end:
            head = TickSpan(self._afters[first], span.after)
            rest = TickSpan(span.upto, self._uptos[end - 1])
            left = [it for it in (head, rest) if it.after < it.upto]
        self._afters[first:end] = [it.after for it in left]
        self._uptos[first:end] = [it.upto for it in left]

    def within(self, span: TickSpan) -> list[TickSpan]:
        """The parts of the set inside of the span."""
        first = bisect_right(self._uptos, span.after)
        end = bisect_left(self._afters, span.upto)
        return [
            TickSpan(max(self._afters[at], span.after), min(self._uptos[at], span.upto))
            for at in range(first, max(first, end))
        ]

    def missing(self, span: TickSpan) -> "TickSpans":
        """The ticks of the span that are not in the set."""
        found = TickSpans([span])
        for each in self.within(span):
            found.remove(each)
        return found

    def has(self, tick: TimeTick) -> bool:
        """Whether the tick is in the set."""
        at = bisect_left(self._uptos, tick)
        return at < len(self._uptos) and self._afters[at] < tick

    def raised(self, floor: TimeTick) -> TimeTick:
        """The end of what the set covers from `floor` on; what lies up to there leaves the set."""
        while self._afters and self._afters[0] <= floor:
            floor = max(floor, self._uptos.pop(0))
            del self._afters[0]
        return floor

    @property
    def end(self) -> TimeTick:
        """The last tick; 0 for the empty set."""
        return self._uptos[-1] if self._uptos else TimeTick(0)
