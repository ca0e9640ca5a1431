"""Polls the closed tick of each pchannel and feeds the soft barrier with them.

A poll that fails is repeated at the next timer; tick 0 is never published.
"""

from collections.abc import Callable, Mapping, Sequence

from actors import Actor, ActorError, Context, Envelope, Timer
from broker.model.failure import Refused
from broker.model.ids import TimeTick
from broker.ports.closed_ticks import ClosedTicks
from broker.timesync.messages import FeedTicks, NewestTick, Poll, TickProducerMessage

FEED_S = 2.0


class TickProducer(Actor[TickProducerMessage]):
    """`statistics`: the cluster's `tick`; polls, failed polls, and the last error."""

    _context: Context[TickProducerMessage]

    def __init__(
        self, source: ClosedTicks, soft_path: str, hard_path: str, poll_s: Callable[[], float]
    ) -> None:
        """`poll_s`: the seconds between two polls; a change counts from the next Poll on."""
        self._source = source
        self._soft_path = soft_path
        self._hard_path = hard_path
        self._poll_s = poll_s
        self._beat: Timer | None = None
        self._beat_s = 0.0
        self._tick = TimeTick(0)
        self._polls = self._failures = 0
        self._error = ""

    async def started(self, context: Context[TickProducerMessage]) -> None:
        self._context = context
        context.self.tell(Poll())
        self._set_beat()

    async def receive(self, batch: Sequence[Envelope[TickProducerMessage]]) -> None:
        """Poll once, however many timers have fired."""
        self._polls += 1
        self._set_beat()
        try:
            await self._poll()
        except (Refused, ActorError) as error:
            self._failures += 1
            self._error = str(error)

    def statistics(self) -> Mapping[str, int | float | str]:
        found = {"tick": self._tick, "polls": self._polls, "failures": self._failures}
        return {**found, "error": self._error} if self._error else found

    def _set_beat(self) -> None:
        wanted_s = self._poll_s()
        if wanted_s == self._beat_s:
            return
        if self._beat is not None:
            self._beat.cancel()
        self._beat_s = wanted_s
        self._beat = self._context.on_beat(wanted_s, Poll())

    async def _poll(self) -> None:
        """Looks the barriers up each time, so that a restarted one is fed by the next poll."""
        tree = self._context.tree
        ticks = await self._source.closed_ticks()
        # First, so that reports that wait for it are judged by the newest tick.
        horizon = NewestTick(max(ticks.values(), default=TimeTick(0)))
        tree.find(self._hard_path).tell(horizon)
        soft = tree.find(self._soft_path)
        soft.tell(horizon)
        tick = await soft.ask(FeedTicks(ticks), deadline_s=FEED_S)
        assert isinstance(tick, int)
        # A restarted barrier begins at 0 again; the tick that is shown must not fall.
        self._tick = TimeTick(max(self._tick, tick))
