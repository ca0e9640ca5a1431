"""Barriers: several programs report how far they are, and watch the ticks that all have reached."""

from typing import Final, Literal, get_args

import anyio
from anyio.abc import TaskGroup

from broker.client.cluster.barrier_calls import BarrierCalls, BarrierMember
from broker.client.cluster.retrying import retried
from broker.client.cluster.watch import Watch
from broker.client.errors import (
    BadTarget,
    ChannelFenced,
    DeadlineExceeded,
    InvalidRequestSequence,
    TidemarkError,
)
from broker.client.net.connection import Connection
from broker.model.barrier import BarrierKind, BarrierView
from broker.model.ids import TimeTick

CLUSTER: Final = "cluster"
KindName = Literal["soft", "hard", "hard-minimum"]
LEASE_S: Final = 10.0
RENEWALS: Final = 3
"""Renewals in each lease, so that losing one does no harm."""

ANSWER_S: Final = 3.0
"""A coordinator that is silent for so long is left, so that a peer joins the next one in time."""

REPORT_S: Final = 10.0
LEAVE_S: Final = 2.0
_KINDS: dict[str, BarrierKind] = dict(zip(get_args(KindName), BarrierKind, strict=True))


class Barrier:
    """The barrier of one name and kind; `log.barrier(name)` makes it without asking the server."""

    def __init__(self, calls: BarrierCalls, tasks: TaskGroup, name: str, kind: KindName) -> None:
        if kind not in _KINDS:
            raise BadTarget(f"{kind!r} is not a kind of barrier; use one of {', '.join(_KINDS)}")
        self.name = name
        self._calls = calls
        self._tasks = tasks
        self._kind = _KINDS[kind]

    def join(self, peer: str, *, lease_s: float = LEASE_S, interval_ms: int = 0) -> "Peer":
        """Take part as `peer` while an `async with` block lasts.

        The client renews the lease. When the program has been gone for `lease_s`, the barrier
        removes the peer and no longer waits for it. A later join under the same name takes the
        place over. `interval_ms`: how far apart the ticks of a new soft barrier are.
        """
        member = BarrierMember(self.name, self._kind, peer)
        return Peer(self._calls, self._tasks, member, lease_s, interval_ms)

    def watch(self, after: int = 0) -> Watch:
        """The ticks that pass the barrier above `after`; 0 starts with the newest. See `Watch`."""
        self._calls.check_usable()
        return Watch(
            lambda seen: self._calls.watch(self.name, self._kind, seen),
            self._tasks,
            TimeTick(after),
        )


