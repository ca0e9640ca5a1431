"""A barrier in a program's hands: take part in it, or watch which ticks pass.

Owns a peer's lease and its renewal. Next: broker/client/cluster/time_sync.py
"""

from types import TracebackType
from typing import Final, Literal, get_args

import anyio
from anyio.abc import TaskGroup

from broker.client.cluster.time_sync import BarrierSeat, TimeSync
from broker.client.cluster.watch import Watch
from broker.client.errors import (
    BadTarget,
    ChannelFenced,
    DeadlineExceeded,
    InvalidRequestSequence,
    TidemarkError,
)
from broker.client.net.backoff import Backoff
from broker.model.barrier import BarrierKind
from broker.model.ids import TimeTick

CLUSTER: Final = "cluster"
KindName = Literal["soft", "hard", "hard-minimum"]
LEASE_S: Final = 10.0
RENEWALS: Final = 3
"""In each lease, so that a lost one does no harm."""

REPORT_S: Final = 10.0
LEAVE_S: Final = 2.0
_KINDS: dict[str, BarrierKind] = dict(zip(get_args(KindName), BarrierKind, strict=True))


class Barrier:
    """Made by `Client.barrier`; nothing is asked before it is joined or watched."""

    def __init__(self, calls: TimeSync, tasks: TaskGroup, name: str, kind: KindName) -> None:
        if kind not in _KINDS:
            raise BadTarget(f"{kind!r} is no kind of barrier; use one of {', '.join(_KINDS)}")
        self.name = name
        self._calls = calls
        self._tasks = tasks
        self._kind = _KINDS[kind]

    def join(self, peer: str, *, lease_s: float = LEASE_S, interval_ms: int = 0) -> "Peer":
        """Take part as `peer` for as long as the `async with` lasts.

        The client renews the lease by itself; when the whole program is gone for `lease_s`, the
        others go on without it. `interval_ms`: how far apart the ticks of a new soft barrier are.
        Whoever joins under the same name later takes the place.
        """
        place = BarrierSeat(self.name, self._kind, peer)
        return Peer(self._calls, self._tasks, place, lease_s, interval_ms)

    def watch(self, after: int = 0) -> Watch:
        """The ticks that pass after `after`, growing; 0: from the newest one on. See `Watch`."""
        return Watch(
            lambda seen: self._calls.watch(self.name, self._kind, seen),
            self._tasks,
            TimeTick(after),
        )


class Peer:
    """One place in a barrier: `async with barrier.join("worker-3") as peer`.

    Raises ChannelFenced once somebody else has joined under this name.
    """

    def __init__(
        self,
        calls: TimeSync,
        tasks: TaskGroup,
        place: BarrierSeat,
        lease_s: float,
        interval_ms: int,
    ) -> None:
        self.rejoined = 0
        """How often it was removed, or the server restarted, so that it had to join again."""
        self._calls = calls
        self._tasks = tasks
        self._place = place
        self._lease_s = lease_s
        self._interval_ms = interval_ms
        self._lease_id = 0
        self._tick = 0
        self._replaced: ChannelFenced | None = None
        self._renewing = anyio.CancelScope()
        self._sending = anyio.Lock()

    async def report(self, tick: int, *, deadline_s: float = REPORT_S) -> TimeTick:
        """Say that this peer has come to `tick`; returns the newest that has passed for all.

        A smaller tick than before changes nothing. What may succeed later is tried again until
        `deadline_s`; InvalidArgument for a tick from the future. May be called again.
        """
        backoff = Backoff()
        with anyio.move_on_after(deadline_s):
            while True:
                if self._replaced is not None:
                    raise self._replaced
                try:
                    return await self._say(max(self._tick, tick))
                except TidemarkError as error:
                    if not error.retriable:
                        raise
                backoff = backoff.failed()
                await anyio.sleep(backoff.delay_s(1.0))
        raise DeadlineExceeded(f"tick {tick} could not be reported within {deadline_s} s")

    async def _say(self, tick: int) -> TimeTick:
        """Report a tick, under a new lease if the old one is over; remembers what was taken."""
        async with self._sending:
            try:
                passed = await self._calls.report(self._place, self._lease_id, tick)
            except InvalidRequestSequence:
                await self._join()
                self.rejoined += 1
                passed = await self._calls.report(self._place, self._lease_id, tick)
            except ChannelFenced as error:
                self._replaced = error
                raise
            self._tick = max(self._tick, tick)
            return passed

    async def _join(self) -> None:
        self._lease_id = await self._calls.join(self._place, self._lease_s, self._interval_ms)

    async def _renew(self) -> None:
        with self._renewing:
            while self._replaced is None:
                await anyio.sleep(self._lease_s / RENEWALS)
                try:
                    await self._say(self._tick)
                except TidemarkError:
                    continue  # told by the next report, or mended by the next renewal

    async def __aenter__(self) -> "Peer":
        await self._join()
        self._tasks.start_soon(self._renew)
        return self

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        """Leave; when that cannot be said, the lease runs out."""
        self._renewing.cancel()
        with anyio.move_on_after(LEAVE_S, shield=True):
            try:
                await self._calls.leave(self._place, self._lease_id, deadline_s=LEAVE_S)
            except TidemarkError:
                return
