"""Registers this process as a node, renews its lease, and leaves the cluster at the end.

It owns the session and moves the WriteLease on. When the session ends, it has the Directory close
all channels.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

import structlog

from actors import Actor, ActorError, Context, Envelope, Ref, Request
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.ids import NodeId
from broker.node.directory_messages import CloseAllChannels, DirectoryMessage
from broker.node.membership.cluster_join import ClusterJoin
from broker.node.membership.leased import Leased
from broker.ports.nodes import NodeLease, NodeRegistration, Unreachable

RENEWALS_PER_LEASE = 5
LEASE_SHARE = 0.9
"""The node uses this share of its lease; the rest covers clocks of different speed."""
CALL_SHARE = 0.4
"""The share of a lease that one call may take, so that a second try fits in."""
FIRST_CALL_S = 8.0
"""The coordinator calls this node for 2 s before it answers, and others may be asked before it."""
RETRY_FIRST_S = 0.05
RETRY_S_MAX = 1.0
RETRIES_PER_LEASE = 20
"""While the node holds a session, retries come at least so often: it must not lose it."""
STOP_RETRY_S = 0.1
"""Between two tries of a node that stops, for which another coordinator may lead soon."""
LEAVE_S = 0.3
"""How long `leave` is tried. The other actors need the rest of their time to stop."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    """A timer: register, or renew the lease."""


@dataclass(frozen=True, slots=True)
class Retire(Request[bool]):
    """Take no more channels; True when the coordinator is handing off those served now.

    `within_s`: the time for another one to take over, if the leader is stopping, too.
    """

    within_s: float


@dataclass(frozen=True, slots=True)
class RefreshSettings(Request[int]):
    """Renew the lease now, for settings of this revision; the revision in effect then."""

    revision: int


MembershipMessage = SendHeartbeat | Retire | RefreshSettings


class Membership(Actor[MembershipMessage]):
    """See the module. `join`: notified of the first lease or refusal."""

    _context: Context[MembershipMessage]

    def __init__(
        self,
        node: NodeId,
        enrolment: NodeRegistration,
        leased: Leased,
        join: ClusterJoin,
        directory: Callable[[], Ref[DirectoryMessage]],
    ) -> None:
        self._node = node
        self._enrolment = enrolment
        self._write_lease = leased.write_lease
        self._pause = leased.pause
        self._settings = leased.settings
        self._join = join
        self._directory = directory
        self._lease: NodeLease | None = None
        self._session = 0
        """To be renewed; 0: register."""
        self._stopping = self._lost = False
        self._failures = self._sessions = 0
        self._began_s = 0.0
        self._last_error = ""

    async def started(self, context: Context[MembershipMessage]) -> None:
        """Register at once; nothing may be written before that has succeeded.

        After a restart renew the session of the incarnation before: if it is over meanwhile, the
        channels of that session have to be closed, as ever.
        """
        self._context = context
        self._began_s = context.clock.monotonic_s()
        self._session = self._write_lease.session
        if not self._session:
            # A coordinator that knows an earlier process at this address may assign channels before
            # it has registered this one. A writer opened then would be of no session, for good.
            self._write_lease.end()
        context.after(0.0, SendHeartbeat())

    async def receive(self, batch: Sequence[Envelope[MembershipMessage]]) -> None:
        for envelope in batch:
            match envelope.message:
                case Retire(within_s):
                    self._stopping = True
                    # Not with the next heartbeat: the channels should start to move now.
                    await self._retire(within_s)
                    envelope.reply(self._lease is not None and self._lease.moving)
                case RefreshSettings(revision):
                    envelope.reply(await self._refresh(revision))
                case SendHeartbeat():
                    await self._renew()
                    self._context.after(self._delay_s(), SendHeartbeat())
                case _:
                    assert_never(envelope.message)

    async def stopped(self) -> None:
        """Leave the cluster, so that the coordinator need not wait for the lease to expire."""
        if not self._session:
            return
        self._write_lease.end()  # first: once `leave` is sent, the channels may move at any time
        until_s = self._context.clock.monotonic_s() + LEAVE_S
        while (failure := await self._leave()) is not None:
            if not await self._tries_again(failure, until_s):
                log.info(
                    "cannot tell the coordinator that this node leaves: its lease will expire",
                    error=str(failure),
                )
                return

    def statistics(self) -> Mapping[str, int | float | str]:
        found: dict[str, int | float | str] = {
            "session": 0 if self._lease is None else self._lease.session,
            "sessions": self._sessions,
            "failures": self._failures,
        }
        return {**found, "error": self._last_error} if self._last_error else found

    async def _retire(self, within_s: float) -> None:
        """Renew the lease for this node that stops, until a coordinator has heard of it."""
        until_s = self._context.clock.monotonic_s() + within_s
        while True:
            failure = await self._renew(until_s - self._context.clock.monotonic_s())
            if failure is None or not self._session:
                return
            if not await self._tries_again(failure, until_s):
                return

    async def _leave(self) -> Refused | None:
        try:
            await self._enrolment.leave(self._session, self._call_s())
        except Refused as error:
            return error
        return None

    async def _tries_again(self, failure: Refused, until_s: float) -> bool:
        """Pause before the next try of a node that stops; False, at once, if none is due."""
        # When a host restarts, its coordinator stops with this node, and another one leads soon.
        # Not where nothing listens at any address: the cluster stops, or the machine is alone.
        if isinstance(failure, Unreachable) and failure.absent:
            return False
        pause_s = STOP_RETRY_S * self._context.random.uniform(0.5, 1.0)
        over = self._context.clock.monotonic_s() + pause_s >= until_s
        if over or failure.refusal.code is not StreamingCode.INNER:
            return False
        await self._context.clock.sleep(pause_s)
        return True

    async def _renew(self, within_s: float = math.inf) -> Refused | None:
        """Register or renew, but not before the channels of a lost session are being closed.

        Returns the failure; None: there was none, or nothing was asked.
        """
        if self._lost and not self._close_channels():
            return None
        asked_s = self._context.clock.monotonic_s()
        try:
            self._granted(await self._ask(within_s), asked_s)
        except Refused as error:
            self._refused(error.refusal)
            return error
        return None

    async def _refresh(self, revision: int) -> int:
        if self._settings.revision != revision:
            await self._renew()
        return self._settings.revision

    async def _ask(self, within_s: float) -> NodeLease:
        if not self._session:
            first_s = min(FIRST_CALL_S, within_s)
            return await self._enrolment.register(first_s, self._settings.revision)
        call_s = min(self._call_s(), within_s)
        return await self._enrolment.renew(
            self._session, call_s, self._settings.revision, stopping=self._stopping
        )

    def _granted(self, lease: NodeLease, asked_s: float) -> None:
        if self._failures:
            log.warning("the coordinator answers again", node=self._node, failures=self._failures)
        if self._lease is None:
            self._sessions += 1
        self._lease, self._session = lease, lease.session
        self._failures, self._last_error = 0, ""
        # From before the request was sent. The coordinator counts from when it arrived, so the
        # write lease here always ends before it may assign the channels to another node.
        self._write_lease.until(asked_s + lease.lease_s * LEASE_SHARE, lease.session)
        self._pause.on = lease.consumption_paused
        if lease.settings is not None:
            self._settings.adopt(lease.settings)
        self._join.joined(lease.coordinator, lease.session)

    def _refused(self, refusal: Refusal) -> None:
        self._failures += 1
        self._last_error = refusal.cause
        if refusal.code is StreamingCode.IGNORED_OPERATION and self._session:
            log.warning(
                "the coordinator ended this node's session: closing all channels", node=self._node
            )
            self._lease, self._session, self._lost = None, 0, True
            # First: closing takes a while, and the channels may already have other owners.
            self._write_lease.end()
            self._close_channels()
        elif not self._join.joined_once:
            waited_s = self._context.clock.monotonic_s() - self._began_s
            if self._join.refused(refusal, waited_s):
                log.warning(
                    "the coordinator has not accepted this node yet: retrying",
                    node=self._node,
                    error=refusal.cause,
                )
        elif self._failures == 1:
            log.warning(
                "cannot renew the lease: retrying; appends are refused once it expires",
                node=self._node,
                error=refusal.cause,
            )

    def _close_channels(self) -> bool:
        """Have the Directory close all channels; False while it restarts, retry then."""
        try:
            self._directory().tell(CloseAllChannels())
        except ActorError as error:
            log.warning(
                "cannot close the channels of the lost session yet: retrying",
                node=self._node,
                error=str(error),
            )
            return False
        self._lost = False
        return True

    def _delay_s(self) -> float:
        """The time until the next renewal, or until the next retry, with backoff."""
        if self._failures or self._lease is None:
            pause_s = RETRY_FIRST_S * 2.0 ** min(self._failures, 10)
            longest_s = RETRY_S_MAX
            if self._lease is not None:
                longest_s = min(longest_s, self._lease.lease_s / RETRIES_PER_LEASE)
            # Spread out: after a restart of the coordinator all nodes retry at once.
            return min(pause_s, longest_s) * self._context.random.uniform(0.5, 1.0)
        return self._lease.lease_s / RENEWALS_PER_LEASE

    def _call_s(self) -> float:
        return FIRST_CALL_S if self._lease is None else self._lease.lease_s * CALL_SHARE