class Peer:
    """A member of a barrier: `async with barrier.join("worker-3") as peer`.

    Raises ChannelFenced once another program has joined under this name.
    """

    def __init__(
        self,
        calls: BarrierCalls,
        tasks: TaskGroup,
        member: BarrierMember,
        lease_s: float,
        interval_ms: int,
    ) -> None:
        self.rejoined = 0
        """How often it had to join again, because it was removed or the server restarted."""
        self._calls = calls
        self._tasks = tasks
        self._member = member
        self._lease_s = lease_s
        self._interval_ms = interval_ms
        self._lease_id = 0
        self._doubt_until_s = 0.0
        """Until when a join whose answer, the lease, did not come may hold the place."""
        self._tick = 0
        self._replaced: ChannelFenced | None = None
        self._renewing = anyio.CancelScope()
        self._sending = anyio.Lock()

    async def report(self, tick: int, *, deadline_s: float = REPORT_S) -> TimeTick:
        """Report that this peer has reached `tick`; returns the newest tick that all have reached.

        A smaller tick than before changes nothing. Errors that may pass are retried until
        `deadline_s`, then DeadlineExceeded. InvalidArgument for a tick from the future. May be
        called again.
        """

        async def attempt() -> TimeTick:
            # Joining again would take the place back from the other program, and so on in turns.
            if self._replaced is not None:
                raise self._replaced
            return await self._report(max(self._tick, tick))

        def may_retry(error: TidemarkError) -> bool:
            # The server has restarted once more, right after it was joined: join it again.
            forgotten = isinstance(error, InvalidRequestSequence)
            # Replaced meanwhile: the next attempt raises that, not this error.
            return (error.retriable or forgotten) and error is not self._replaced

        try:
            return await retried(attempt, deadline_s, may_retry=may_retry)
        except TidemarkError as error:
            if not may_retry(error):
                raise
            raise DeadlineExceeded(
                f"tick {tick} could not be reported within {deadline_s} s: {error}"
            ) from error

    async def _report(self, tick: int) -> TimeTick:
        """Report a tick, under a new lease if the old one has ended."""
        # One at a time: two reports that both found the lease ended would join twice.
        async with self._sending:
            try:
                with anyio.fail_after(self._limit_s):
                    return await self._reported(tick)
            except TimeoutError:
                raise DeadlineExceeded(f"no answer within {self._limit_s:.1f} s") from None

    @property
    def _limit_s(self) -> float:
        """How long one attempt may take."""
        return max(self._lease_s / RENEWALS, ANSWER_S)

    async def _reported(self, tick: int) -> TimeTick:
        try:
            passed = await self._calls.report(self._member, self._lease_id, tick)
        except InvalidRequestSequence:
            # The lease has ended, or the server has restarted: it does not store barriers.
            passed = await self._report_anew(tick)
        except ChannelFenced as error:
            if anyio.current_time() >= self._doubt_until_s:
                self._replaced = error
                raise
            # By its own join: that was carried out, and its answer was lost.
            passed = await self._report_anew(tick)
        self._tick = max(self._tick, tick)
        return passed

    async def _report_anew(self, tick: int) -> TimeTick:
        await self._join()
        self.rejoined += 1
        try:
            return await self._calls.report(self._member, self._lease_id, tick)
        except ChannelFenced as error:
            self._replaced = error
            raise

    async def _join(self) -> None:
        # Before the call, and not in a handler of errors: the call may also be cancelled.
        # After its lease, which begins at the server within the limit, the place is another's.
        self._doubt_until_s = anyio.current_time() + self._limit_s + self._lease_s
        self._lease_id = await self._calls.join(self._member, self._lease_s, self._interval_ms)
        self._doubt_until_s = 0.0

    async def _renew(self) -> None:
        with self._renewing:
            while self._replaced is None:
                await anyio.sleep(self._lease_s / RENEWALS)
                try:
                    # With the newest tick, so that the renewal changes nothing but the lease.
                    await self._report(self._tick)
                except TidemarkError:
                    continue  # the next renewal repairs it, or the next report raises it

    async def __aenter__(self) -> "Peer":
        await self._join()
        self._tasks.start_soon(self._renew)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Leave the barrier; if the server cannot be reached, the lease expires."""
        self._renewing.cancel()
        # Shielded: a cancelled program that does not leave holds the others up for its whole lease.
        with anyio.move_on_after(LEAVE_S, shield=True):
            try:
                await self._calls.leave(self._member, self._lease_id, deadline_s=LEAVE_S)
            except TidemarkError:
                return


class NamedBarriers:
    """`log.barriers`: all barriers of the cluster."""

    def __init__(self, connection: Connection, tasks: TaskGroup, *, deadline_s: float) -> None:
        self._calls = BarrierCalls(connection, deadline_s=deadline_s)
        self._tasks = tasks

    def named(self, name: str = CLUSTER, kind: KindName | None = None) -> Barrier:
        """A barrier that programs join, report to and watch; no request is made yet.

        "cluster" is the server's own: each of its ticks is closed on every pchannel. `kind`: "hard"
        (ticks that every peer has reported; the default), "hard-minimum" or "soft" (the smallest of
        the peers' newest ticks). The same name with another kind is another barrier.
        """
        kind = kind or ("soft" if name == CLUSTER else "hard")
        return Barrier(self._calls, self._tasks, name, kind)

    async def list(self) -> list[BarrierView]:
        """Every barrier, soft ones first, then by name."""
        return await self._calls.barriers()
