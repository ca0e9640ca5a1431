"""Measures how much lies on some vchannels in a span of ticks, and finds a tick to stop at.

The owners answer from what the log knows of its records; no message is read. An owner may answer
for a part of the span only: then it is asked for the rest, until a tick can be chosen.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from broker.client.cluster.service import ServiceCalls
from broker.client.cluster.targets import Targets
from broker.client.errors import InvalidArgument
from broker.client.net.connection import Connection
from broker.client.net.owners import Owners
from broker.core.time.tick_choice import Interval, choose, extended, split
from broker.model.ids import BroadcastId, TimeTick
from broker.model.measured import AtomicMember, MeasuredChannel, MeasuredSpan, SpanStep, TickChoice
from schemas.generated.tidemark import v1

STEPS_PER_LIMIT = 32
"""Each channel's share of a limit is divided into this many steps, so that what is counted too
much at the ends of steps stays far below the limit."""


@dataclass(frozen=True, slots=True)
class MeasureLimits:
    """How much a reader wants to read at once; 0: no limit."""

    rows: int = 0
    bytes: int = 0

    @property
    def any(self) -> bool:
        """Whether the reader may stop before the end of the span."""
        return bool(self.rows or self.bytes)


@dataclass(frozen=True, slots=True)
class Measurement:
    """What `Client.measure` found.

    `choice`: the largest tick within the limits that splits no broadcast, with the rows and bytes
    up to it. `steps[vchannel]`: how they are spread; complete up to the tick `exact`.
    """

    after: TimeTick
    choice: TickChoice
    measured: MeasuredSpan

    @property
    def exact(self) -> TimeTick:
        """Everything up to this tick was counted."""
        return self.measured.exact

    @property
    def steps(self) -> Mapping[str, tuple[SpanStep, ...]]:
        """For each vchannel: the number of rows and bytes in each span of ticks."""
        return {name: it.steps for name, it in self.measured.channels.items()}

    def ranges(self, vchannel: str, parts: int) -> list[Interval]:
        """At most `parts` spans (after, until] of about equally many rows, up to the choice."""
        span = (self.after, self.choice.tick)
        return split(self.measured.channels[vchannel], span, parts)


class Measuring:
    """Asks the owners within a deadline; raises what `broker.client.errors` has."""

    def __init__(self, owners: Owners, targets: Targets, *, deadline_s: float) -> None:
        self._owners = owners
        self._targets = targets
        self._deadline_s = deadline_s

    async def measure(
        self,
        targets: str | Iterable[str],
        *,
        after: int,
        until: int,
        rows_max: int = 0,
        bytes_max: int = 0,
    ) -> Measurement:
        """Count what lies on the targets with ticks in (after, until], without reading it.

        `.choice` is the largest tick up to which there are at most `rows_max` rows (messages) and
        `bytes_max` stored bytes on all of them together (0: no limit), or the first tick that has
        any. It splits no broadcast, if `until` does not. `.steps[vchannel]`: where the rows lie;
        `.ranges(vchannel, parts)`: a vchannel in about equal shares. A transaction is counted where
        its commit is. Raises InvalidArgument for an empty span, a tick from the future, no targets.
        """
        channels = (await self._targets.resolve_all(targets)).vchannels
        limits = MeasureLimits(rows_max, bytes_max)
        _check(channels, after, until, limits)
        measured = MeasuredSpan(
            TimeTick(after),
            TimeTick(until),
            dict.fromkeys(channels, MeasuredChannel((), TimeTick(after))),
        )
        while True:
            measured = extended(measured, await self._further(measured, limits))
            choice = choose(measured, limits.rows, limits.bytes)
            # With a limit the first choice is final; without one all of the span is to be counted.
            if choice is not None and (limits.any or measured.exact >= until):
                return Measurement(TimeTick(after), choice, measured)

    async def _further(self, measured: MeasuredSpan, limits: MeasureLimits) -> MeasuredSpan:
        """What lies beyond `measured.exact`, from the owners of the channels that end there."""
        least = measured.exact
        # The others are known further already; a choice needs all channels up to one tick.
        behind = [name for name, it in measured.channels.items() if it.exact == least]
        channels = list(measured.channels)
        share = STEPS_PER_LIMIT * len(channels)

        async def ask(connection: Connection, names: Sequence[str]) -> v1.MeasureResponse:
            request = v1.MeasureRequest(
                channels=list(names),
                after_ticks=[least],
                until_tick=measured.until,
                rows_max=limits.rows,
                bytes_max=limits.bytes,
                # Rounded up: 0 would mean steps of any size.
                step_rows=-(-limits.rows // share),
                step_bytes=-(-limits.bytes // share),
                # All of them: a broadcast may have its other copies on channels of another node.
                together=channels,
            )
            node = ServiceCalls(connection, "tidemark.v1.Log", deadline_s=self._deadline_s)
            return await node.ask("Measure", request, v1.MeasureResponse)

        answers = [answer for _, answer in await self._owners.ask(behind, ask)]
        found = {it.channel: _channel(it) for answer in answers for it in answer.channels}
        copies = [_copy(it) for answer in answers for it in answer.copies]
        return MeasuredSpan(least, measured.until, found, tuple(copies))


def _check(channels: Sequence[str], after: int, until: int, limits: MeasureLimits) -> None:
    if not channels:
        raise InvalidArgument("a measurement needs at least one channel; name a target")
    if not 0 <= after < until < 1 << 63:
        raise InvalidArgument(f"no tick lies in the span ({after}, {until}]; give after < until")
    if limits.rows < 0 or limits.bytes < 0:
        raise InvalidArgument(
            f"limits of {limits.rows} rows and {limits.bytes} bytes: use 0 for no limit"
        )


def _channel(it: v1.MeasuredChannel) -> MeasuredChannel:
    columns = zip(it.first_ticks, it.ticks, it.rows, it.bytes, strict=True)
    steps = [
        SpanStep(TimeTick(first), TimeTick(tick), rows, size) for first, tick, rows, size in columns
    ]
    return MeasuredChannel(tuple(steps), TimeTick(it.exact_tick))


def _copy(it: v1.BroadcastCopy) -> AtomicMember:
    return AtomicMember(BroadcastId(it.broadcast_id), it.vchannel, TimeTick(it.time_tick), it.of)
