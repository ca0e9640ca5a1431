"""Has the Appender of one pchannel close a time tick at every interval.

It takes no tick itself: only the writer knows which messages with smaller ticks are in flight.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from actors import Actor, ActorError, Context, Envelope
from broker.model.ids import PChannelName, TimeTick
from broker.node.appender_messages import CloseTick
from broker.node.state.node_runtime import NodeRuntime

CLOSE_TICK = CloseTick()


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A timer: the tick interval has passed."""


FIRST_HEARTBEAT = Heartbeat()


class TimeTickHeartbeat(Actor[Heartbeat]):
    """See the module."""

    _context: Context[Heartbeat]

    def __init__(self, name: PChannelName, node: NodeRuntime) -> None:
        self._name = name
        self._node = node
        self._seen = TimeTick(0)
        self._missed = 0
        # While no tick closes, only this actor wakes readers, which must answer within
        # `pull_wait_s`.
        self._missed_max = max(1, round(node.limits.pull_wait_s / node.limits.tick_interval_s))

    async def started(self, context: Context[Heartbeat]) -> None:
        """Start at a random point of the interval, so that pchannels do not close ticks in step."""
        self._context = context
        interval_s = self._node.limits.tick_interval_s
        context.after(context.random.uniform(0.0, interval_s), FIRST_HEARTBEAT)

    async def receive(self, batch: Sequence[Envelope[Heartbeat]]) -> None:
        """Ask for a tick. When none was closed for long, wake readers for their empty answers."""
        # By identity, because all Heartbeats are equal.
        if any(envelope.message is FIRST_HEARTBEAT for envelope in batch):
            self._context.every(self._node.limits.tick_interval_s, Heartbeat())
        opened = self._node.open_channels.find(self._name)
        if opened is None:
            return
        try:
            opened.appender.tell(CLOSE_TICK)
        except ActorError:  # full or dying: the next heartbeat comes soon
            pass
        self._missed = self._missed + 1 if opened.tail.closed.tick == self._seen else 0
        self._seen = opened.tail.closed.tick
        if self._missed >= self._missed_max:
            self._missed = 0
            opened.tail.wake_all()
