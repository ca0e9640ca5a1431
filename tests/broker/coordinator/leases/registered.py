"""Fake nodes with leases of a real Registrar."""

from collections.abc import Callable
from typing import Any

import pytest

from actors import System
from actors.testing import VirtualClock
from broker.coordinator.assignment.founding import found_cluster
from broker.coordinator.assignment.live_nodes import LiveNodes
from broker.coordinator.leases.messages import (
    RegisterNode,
    RenewLease,
)
from broker.core.cluster.balance import BalanceRules
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import NodeId
from broker.ports.meta import MetaStore
from broker.ports.nodes import NodeControl, NodeLease
from tests.broker.coordinator.fakes import NAMES, make_nodes, run_coordinator

REGISTRAR = "/coordinator/registrar"
LEASE_S = 1.0
STILL = BalanceRules(allow_rebalance=False)


class World:
    """Fake nodes that a Registrar reaches when they register."""

    def __init__(self, clock: VirtualClock, store: MetaStore, count: int = 2) -> None:
        self.clock, self.store = clock, store
        self.nodes = make_nodes(store, clock, count)
        self.live = LiveNodes()
        self.absent: dict[NodeId, Callable[[], None]] = {}
        self.identity = ""

    async def start(self, **more: Any) -> System:
        self.identity = (await found_cluster(self.store, NAMES)).identity
        return run_coordinator(
            self.store,
            self.nodes,
            self.clock,
            live=self.live,
            connect=self._connect,
            **{"lease_s": LEASE_S, **more},
        )

    def _connect(self, node: NodeId, address: str, absent: Callable[[], None]) -> NodeControl:
        self.absent[node] = absent
        return self.nodes[node - 1]

    def registration(self, node: int, **changes: object) -> RegisterNode:
        given: dict[str, object] = {
            "node": NodeId(node),
            "address": f"127.0.0.1:{node}",
            "pid": 100 + node,
            "incarnation": f"first of {node}",
            "cluster_id": self.identity,
        }
        return RegisterNode(**(given | changes))  # type: ignore[arg-type]

    async def register(self, system: System, node: int, **changes: object) -> NodeLease:
        message = self.registration(node, **changes)
        lease = await system.find(REGISTRAR).ask(message, deadline_s=5.0)
        assert isinstance(lease, NodeLease)
        return lease

    async def renew(self, system: System, node: int, lease: NodeLease, **more: bool) -> NodeLease:
        message = RenewLease(NodeId(node), lease.session, more.get("stopping", False))
        renewed = await system.find(REGISTRAR).ask(message, deadline_s=5.0)
        assert isinstance(renewed, NodeLease)
        return renewed

    async def keep(self, system: System, node: int, lease: NodeLease, until_s: float) -> None:
        """Renew it well within its time, for so long."""
        while self.clock.monotonic_s() < until_s:
            await self.renew(system, node, lease)
            await self.clock.sleep(LEASE_S / 4)

    def present(self) -> list[int]:
        return [int(node.node_id) for node in self.live.all()]


async def refused(call: object) -> StreamingCode:
    with pytest.raises(Refused) as caught:
        await call  # type: ignore[misc]
    assert caught.value.refusal.cause
    return caught.value.refusal.code
