"""Keeps this process a node of its cluster: registers, renews its lease, and leaves at the end.

Owns the session and the Tenure, which always ends before the coordinator may give this node's
channels away: a lease counts there from the moment the request came, here from before it was sent.
Never opens or closes a channel; when the session is over it has the Directory give up all.
Next: broker/node/directory.py
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

import structlog

from actors import Actor, ActorError, Context, Envelope, Ref, Request
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.ids import NodeId
from broker.node.directory_messages import CloseAllChannels, DirectoryMessage
from broker.node.membership.cluster_join import ClusterJoin
from broker.node.state.pause import ConsumptionPause
from broker.node.state.write_lease import WriteLease
from broker.ports.nodes import NodeLease, NodeRegistration

BEATS_PER_LEASE = 5
LEASE_SHARE = 0.9
"""Of the lease that is used: two clocks of one second differ by less than the rest."""
CALL_SHARE = 0.4
"""Of a lease that one call may take: a second one fits in."""
FIRST_CALL_S = 2.0
RETRY_FIRST_S = 0.05
RETRY_S_MAX = 1.0
RETRIES_PER_LEASE = 20
"""A coordinator that is back is found so soon, while the node still has a session to keep."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RenewLease:
    """A timer: register, or renew the lease."""


@dataclass(frozen=True, slots=True)
class Retire(Request[bool]):
    """This node takes no more channels; True when those it has are being given to others."""


MembershipMessage = RenewLease | Retire


class Membership(Actor[MembershipMessage]):
    """See the module. `join` is what the process waits for at its start."""

    _context: Context[MembershipMessage]

    def __init__(
        self,
        node: NodeId,
        enrolment: NodeRegistration,
        write_lease: WriteLease,
        pause: ConsumptionPause,
        join: ClusterJoin,
        directory: Callable[[], Ref[DirectoryMessage]],
    ) -> None:
        self._node = node
        self._enrolment = enrolment
        self._write_lease = write_lease
        self._pause = pause
        self._join = join
        self._directory = directory
        self._lease: NodeLease | None = None
        self._stopping = self._lost = False
        self._failures = self._sessions = 0
        self._began_s = 0.0
        self._last_error = ""

    async def started(self, context: Context[MembershipMessage]) -> None:
        """An incarnation that follows another of the same process gets the session it had."""
        self._context = context
        self._began_s = context.clock.monotonic_s()
        context.after(0.0, RenewLease())

    async def receive(self, batch: Sequence[Envelope[MembershipMessage]]) -> None:
        for envelope in batch:
            match envelope.message:
                case Retire():
                    self._stopping = True
                    await self._keep_up()
                    envelope.reply(self._lease is not None and self._lease.moving)
                case RenewLease():
                    await self._keep_up()
                    self._context.after(self._pause_s(), RenewLease())
                case _:
                    assert_never(envelope.message)

    async def stopped(self) -> None:
        """Say good-bye, so that nobody waits for the lease to run out: from then on no writes."""
        if self._lease is None:
            return
        self._write_lease.end()
        try:
            await self._enrolment.leave(self._lease.session, self._call_s())
        except Refused as error:
            log.info("left without a word: the lease will run out", error=str(error))

    def statistics(self) -> Mapping[str, int | float | str]:
        found: dict[str, int | float | str] = {
            "session": 0 if self._lease is None else self._lease.session,
            "sessions": self._sessions,
            "failures": self._failures,
        }
        return {**found, "error": self._last_error} if self._last_error else found

    async def _keep_up(self) -> None:
        """Nothing is asked for as long as channels of an earlier session have not been given up."""
        if self._lost and not self._give_up():
            return
        asked_s = self._context.clock.monotonic_s()
        try:
            self._take(await self._ask(), asked_s)
        except Refused as error:
            self._failed(error.refusal)

    async def _ask(self) -> NodeLease:
        if self._lease is None:
            return await self._enrolment.register(FIRST_CALL_S)
        return await self._enrolment.renew(
            self._lease.session, self._call_s(), stopping=self._stopping
        )

    def _take(self, lease: NodeLease, asked_s: float) -> None:
        if self._failures:
            log.warning("the coordinator answers again", node=self._node, failures=self._failures)
        if self._lease is None:
            self._sessions += 1
        self._lease = lease
        self._failures, self._last_error = 0, ""
        self._write_lease.until(asked_s + lease.lease_s * LEASE_SHARE, lease.session)
        self._pause.on = lease.consumption_paused
        self._join.joined()

    def _failed(self, refusal: Refusal) -> None:
        self._failures += 1
        self._last_error = refusal.cause
        if refusal.code is StreamingCode.IGNORED_OPERATION and self._lease is not None:
            log.warning("the lease is over: giving up all channels", node=self._node)
            self._lease, self._lost = None, True
            self._write_lease.end()
            self._give_up()
        elif not self._join.joined_once:
            waited_s = self._context.clock.monotonic_s() - self._began_s
            if self._join.refused(refusal, waited_s):
                log.warning(
                    "the coordinator has not taken this node yet: trying again",
                    node=self._node,
                    error=refusal.cause,
                )
        elif self._failures == 1:
            log.warning(
                "no lease from the coordinator: trying again; appends are refused once it is over",
                node=self._node,
                error=refusal.cause,
            )

    def _give_up(self) -> bool:
        """Whether the Directory could be told; one that is being restarted is told later."""
        try:
            self._directory().tell(CloseAllChannels())
        except ActorError as error:
            log.warning("channels stay open for now", node=self._node, error=str(error))
            return False
        self._lost = False
        return True

    def _pause_s(self) -> float:
        """Between two renewals; shorter and then longer while nobody answers."""
        if self._failures or self._lease is None:
            pause_s = RETRY_FIRST_S * 2.0 ** min(self._failures, 10)
            longest_s = RETRY_S_MAX
            if self._lease is not None:
                longest_s = min(longest_s, self._lease.lease_s / RETRIES_PER_LEASE)
            return min(pause_s, longest_s) * self._context.random.uniform(0.5, 1.0)
        return self._lease.lease_s / BEATS_PER_LEASE

    def _call_s(self) -> float:
        return FIRST_CALL_S if self._lease is None else self._lease.lease_s * CALL_SHARE
