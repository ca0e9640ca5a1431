"""Cuts and barriers as calls: one request, one answer, or one stream of ticks.

It keeps nothing and tries nothing again. Next: broker/edge/time_sync_service.py
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from broker.client.connection import Connection
from broker.model.barrier import BarrierKind, BarrierPeer, BarrierView
from broker.model.cut import Cut
from broker.model.ids import MessageId, TimeTick
from schemas.frames import frame
from schemas.generated.tidemark import v1

_SERVICE = "/tidemark.v1.TimeSync/"
WRITE_S = 5.0


@dataclass(frozen=True, slots=True)
class Place:
    """Who reports to which barrier."""

    barrier: str
    kind: BarrierKind
    peer: str


class TimeSync:
    """Each call has its own deadline and raises what `errors` has."""

    def __init__(self, connection: Connection, *, deadline_s: float) -> None:
        self._connection = connection
        self._deadline_s = deadline_s

    async def cut(self, channels: Sequence[str], tick: int) -> Cut:
        """A cut of these channels; `tick` 0 leaves the choice to the server."""
        answer = await self._connection.call(
            _SERVICE + "Cut",
            v1.CutRequest(channels=list(channels), time_tick=tick),
            v1.CutResponse,
            deadline_s=self._deadline_s,
        )
        ends = {it.channel: MessageId(it.end_id) for it in answer.ends}
        return Cut(TimeTick(answer.time_tick), ends)

    async def join(self, place: Place, lease_s: float, interval_ms: int) -> int:
        """The id of the lease."""
        answer = await self._connection.call(
            _SERVICE + "JoinBarrier",
            v1.JoinBarrierRequest(
                barrier=place.barrier,
                kind=v1.BarrierKind(int(place.kind)),
                peer=place.peer,
                lease_ms=round(lease_s * 1000),
                interval_ms=interval_ms,
            ),
            v1.JoinBarrierResponse,
            deadline_s=self._deadline_s,
        )
        return answer.lease_id

    async def report(self, place: Place, lease_id: int, tick: int) -> TimeTick:
        """The newest tick that passed."""
        answer = await self._connection.call(
            _SERVICE + "ReportTick",
            v1.ReportTickRequest(
                barrier=place.barrier,
                kind=v1.BarrierKind(int(place.kind)),
                peer=place.peer,
                lease_id=lease_id,
                time_tick=tick,
            ),
            v1.ReportTickResponse,
            deadline_s=self._deadline_s,
        )
        return TimeTick(answer.time_tick)

    async def leave(self, place: Place, lease_id: int, *, deadline_s: float) -> None:
        """Nothing happens when the lease is over."""
        request = v1.LeaveBarrierRequest(
            barrier=place.barrier,
            kind=v1.BarrierKind(int(place.kind)),
            peer=place.peer,
            lease_id=lease_id,
        )
        await self._connection.call(
            _SERVICE + "LeaveBarrier", request, v1.LeaveBarrierResponse, deadline_s=deadline_s
        )

    async def watch(
        self, barrier: str, kind: BarrierKind, after: int
    ) -> AsyncGenerator[TimeTick, None]:
        """Ticks above `after` (0: from the newest on), until the stream breaks."""
        request = v1.WatchBarrierRequest(
            barrier=barrier, kind=v1.BarrierKind(int(kind)), after_tick=after
        )
        opening = self._connection.converse(_SERVICE + "WatchBarrier", deadline_s=self._deadline_s)
        async with opening as stream:
            await stream.write(frame(bytes(request)), WRITE_S)
            await stream.end()
            while True:
                for message in await stream.read(None):
                    for tick in v1.WatchBarrierResponse.parse(message).time_ticks:
                        yield TimeTick(tick)

    async def barriers(self) -> list[BarrierView]:
        """All there are."""
        answer = await self._connection.call(
            _SERVICE + "ListBarriers",
            v1.ListBarriersRequest(),
            v1.ListBarriersResponse,
            deadline_s=self._deadline_s,
        )
        return [_view(it) for it in answer.barriers]


def _view(it: v1.BarrierInfo) -> BarrierView:
    return BarrierView(
        name=it.name,
        kind=BarrierKind(int(it.kind)),
        tick=TimeTick(it.time_tick),
        peers=tuple(
            [BarrierPeer(peer.name, TimeTick(peer.time_tick), peer.silent) for peer in it.peers]
        ),
        waits_for=tuple(it.waits_for),
        removed=tuple(it.removed),
    )
