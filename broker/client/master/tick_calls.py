"""The time tick producer: who reports ticks, which channels get them, and the reports."""

from collections.abc import Iterable

from broker.client.cluster.retrying import retried
from broker.client.cluster.service import ServiceCalls
from broker.client.errors import BadTarget, ChannelNotExist, UnknownMember
from broker.model.ids import TimeTick
from broker.model.master.time_ticks import (
    TickOrigin,
    TickPolicy,
    TickReport,
    TickSettings,
    TimeTicksView,
)
from schemas.generated.tidemark import v1


class TimeTickCalls:
    """Ticks of PROXIES go to insert channels, those of WRITE_NODES to key-to-segment channels."""

    def __init__(self, calls: ServiceCalls, *, deadline_s: float) -> None:
        self._calls = calls
        self._deadline_s = deadline_s

    async def set_time_ticks(
        self,
        origin: TickOrigin,
        peers: Iterable[int],
        channels: Iterable[str],
        *,
        policy: TickPolicy | None = None,
        interval_ms: int = 0,
    ) -> TimeTicksView:
        """Set who must report ticks, and the channels that get one message for each that passes.

        No tick passes before each of the `peers` has reported, also after a restart of the server.
        A new peer must be set before it takes its first timestamp. `channels` are pchannels and
        vchannels; the message has type 1200, and the tick in the property `tidemark.time_tick`.
        `policy`: SOFT for proxies, `interval_ms` (500) apart; for write nodes LIST, or MINIMUM.
        Durable when it returns. UnknownMember for a proxy that was not added, and for an unknown
        channel; InvalidArgument for other bad values.
        """
        request = v1.SetTimeTicksRequest(
            source=v1.TickSource(int(origin)),
            peer_ids=list(peers),
            channels=list(channels),
            rule=v1.TickRule(int(policy or 0)),
            interval_ms=interval_ms,
        )
        try:
            return _view(await self._calls.ask("SetTimeTicks", request, v1.TimeTicks))
        except ChannelNotExist as error:
            raise UnknownMember(error.cause, error.code) from None

    async def close_time_ticks(self, origin: TickOrigin) -> TimeTicksView:
        """Stop the ticks of this origin. No effect when none are set."""
        request = v1.CloseTimeTicksRequest(source=v1.TickSource(int(origin)))
        return _view(await self._calls.ask("CloseTimeTicks", request, v1.TimeTicks))

    async def describe_time_ticks(self, origin: TickOrigin) -> TimeTicksView:
        """Who has reported what, which tick has passed, and which one every channel has."""
        request = v1.DescribeTimeTicksRequest(source=v1.TickSource(int(origin)))
        return _view(await self._calls.ask("DescribeTimeTicks", request, v1.TimeTicks))

    async def report_time_tick(self, origin: TickOrigin, peer: int, tick: int) -> TimeTick:
        """Promise that this peer will add no message with a timestamp up to `tick`.

        Returns the newest tick that passed. Call it when the appends of all such messages have
        returned, and again and again: after a restart of the server nothing passes until every peer
        has reported anew. May be repeated; retried until the deadline. UnknownMember for one that
        is no peer; InvalidArgument for a tick of 0 or of the future.
        """
        if not 0 <= tick < 1 << 64:
            raise BadTarget(f"{tick} is not a time tick (64 bits, unsigned)")
        request = v1.ReportTimeTickRequest(
            source=v1.TickSource(int(origin)), peer_id=peer, time_tick=tick
        )

        async def attempt() -> TimeTick:
            try:
                answer = await self._calls.ask("ReportTimeTick", request, v1.ReportTimeTickResponse)
            except ChannelNotExist as error:
                raise UnknownMember(error.cause, error.code) from None
            return TimeTick(answer.passed_tick)

        return await retried(attempt, self._deadline_s)


def _view(found: v1.TimeTicks) -> TimeTicksView:
    settings = None
    if found.open:
        settings = TickSettings(
            tuple(it.id for it in found.peers),
            tuple(found.channels),
            TickPolicy(int(found.rule)),
            found.interval_ms,
        )
    return TimeTicksView(
        TickOrigin(int(found.source)),
        settings,
        tuple(TickReport(it.id, TimeTick(it.time_tick)) for it in found.peers),
        TimeTick(found.passed_tick),
        TimeTick(found.sent_tick),
        tuple(found.waits_for),
        found.error,
        found.waiting,
        found.skipped,
    )
