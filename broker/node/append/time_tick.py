"""Has the Appenders of a node close a time tick at every interval.

It takes no tick itself: only the writer knows which messages with smaller ticks are in flight.

An idle node closes the ticks of all pchannels at one beat: one wake-up of the process, and one
range of ticks of the oracle. A busy one spreads them over the interval, so that no beat serves
thousands of readers, or syncs all logs, at once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from actors import Actor, ActorError, Context, Envelope, Timer
from broker.model.ids import MessageId, PChannelName, TimeTick
from broker.node.appender_messages import CloseTick
from broker.node.state.beat_phase import PHASES, phase_of
from broker.node.state.node_runtime import NodeRuntime
from broker.node.state.open_channels import OpenChannel

READERS_AT_ONCE_MAX = 64
WRITTEN_AT_ONCE_MAX = 2
"""A node with more waiting readers, or more pchannels written in an interval, is busy."""

CLOSE_TICK = CloseTick()


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A timer: the tick interval has passed."""


@dataclass(frozen=True, slots=True)
class PhaseBegins:
    """A timer: the pchannels of this phase are due, on a busy node."""

    phase: int


@dataclass(slots=True)
class _Seen:
    """A pchannel at the last beat. `missed`: beats in a row without a newer closed tick."""

    closed: TimeTick
    next_id: MessageId
    missed: int = 0


class TimeTickHeartbeat(Actor[Heartbeat | PhaseBegins]):
    """See the module. Nothing is lost when it restarts."""

    _context: Context[Heartbeat | PhaseBegins]
    _missed_max: int

    def __init__(self, node: NodeRuntime) -> None:
        self._node = node
        self._seen: dict[PChannelName, _Seen] = {}
        self._busy = False
        self._beat: Timer | None = None
        self._interval_s = 0.0

    async def started(self, context: Context[Heartbeat | PhaseBegins]) -> None:
        self._context = context
        self._set_beat()
        # A heartbeat now: the next one may be far away.
        self._node.live.listen("time_tick", lambda: context.self.tell(Heartbeat()))

    async def receive(self, batch: Sequence[Envelope[Heartbeat | PhaseBegins]]) -> None:
        """Ask for ticks. When none was closed for long, wake readers for their empty answers."""
        serving = self._node.open_channels.all()
        for envelope in batch:
            match envelope.message:
                case PhaseBegins(phase):
                    self._close(it for it in serving if phase_of(it.channel.name) == phase)
                case Heartbeat():
                    self._set_beat()
                    self._interval(serving)

    def _set_beat(self) -> None:
        limits = self._node.limits
        if limits.tick_interval_s == self._interval_s:
            return
        if self._beat is not None:
            self._beat.cancel()
        self._interval_s = limits.tick_interval_s
        self._beat = self._context.on_beat(self._interval_s, Heartbeat())
        # While no tick closes, only this actor wakes readers, which must answer within
        # `pull_wait_s`.
        self._missed_max = max(1, round(limits.pull_wait_s / self._interval_s))

    def _interval(self, serving: Sequence[OpenChannel]) -> None:
        was_busy, self._busy = self._busy, self._is_busy(serving)
        # All at the first beat of a busy time, too, so that none waits longer than the interval.
        only_first = was_busy and self._busy
        self._close(it for it in serving if not only_first or not phase_of(it.channel.name))
        if self._busy:
            step_s = self._node.limits.tick_interval_s / PHASES
            for phase in range(1, PHASES):
                self._context.after(phase * step_s, PhaseBegins(phase))

    def _is_busy(self, serving: Sequence[OpenChannel]) -> bool:
        readers = written = 0
        seen, self._seen = self._seen, {}
        for each in serving:
            name, next_id = each.channel.name, each.tail.next_id
            before = seen.get(name) or _Seen(TimeTick(0), next_id)
            written += before.next_id != next_id
            before.next_id = next_id
            self._seen[name] = before
            readers += each.tail.waiting
        return readers > READERS_AT_ONCE_MAX or written > WRITTEN_AT_ONCE_MAX

    def _close(self, channels: Iterable[OpenChannel]) -> None:
        for each in channels:
            try:
                each.appender.tell(CLOSE_TICK)
            except ActorError:  # full or dying: the next heartbeat comes soon
                pass
            seen = self._seen.get(each.channel.name)
            if seen is None:
                continue  # it opened since the last beat
            seen.missed = seen.missed + 1 if each.tail.closed.tick == seen.closed else 0
            seen.closed = each.tail.closed.tick
            if seen.missed >= self._missed_max:
                seen.missed = 0
                each.tail.wake_all()
