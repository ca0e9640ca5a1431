"""A node that renews its lease and that the coordinator cannot reach any more."""

import pytest

from actors.testing import VirtualClock
from broker.coordinator.assignment.live_nodes import LiveNodes
from broker.coordinator.assignment.messages import NodesChanged
from broker.meta.memory_store import MemoryMetaStore
from tests.broker.coordinator.assignment.following import (
    ASSIGNER,
    all_assigned,
    follow_until,
    seeded,
)
from tests.broker.coordinator.assignment.test_balancer import RULES, counts
from tests.broker.coordinator.fakes import make_nodes, run_coordinator


@pytest.mark.parametrize("wait_s", [30.0, 1000.0])
def test_no_served_channel_is_moved_to_a_node_that_does_not_answer(wait_s: float) -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        first, second = nodes = make_nodes(store, clock, 2)
        live = LiveNodes([first])
        async with run_coordinator(store, nodes, clock, live=live, rules=RULES) as system:
            await follow_until(system, all_assigned)
            second.silent = second.hangs = True
            live.put(second)
            live.heard(second.node_id)  # as each renewal of its lease does
            system.find(ASSIGNER).tell(NodesChanged())
            await clock.sleep(wait_s)
            assert counts(nodes) == [4, 0]

    seeded(41, scenario)


def test_a_node_that_stops_is_emptied_although_the_other_one_was_away_for_a_moment() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        first, second = nodes = make_nodes(store, clock, 2)
        live = LiveNodes([first])
        async with run_coordinator(store, nodes, clock, live=live) as system:
            await follow_until(system, all_assigned)
            second.down = True
            live.put(second)
            live.heard(second.node_id)
            live.retire(first.node_id)
            system.find(ASSIGNER).tell(NodesChanged())
            await clock.sleep(0.1)
            second.down = False
            await clock.sleep(30.0)
            assert counts(nodes) == [0, 4]

    seeded(42, scenario)


@pytest.mark.parametrize("refuses", [False, True])
def test_the_channels_of_a_lost_node_go_to_one_that_answers(*, refuses: bool) -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        first, second, third = nodes = make_nodes(store, clock, 3)
        live = LiveNodes([first])
        async with run_coordinator(store, nodes, clock, live=live, rules=RULES) as system:
            await follow_until(system, all_assigned)
            third.silent = third.hangs = True
            third.down = refuses
            for node in (second, third):
                live.put(node)
                live.heard(node.node_id)
            system.find(ASSIGNER).tell(NodesChanged())
            await clock.sleep(60.0)
            live.drop(first.node_id)
            system.find(ASSIGNER).tell(NodesChanged())
            await clock.sleep(60.0)
            assert counts(nodes)[1:] == [4, 0]
            assert live.reachable() == {second.node_id}
            live.drop(second.node_id)
            assert live.reachable() == {third.node_id}, "better than none"

    seeded(43, scenario)
