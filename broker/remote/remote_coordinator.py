"""The coordinator, as a node process sees it: ticks and leases."""

import random
from collections.abc import Callable

import anyio

from broker.model.failure import Refused, StreamingCode
from broker.model.ids import NodeId, TimeTick
from broker.model.master.live_config import StoredSettings
from broker.ports.nodes import NodeLease, Unreachable
from broker.ports.ticks import RESERVE_COUNT_MAX, TickRange
from broker.remote.calls import Caller
from schemas.generated.tidemark import v1

SERVICE = "/tidemark.v1.Cluster/"
RESERVE_S = 2.0
"""After this without an answer the reservation fails, and the appends are retried."""
RETRY_FIRST_S = 0.01
RETRY_S_MAX = 0.1
"""Between two attempts while nothing answers. Appends wait here for a coordinator that restarts,
and continue as soon as it is back; clients would retry with ever longer pauses."""


class RemoteTicks:
    """A `TickSource` of a node. `session`: of its newest lease; 0 before the first."""

    def __init__(
        self, calls: Caller, spread: random.Random, node: NodeId, session: Callable[[], int]
    ) -> None:
        self._calls = calls
        self._spread = spread
        self._node = node
        self._session = session

    async def reserve(self, count: int) -> TickRange:
        """See TickSource."""
        if not 1 <= count <= RESERVE_COUNT_MAX:
            cause = f"{count} ticks were asked for; the number must be 1 to {RESERVE_COUNT_MAX}"
            raise Refused(StreamingCode.INVALID_ARGUMENT, cause)
        answer = await self._ask(count)
        # A wrong range could put two messages at one tick.
        if answer.count != count or answer.first <= 0:
            cause = f"the coordinator gave {answer.count} ticks from {answer.first}, not {count}"
            raise Refused(StreamingCode.INNER, cause)
        return TickRange(TimeTick(answer.first), answer.count)

    async def _ask(self, count: int) -> v1.ReserveTicksResponse:
        """Retry until an answer comes. Ticks of a lost answer stay unused, which does no harm."""
        until_s = anyio.current_time() + RESERVE_S
        pause_s = RETRY_FIRST_S
        while True:
            left_s = until_s - anyio.current_time()
            session = self._session()
            request = v1.ReserveTicksRequest(count=count, node_id=self._node, session=session)
            try:
                return await self._calls.call(
                    SERVICE + "ReserveTicks", request, v1.ReserveTicksResponse, deadline_s=left_s
                )
            except Unreachable:
                if anyio.current_time() + pause_s >= until_s:
                    raise
            except Refused as error:
                late = anyio.current_time() + pause_s >= until_s
                match error.refusal.code:
                    case StreamingCode.ON_SHUTDOWN:  # it has not read yet which sessions there are
                        if late:
                            raise
                    case StreamingCode.IGNORED_OPERATION:
                        # Or the node has joined again: what waits here may be of the new session.
                        if late or session == self._session():
                            raise self._session_over(error) from error
                    case _:  # the coordinator's answer, which would be the same again
                        raise
            # At random moments: every node waits for the same coordinator.
            await anyio.sleep(pause_s * self._spread.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, RETRY_S_MAX)

    def _session_over(self, error: Refused) -> Refused:
        """As without a write lease: nothing is stored, and clients look for the next owner.

        The next heartbeat gets the same answer, and has all channels closed.
        """
        return Refused(
            StreamingCode.ON_SHUTDOWN,
            f"the coordinator gives node {self._node} no time ticks: {error.refusal.cause}; nothing"
            " was stored, retry",
        )


class RemoteEnrolment:
    """An `Enrolment` of the process `pid`, which serves at `address`.

    `incarnation`: unique to this process, even if another had the same pid.
    """

    def __init__(
        self,
        calls: Caller,
        node: NodeId,
        address: str,
        *,
        pid: int,
        incarnation: str,
        cluster_id: str,
    ) -> None:
        self._calls = calls
        self._node = node
        self._registration = v1.RegisterRequest(
            node_id=node,
            address=address,
            pid=pid,
            incarnation=incarnation,
            cluster_id=cluster_id,
            knows_places=True,
        )

    async def register(self, deadline_s: float, settings_revision: int) -> NodeLease:
        """See Enrolment."""
        self._registration.settings_revision = settings_revision
        return _lease(
            await self._calls.call(
                SERVICE + "Register", self._registration, v1.Lease, deadline_s=deadline_s
            )
        )

    async def renew(
        self, session: int, deadline_s: float, settings_revision: int, *, stopping: bool
    ) -> NodeLease:
        """See Enrolment."""
        request = v1.RenewRequest(
            node_id=self._node,
            session=session,
            stopping=stopping,
            settings_revision=settings_revision,
        )
        return _lease(
            await self._calls.call(SERVICE + "Renew", request, v1.Lease, deadline_s=deadline_s)
        )

    async def leave(self, session: int, deadline_s: float) -> None:
        """See Enrolment."""
        request = v1.LeaveRequest(node_id=self._node, session=session)
        await self._calls.call(SERVICE + "Leave", request, v1.LeaveResponse, deadline_s=deadline_s)


def _lease(answer: v1.Lease) -> NodeLease:
    if answer.session <= 0 or answer.lease_ms <= 0:
        cause = f"the coordinator gave session {answer.session} for {answer.lease_ms} ms"
        raise Refused(StreamingCode.INNER, cause)
    stored = answer.settings
    return NodeLease(
        answer.session,
        answer.lease_ms / 1000,
        answer.moving,
        answer.consumption_paused,
        answer.coordinator,
        None if stored is None else StoredSettings(stored.revision, dict(stored.values)),
    )
