"""How often messages that are not acknowledged were delivered, as far as it is recorded."""

from collections.abc import Iterable, Iterator

from broker.core.groups.tick_spans import TickSpans
from broker.model.groups.consumer_group import TickSpan, TriedSpans


class TriedCounts:
    """Each tick has at most one count."""

    __slots__ = ("_by_times",)

    def __init__(self, saved: Iterable[TriedSpans] = ()) -> None:
        self._by_times = {each.times: TickSpans(each.spans) for each in saved}

    def __len__(self) -> int:
        """The number of spans."""
        return sum(map(len, self._by_times.values()))

    def __iter__(self) -> Iterator[TriedSpans]:
        for times in sorted(self._by_times):
            yield TriedSpans(times, tuple(self._by_times[times]))

    def put(self, span: TickSpan, times: int) -> None:
        """The messages were delivered so often, whatever was said of them before."""
        self.remove(span)
        self._by_times.setdefault(times, TickSpans()).add(span)

    def remove(self, span: TickSpan) -> None:
        """Nobody needs the counts of these any more."""
        for times, spans in list(self._by_times.items()):
            spans.remove(span)
            if not spans:
                del self._by_times[times]

    def cap(self, times_max: int) -> None:
        """Larger counts become this one."""
        for times in [it for it in self._by_times if it > times_max]:
            for span in tuple(self._by_times[times]):
                self.put(span, times_max)
