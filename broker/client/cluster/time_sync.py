"""Cuts and barriers as calls: one request, one answer, or one stream of ticks.

It keeps nothing and tries nothing again. Next: broker/edge/tidemark/time_sync_service.py
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

import anyio

from broker.client.errors import (
    DeadlineExceeded,
    InvalidArgument,
    ServerFailed,
    TidemarkError,
)
from broker.client.net.backoff import Backoff
from broker.client.net.connection import Connection
from broker.client.net.owners import Owners
from broker.model.barrier import BarrierKind, BarrierPeer, BarrierView
from broker.model.cut import Cut
from broker.model.ids import MessageId, TimeTick
from schemas.encoding.frames import frame
from schemas.generated.tidemark import v1

_SERVICE = "/tidemark.v1.TimeSync/"
WRITE_S = 5.0
RELEASE_S = 2.0


@dataclass(frozen=True, slots=True)
class BarrierSeat:
    """Who reports to which barrier."""

    barrier: str
    kind: BarrierKind
    peer: str


class TimeSync:
    """Each call has its own deadline and raises what `errors` has."""

    def __init__(self, connection: Connection, owners: Owners, *, deadline_s: float) -> None:
        self._connection = connection
        self._owners = owners
        self._deadline_s = deadline_s

    async def cut(self, channels: Sequence[str], tick: int) -> Cut:
        """A cut of these channels; `tick` 0 leaves the choice to the servers.

        Each node chooses a tick that is not below what it acknowledged before. The largest of them
        holds for all, and is closed on the other nodes as well.
        """
        if not channels:
            raise InvalidArgument("a cut needs at least one channel")
        cuts = await self._cuts(channels, tick)
        agreed = max(cut.tick for cut in cuts)
        behind = [name for cut in cuts if cut.tick != agreed for name in cut.ends]
        if behind:
            cuts = [cut for cut in cuts if cut.tick == agreed]
            cuts += await self._cuts(behind, agreed)
        ends = {name: end for cut in cuts for name, end in cut.ends.items()}
        return Cut(agreed, {name: ends[name] for name in channels})

    async def whole_cut(self, channels: Sequence[str]) -> Cut:
        """A cut that has of each broadcast all copies on these channels, or none.

        Broadcasts wait while it is taken. Tried again while it may succeed, until the deadline.
        """
        backoff = Backoff()
        failure: TidemarkError = DeadlineExceeded(f"no cut within {self._deadline_s} s")
        with anyio.move_on_after(self._deadline_s):
            while True:
                try:
                    return await self._held_cut(channels)
                except TidemarkError as error:
                    if not error.retriable:
                        raise
                    failure = error
                backoff = backoff.failed()
                await anyio.sleep(backoff.delay_s(1.0))
        raise failure

    async def _held_cut(self, channels: Sequence[str]) -> Cut:
        held = await self._connection.call(
            _SERVICE + "HoldBroadcasts",
            v1.HoldBroadcastsRequest(channels=list(channels)),
            v1.HoldBroadcastsResponse,
            deadline_s=self._deadline_s,
        )
        lasted = False
        try:
            cut = await self.cut(channels, 0)
        finally:
            with anyio.move_on_after(RELEASE_S, shield=True):
                lasted = await self._released(held.hold_id)
        if not lasted:
            raise ServerFailed("the cut took longer than broadcasts are held back; try again")
        return cut

    async def _released(self, hold_id: int) -> bool:
        """Whether the hold has lasted. One that cannot be released ends by itself."""
        try:
            answer = await self._connection.call(
                _SERVICE + "ReleaseBroadcasts",
                v1.ReleaseBroadcastsRequest(hold_id=hold_id),
                v1.ReleaseBroadcastsResponse,
                deadline_s=RELEASE_S,
            )
        except TidemarkError:
            return False
        return answer.lasted

    async def _cuts(self, channels: Sequence[str], tick: int) -> list[Cut]:
        """One of each node that serves some of the channels."""

        async def ask(connection: Connection, names: Sequence[str]) -> Cut:
            answer = await connection.call(
                _SERVICE + "Cut",
                v1.CutRequest(channels=list(names), time_tick=tick),
                v1.CutResponse,
                deadline_s=self._deadline_s,
            )
            ends = {it.channel: MessageId(it.end_id) for it in answer.ends}
            return Cut(TimeTick(answer.time_tick), ends)

        return [cut for _, cut in await self._owners.ask(channels, ask)]

    async def join(self, place: BarrierSeat, lease_s: float, interval_ms: int) -> int:
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

    async def report(self, place: BarrierSeat, lease_id: int, tick: int) -> TimeTick:
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

    async def leave(self, place: BarrierSeat, lease_id: int, *, deadline_s: float) -> None:
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
