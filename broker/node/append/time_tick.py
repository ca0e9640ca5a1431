"""The heartbeat of one pchannel: has its Appender close a tick at every interval.

It never takes a tick itself: only the writer knows what is on its way.
Next: broker/node/append/appender.py
"""

from collections.abc import Sequence

from actors import Actor, ActorError, Context, Envelope
from broker.model.ids import PChannelName, TimeTick
from broker.node.state.messages import Beat, CloseTick, TimeTickMessage
from broker.node.state.parts import NodeParts

CLOSE_TICK = CloseTick()
FIRST_BEAT = Beat()


class TimeTickBeat(Actor[TimeTickMessage]):
    """See the module."""

    _context: Context[TimeTickMessage]

    def __init__(self, name: PChannelName, parts: NodeParts) -> None:
        self._name = name
        self._parts = parts
        self._seen = TimeTick(0)
        self._missed = 0
        self._missed_max = max(1, round(parts.limits.pull_wait_s / parts.limits.tick_interval_s))

    async def started(self, context: Context[TimeTickMessage]) -> None:
        """Begin to beat, somewhere within an interval: pchannels should not beat all at once."""
        self._context = context
        interval_s = self._parts.limits.tick_interval_s
        context.after(context.random.uniform(0.0, interval_s), FIRST_BEAT)

    async def receive(self, batch: Sequence[Envelope[TimeTickMessage]]) -> None:
        """A beat. When ticks stand still for long, let waiting readers have their empty answers."""
        if any(envelope.message is FIRST_BEAT for envelope in batch):
            self._context.every(self._parts.limits.tick_interval_s, Beat())
        opened = self._parts.open_channels.find(self._name)
        if opened is None:
            return
        try:
            opened.appender.tell(CLOSE_TICK)
        except ActorError:  # full or dying: the next beat is near
            pass
        self._missed = self._missed + 1 if opened.tail.closed.tick == self._seen else 0
        self._seen = opened.tail.closed.tick
        if self._missed >= self._missed_max:
            self._missed = 0
            opened.tail.wake_all()
