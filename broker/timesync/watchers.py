"""Those who wait for the next tick of a barrier.

Owns the waiting askers and until when each may be kept. Never makes a tick pass.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from actors import Envelope
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import TimeTick
from broker.timesync.messages import BarrierMessage, PassedTicks

WATCH_S = 1.0
"""How long one NextTicks waits before it is answered None, and the edge may look round."""

WATCHES_MAX = 4096
"""Over all barriers of an actor; beyond, they are refused rather than kept."""


@dataclass(frozen=True, slots=True)
class BarrierWatch:
    """Somebody who wants what passes after `after`."""

    envelope: Envelope[BarrierMessage]
    barrier: str
    after: TimeTick
    until_s: float


class Watchers:
    """In the order of asking, which is the order of `until_s`."""

    def __init__(self) -> None:
        self._waiting: deque[BarrierWatch] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def keep(
        self, envelope: Envelope[BarrierMessage], barrier: str, after: TimeTick, now_s: float
    ) -> None:
        """Until something passes, or about WATCH_S is over."""
        if len(self._waiting) >= WATCHES_MAX:
            cause = f"more than {WATCHES_MAX} watch barriers here"
            envelope.fail(Refused(StreamingCode.INNER, cause))
            return
        self._waiting.append(BarrierWatch(envelope, barrier, after, now_s + WATCH_S))

    def tell(self, barrier: str, passing: Callable[[TimeTick], PassedTicks | None]) -> None:
        """Answer those who watch this barrier with what is `passing` after their tick."""
        still: deque[BarrierWatch] = deque()
        for watch in self._waiting:
            news = passing(watch.after) if watch.barrier == barrier else None
            if news is None:
                still.append(watch)
            else:
                watch.envelope.reply(news)
        self._waiting = still

    def let_go(self, now_s: float) -> None:
        """Answer None to those who have waited for long."""
        while self._waiting and self._waiting[0].until_s <= now_s:
            self._waiting.popleft().envelope.reply(None)
