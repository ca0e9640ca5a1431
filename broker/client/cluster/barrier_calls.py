"""The requests of barriers: join, report, leave, watch and list, one request or stream each."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from broker.client.cluster.service import ServiceCalls
from broker.client.net.connection import Connection
from broker.model.barrier import BarrierKind, BarrierPeer, BarrierView
from broker.model.ids import TimeTick
from schemas.encoding.frames import frame
from schemas.generated.tidemark import v1
from schemas.message_bytes import encoded, parsed

_SERVICE = "tidemark.v1.TimeSync"
WRITE_S = 5.0


@dataclass(frozen=True, slots=True)
class BarrierMember:
    """A peer of a barrier; barriers of one name but of different kinds are different barriers."""

    barrier: str
    kind: BarrierKind
    peer: str


class BarrierCalls:
    """Every call has a deadline and raises what `broker.client.errors` has."""

    def __init__(self, connection: Connection, *, deadline_s: float) -> None:
        self._connection = connection
        self._calls = ServiceCalls(connection, _SERVICE, deadline_s=deadline_s)
        self._deadline_s = deadline_s

    def check_usable(self) -> None:
        """Raise ClosedClient or ForkedClient when no call can be made."""
        self._calls.check_usable()

    async def join(self, member: BarrierMember, lease_s: float, interval_ms: int) -> int:
        """Join; returns the id of the lease."""
        request = v1.JoinBarrierRequest(
            barrier=member.barrier,
            kind=v1.BarrierKind(int(member.kind)),
            peer=member.peer,
            lease_ms=round(lease_s * 1000),
            interval_ms=interval_ms,
        )
        return (await self._calls.ask("JoinBarrier", request, v1.JoinBarrierResponse)).lease_id

    async def report(self, member: BarrierMember, lease_id: int, tick: int) -> TimeTick:
        """Report a tick; returns the newest tick that passed the barrier."""
        request = v1.ReportTickRequest(
            barrier=member.barrier,
            kind=v1.BarrierKind(int(member.kind)),
            peer=member.peer,
            lease_id=lease_id,
            time_tick=tick,
        )
        answer = await self._calls.ask("ReportTick", request, v1.ReportTickResponse)
        return TimeTick(answer.time_tick)

    async def leave(self, member: BarrierMember, lease_id: int, *, deadline_s: float) -> None:
        """Leave; does nothing when the lease has ended."""
        request = v1.LeaveBarrierRequest(
            barrier=member.barrier,
            kind=v1.BarrierKind(int(member.kind)),
            peer=member.peer,
            lease_id=lease_id,
        )
        await self._calls.ask(
            "LeaveBarrier", request, v1.LeaveBarrierResponse, deadline_s=deadline_s
        )

    async def watch(
        self, barrier: str, kind: BarrierKind, after: int
    ) -> AsyncGenerator[TimeTick, None]:
        """Ticks above `after` until the stream breaks; 0 starts with the newest one."""
        request = v1.WatchBarrierRequest(
            barrier=barrier, kind=v1.BarrierKind(int(kind)), after_tick=after
        )
        opening = self._connection.converse(
            f"/{_SERVICE}/WatchBarrier", deadline_s=self._deadline_s
        )
        async with opening as stream:
            await stream.write(frame(encoded(request)), WRITE_S)
            await stream.end()
            while True:
                # No deadline: a barrier may pass nothing for any time; pings notice a dead peer.
                for message in await stream.read(None):
                    for tick in parsed(v1.WatchBarrierResponse, message).time_ticks:
                        yield TimeTick(tick)

    async def barriers(self) -> list[BarrierView]:
        """Every barrier, soft ones first, then by name."""
        request = v1.ListBarriersRequest()
        answer = await self._calls.ask("ListBarriers", request, v1.ListBarriersResponse)
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
