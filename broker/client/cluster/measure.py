"""How much lies on some vchannels in a span of ticks, and a tick to stop at: asked of all owners.

It asks on where an answer ends early, until there is a choice. Never reads a message.
Next: broker/node/queries/measure_channels.py
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from broker.client.errors import InvalidArgument
from broker.client.net.connection import Connection
from broker.client.net.owners import Owners
from broker.core.time.tick_choice import Interval, choose, extended, split
from broker.model.ids import BroadcastId, TimeTick
from broker.model.measured import AtomicMember, MeasuredChannel, MeasuredSpan, SpanStep, TickChoice
from schemas.generated.tidemark import v1

_SERVICE = "/tidemark.v1.Log/"
STEPS_OF_A_LIMIT = 32
"""Each channel is told in steps of so many parts of its share of the limit, so that the sum of
what is counted too much stays far below the limit."""


@dataclass(frozen=True, slots=True)
class MeasureLimits:
    """What a reader wants to read at once; 0: no limit."""

    rows: int = 0
    bytes: int = 0

    @property
    def any(self) -> bool:
        """Whether a reader may stop before the end of what it asked about."""
        return bool(self.rows or self.bytes)


@dataclass(frozen=True, slots=True)
class Measure:
    """`choice`: the largest tick that keeps to the limits and splits no broadcast.

    `steps[vchannel]` tell in between; all there is up to `exact` is in them.
    """

    after: TimeTick
    choice: TickChoice
    measured: MeasuredSpan

    @property
    def exact(self) -> TimeTick:
        """Up to here everything was looked at."""
        return self.measured.exact

    @property
    def steps(self) -> Mapping[str, tuple[SpanStep, ...]]:
        """By vchannel: how many rows and bytes there are up to which tick."""
        return {name: it.steps for name, it in self.measured.channels.items()}

    def ranges(self, vchannel: str, parts: int) -> list[Interval]:
        """At most so many spans (after, until] of about as many rows each, up to the choice."""
        span = (self.after, self.choice.tick)
        return split(self.measured.channels[vchannel], span, parts)


class Measurements:
    """Each call has its own deadline and raises what `errors` has."""

    def __init__(self, owners: Owners, *, deadline_s: float) -> None:
        self._owners = owners
        self._deadline_s = deadline_s

    async def measure(
        self, channels: Sequence[str], span: tuple[int, int], limits: MeasureLimits
    ) -> Measure:
        """See `Client.measure`. An answer that ended early is all there is to know for a limit."""
        after, until = TimeTick(span[0]), TimeTick(span[1])
        _check(channels, after, until, limits)
        nothing = MeasuredChannel((), after)
        measured = MeasuredSpan(after, until, dict.fromkeys(channels, nothing))
        while True:
            measured = extended(measured, await self._further(measured, limits))
            choice = choose(measured, limits.rows, limits.bytes)
            if choice is not None and (limits.any or measured.exact >= until):
                return Measure(after, choice, measured)

    async def _further(self, measured: MeasuredSpan, limits: MeasureLimits) -> MeasuredSpan:
        """What lies beyond; only those channels that are behind are asked, at their owners."""
        least = measured.exact
        behind = [name for name, it in measured.channels.items() if it.exact == least]
        channels = list(measured.channels)
        share = STEPS_OF_A_LIMIT * len(channels)

        async def ask(connection: Connection, names: Sequence[str]) -> v1.MeasureResponse:
            return await connection.call(
                _SERVICE + "Measure",
                v1.MeasureRequest(
                    channels=list(names),
                    after_ticks=[least],
                    until_tick=measured.until,
                    rows_max=limits.rows,
                    bytes_max=limits.bytes,
                    step_rows=-(-limits.rows // share),
                    step_bytes=-(-limits.bytes // share),
                    together=channels,
                ),
                v1.MeasureResponse,
                deadline_s=self._deadline_s,
            )

        answers = [answer for _, answer in await self._owners.ask(behind, ask)]
        found = {it.channel: _channel(it) for answer in answers for it in answer.channels}
        copies = [_copy(it) for answer in answers for it in answer.copies]
        return MeasuredSpan(least, measured.until, found, tuple(copies))


def _check(channels: Sequence[str], after: int, until: int, limits: MeasureLimits) -> None:
    if not channels:
        raise InvalidArgument("a measure needs at least one channel")
    if not 0 <= after < until < 1 << 63:
        raise InvalidArgument(f"no tick lies in the span ({after}, {until}]")
    if limits.rows < 0 or limits.bytes < 0:
        raise InvalidArgument(f"limits of {limits.rows} rows, {limits.bytes} bytes; 0 is none")


def _channel(it: v1.MeasuredChannel) -> MeasuredChannel:
    columns = zip(it.first_ticks, it.ticks, it.rows, it.bytes, strict=True)
    steps = [
        SpanStep(TimeTick(first), TimeTick(tick), rows, size) for first, tick, rows, size in columns
    ]
    return MeasuredChannel(tuple(steps), TimeTick(it.exact_tick))


def _copy(it: v1.BroadcastCopy) -> AtomicMember:
    return AtomicMember(BroadcastId(it.broadcast_id), it.vchannel, TimeTick(it.time_tick), it.of)
