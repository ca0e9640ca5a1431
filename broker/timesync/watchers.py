"""Requests that wait for the next tick of a barrier."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from actors import Envelope
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import TimeTick
from broker.timesync.messages import BarrierMessage, PassedTicks

WATCH_S = 1.0
"""How long a NextTicks waits before it is answered None, so that the edge can check its client."""

WATCHES_MAX = 4096
"""Over all barriers of an actor; more are refused, not queued."""


@dataclass(frozen=True, slots=True)
class BarrierWatch:
    """A request for the ticks after `after`."""

    envelope: Envelope[BarrierMessage]
    barrier: str
    after: TimeTick
    until_s: float


class Watchers:
    """Waiting requests in the order of arrival, which is the order of `until_s`."""

    def __init__(self) -> None:
        self._waiting: deque[BarrierWatch] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def keep(
        self, envelope: Envelope[BarrierMessage], barrier: str, after: TimeTick, now_s: float
    ) -> None:
        """Keep a request until a tick passes or WATCH_S is over."""
        if len(self._waiting) >= WATCHES_MAX:
            cause = f"{WATCHES_MAX} requests watch barriers already; try again later"
            envelope.fail(Refused(StreamingCode.INNER, cause))
            return
        self._waiting.append(BarrierWatch(envelope, barrier, after, now_s + WATCH_S))

    def tell(self, barrier: str, passing: Callable[[TimeTick], PassedTicks | None]) -> None:
        """Answer the watchers of this barrier with what `passing` returns for their tick."""
        still: deque[BarrierWatch] = deque()
        for watch in self._waiting:
            news = passing(watch.after) if watch.barrier == barrier else None
            if news is None:
                still.append(watch)
            else:
                watch.envelope.reply(news)
        self._waiting = still

    def expire(self, now_s: float) -> None:
        """Answer None to requests that have waited for WATCH_S."""
        while self._waiting and self._waiting[0].until_s <= now_s:
            self._waiting.popleft().envelope.reply(None)
