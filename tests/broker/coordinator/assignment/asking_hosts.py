"""Two nodes that ask the coordinator for ticks, and a machine whose clock can stand still."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from actors.clock import Alarm
from actors.testing import VirtualClock
from broker.coordinator.time.messages import Reserve
from broker.edge.rpc.edge_limits import EdgeLimits
from broker.edge.rpc.middleware import Middleware
from broker.edge.rpc.request_metadata import Identity
from broker.edge.tidemark.cluster_service import ClusterProxies, ClusterService
from broker.model.ids import NodeId
from broker.ports.ticks import TickRange
from broker.remote.remote_coordinator import RemoteTicks
from schemas.generated.tidemark import v1
from tests.broker.coordinator.assignment.two_hosts import Cluster
from tests.broker.node.world import OracleFake

POLL_S = 0.01


@dataclass
class AskedTicks:
    """A `TickSource` of a node; the edge that answers it knows the live nodes of `world`."""

    node: NodeId
    oracle: OracleFake
    world: Cluster | None = None

    async def reserve(self, count: int) -> TickRange:
        assert self.world is not None
        lease = self.world.hosts[self.node - 1].node.write_lease
        ticks = RemoteTicks(self, random.Random(1), self.node, lambda: lease.session)
        return await ticks.reserve(count)

    async def call(self, path: str, request: Any, answer: Any, *, deadline_s: float) -> Any:
        """See Caller."""
        assert self.world is not None
        assert isinstance(request, v1.ReserveTicksRequest)
        actor: Any = self
        refusal = self.world.live.tick_refusal
        proxies = ClusterProxies(actor, actor, actor, actor, tick_refusal=refusal)
        middleware = Middleware(Identity("by-dev", NodeId(1)), EdgeLimits())
        return await ClusterService(middleware, proxies).reserve_ticks(request)

    async def ask(self, message: Reserve, *, deadline_s: float) -> TickRange:
        """The oracle, as the edge sees it."""
        return await self.oracle.reserve(message.count)


class StandingClock(VirtualClock):
    """Of a machine that can be paused: its clock stands still then, and no timer of it rings."""

    def __init__(self) -> None:
        super().__init__()
        self._stood_s = 0.0
        self._since_s: float | None = None

    def stand(self) -> None:
        self._since_s = super().monotonic_s()

    def go_on(self) -> None:
        assert self._since_s is not None
        self._stood_s += super().monotonic_s() - self._since_s
        self._since_s = None

    def monotonic_s(self) -> float:
        now_s = super().monotonic_s() if self._since_s is None else self._since_s
        return now_s - self._stood_s

    async def sleep(self, duration_s: float) -> None:
        woken = asyncio.Event()
        alarm = self.call_later(duration_s, woken.set)
        try:
            await woken.wait()
        finally:
            alarm.cancel()

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Alarm:
        return _StandingAlarm(self, self.monotonic_s() + delay_s, callback)


class _StandingAlarm:
    def __init__(self, clock: StandingClock, due_s: float, callback: Callable[[], object]) -> None:
        self._clock, self._due_s, self._callback = clock, due_s, callback
        self._wait(due_s - clock.monotonic_s())

    def cancel(self) -> None:
        """See Alarm."""
        self._alarm.cancel()

    def _wait(self, left_s: float) -> None:
        self._alarm = asyncio.get_running_loop().call_later(left_s, self._look)

    def _look(self) -> None:
        left_s = self._due_s - self._clock.monotonic_s()
        if left_s > 1e-6:
            self._wait(max(left_s, POLL_S))
        else:
            self._callback()
