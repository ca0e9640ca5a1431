"""Ticks for nodes: none for one whose session is over, whenever it ended."""

from collections.abc import Callable
from typing import Any

import pytest

from actors.testing import run_seeded
from broker.coordinator.assignment.live_nodes import LiveNodes
from broker.coordinator.time.messages import Reserve
from broker.edge.rpc.edge_limits import EdgeLimits
from broker.edge.rpc.middleware import Middleware
from broker.edge.rpc.request_metadata import Identity
from broker.edge.tidemark.cluster_service import ClusterProxies, ClusterService
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import NodeId, TimeTick
from broker.ports.ticks import TickRange
from schemas.generated.tidemark import v1
from schemas.message_bytes import encoded, parsed

NODE, SESSION = NodeId(3), 7


class Oracle:
    """The actor, as the service sees it; `meanwhile` happens before its answer is back."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        self._meanwhile = meanwhile

    async def ask(self, message: Reserve, *, deadline_s: float) -> TickRange:
        self._meanwhile()
        return TickRange(TimeTick(100), message.count)


def live_nodes() -> LiveNodes:
    live = LiveNodes()
    live.begin_session(NODE, SESSION)
    live.begin_session(NodeId(4), 8)
    return live


def reserve(
    request: v1.ReserveTicksRequest, live: LiveNodes, meanwhile: Callable[[], None] = lambda: None
) -> v1.ReserveTicksResponse:
    """As it comes over the wire."""

    async def scenario() -> v1.ReserveTicksResponse:
        oracle: Any = Oracle(meanwhile)
        proxies = ClusterProxies(oracle, oracle, oracle, oracle, tick_refusal=live.tick_refusal)
        service = ClusterService(Middleware(Identity("by-dev", NodeId(1)), EdgeLimits()), proxies)
        return await service.reserve_ticks(parsed(v1.ReserveTicksRequest, encoded(request)))

    return run_seeded(1, scenario)


def of_node(session: int, node: int = NODE) -> v1.ReserveTicksRequest:
    return v1.ReserveTicksRequest(count=5, node_id=node, session=session)


def test_a_node_gets_ticks_in_its_session() -> None:
    ticks = reserve(of_node(SESSION), live_nodes())
    assert (ticks.first, ticks.count) == (100, 5)


@pytest.mark.parametrize("request_", [of_node(0), of_node(6), of_node(8), of_node(SESSION, 5)])
def test_it_gets_none_in_another_one_or_when_it_has_none(request_: v1.ReserveTicksRequest) -> None:
    with pytest.raises(Refused, match="register again") as caught:
        reserve(request_, live_nodes())
    assert caught.value.refusal.code is StreamingCode.IGNORED_OPERATION


def test_it_gets_none_when_its_session_ended_while_the_oracle_waited() -> None:
    """The next owner of its channels may have taken smaller ones meanwhile."""
    live = live_nodes()
    with pytest.raises(Refused) as caught:
        reserve(of_node(SESSION), live, lambda: live.end_session(NODE))
    assert caught.value.refusal.code is StreamingCode.IGNORED_OPERATION
    assert reserve(of_node(8, 4), live).count == 5, "those of other nodes go on"


def test_a_node_of_an_earlier_release_which_does_not_say_who_it_is_gets_ticks_as_before() -> None:
    assert reserve(v1.ReserveTicksRequest(count=5), live_nodes()).count == 5
    assert encoded(v1.ReserveTicksRequest(count=5)) == b"\x08\x05"


def test_a_coordinator_that_has_read_no_sessions_yet_ends_none() -> None:
    with pytest.raises(Refused, match="try again") as caught:
        reserve(of_node(SESSION), LiveNodes())
    assert caught.value.refusal.code is StreamingCode.ON_SHUTDOWN
