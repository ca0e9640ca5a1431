"""Balance over fake nodes: a new node gets its share, a frozen one is emptied, and rounds end."""

from dataclasses import replace

import pytest

from actors import System
from actors.testing import VirtualClock
from broker.coordinator.assignment.balancer import LiveBalance
from broker.coordinator.assignment.live_nodes import LiveNodes
from broker.coordinator.assignment.messages import BalancePolicy, NodesChanged, UpdatePolicy
from broker.core.cluster.balance import BalanceRules
from broker.core.master.segment_records import LOG_VCHANNELS, encode_vchannel_meta
from broker.core.naming import vchannel_name
from broker.meta.memory_store import MemoryMetaStore
from broker.model.ids import CollectionId, NodeId, PChannelName, TimeTick
from broker.model.snapshot import VChannelSnapshot, VChannelState
from tests.broker.coordinator.assignment.following import (
    ASSIGNER,
    all_assigned,
    follow_until,
    seeded,
)
from tests.broker.coordinator.fakes import NAMES, FakeNode, make_nodes, run_coordinator

BALANCER = "/coordinator/balancer"
RULES = BalanceRules(min_interval_ms=0)
LONG_S = 200.0


def counts(nodes: list[FakeNode]) -> list[int]:
    return [len(node.served) for node in nodes]


async def update(system: System, **changes: object) -> BalancePolicy:
    policy = await system.find(BALANCER).ask(UpdatePolicy(**changes), deadline_s=5.0)  # type: ignore[arg-type]
    assert isinstance(policy, BalancePolicy)
    return policy


@pytest.mark.parametrize("count_fair", [True, False])
def test_a_new_node_gets_its_share_and_then_nothing_moves(count_fair: bool) -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        first, second = nodes = make_nodes(store, clock, 2)
        live = LiveNodes([first])
        rules = replace(RULES, count_fair=count_fair)
        async with run_coordinator(store, nodes, clock, live=live, rules=rules) as system:
            await follow_until(system, all_assigned)
            assert counts(nodes) == [4, 0]
            live.put(second)
            system.find(ASSIGNER).tell(NodesChanged())
            await clock.sleep(LONG_S)
            assert counts(nodes) == [2, 2]
            before = len(first.history) + len(second.history)
            await clock.sleep(LONG_S)
            assert len(first.history) + len(second.history) == before
            await follow_until(system, all_assigned)

    seeded(31, scenario)


def test_a_node_that_comes_back_gets_its_share_within_seconds_but_no_channel_twice() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        _, second = nodes = make_nodes(store, clock, 2)
        live = LiveNodes(nodes)
        async with run_coordinator(store, nodes, clock, live=live) as system:

            async def changed() -> None:
                system.find(ASSIGNER).tell(NodesChanged())
                await clock.sleep(5.0)

            await follow_until(system, all_assigned)
            for shares in ([2, 2], [2, 2], [4, 0]):
                assert counts(nodes) == (shares if shares == [2, 2] else [2, 2])
                live.drop(NodeId(2))
                second.served.clear()
                await changed()
                assert counts(nodes) == [4, 0]
                live.put(second)
                await changed()
                assert counts(nodes) == shares
            await clock.sleep(300.0)
            assert counts(nodes) == [2, 2]
            moved = [it for it in second.history if it.term > 2]
            assert len({it.name for it in moved[:4]}) == 4, "each channel once in the interval"

    seeded(32, scenario)


def test_channels_whose_next_owner_would_read_back_much_move_as_soon_as_it_is_little() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        first, second = nodes = make_nodes(store, clock, 2)
        live = LiveNodes([first])
        async with run_coordinator(store, nodes, clock, live=live) as system:
            await follow_until(system, all_assigned)
            first.lag_ms = 5000
            live.put(second)
            system.find(ASSIGNER).tell(NodesChanged())
            await clock.sleep(30.0)
            assert counts(nodes) == [4, 0]
            first.lag_ms = 0
            await clock.sleep(10.0)
            assert counts(nodes) == [2, 2]

    seeded(37, scenario)


def test_a_frozen_node_is_emptied_and_gets_its_share_again_when_defrozen() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        nodes = make_nodes(store, clock, 2)
        async with run_coordinator(store, nodes, clock, rules=RULES) as system:
            await follow_until(system, all_assigned)
            assert counts(nodes) == [2, 2]
            policy = await update(system, freeze=(NodeId(1), NodeId(9)))
            assert policy == BalancePolicy(True, (NodeId(1),))
            await clock.sleep(LONG_S)
            assert counts(nodes) == [0, 4]
            assert await update(system, defreeze=(NodeId(1),)) == BalancePolicy(True, ())
            await clock.sleep(LONG_S)
            assert counts(nodes) == [2, 2]

    seeded(33, scenario)


def test_the_last_node_that_could_serve_is_not_emptied() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        (node,) = nodes = make_nodes(store, clock, 1)
        async with run_coordinator(store, nodes, clock, rules=RULES) as system:
            await follow_until(system, all_assigned)
            await update(system, freeze=(NodeId(1),))
            await clock.sleep(LONG_S)
            assert len(node.served) == len(NAMES)

    seeded(34, scenario)


def test_without_rebalancing_nothing_moves() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        first, second = nodes = make_nodes(store, clock, 2)
        live = LiveNodes([first])
        async with run_coordinator(store, nodes, clock, live=live, rules=RULES) as system:
            await follow_until(system, all_assigned)
            assert await update(system, allow_rebalance=False) == BalancePolicy(False, ())
            live.put(second)
            system.find(ASSIGNER).tell(NodesChanged())
            await clock.sleep(LONG_S)
            assert counts(nodes) == [4, 0]

    seeded(35, scenario)


def test_a_killed_balancer_goes_on_and_a_failing_store_only_delays_it() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        first, second = nodes = make_nodes(store, clock, 2)
        live = LiveNodes([first])
        async with run_coordinator(store, nodes, clock, live=live, rules=RULES) as system:
            await follow_until(system, all_assigned)
            system.kill(BALANCER)
            await clock.sleep(1.0)
            live.put(second)
            system.find(ASSIGNER).tell(NodesChanged())
            await clock.sleep(LONG_S)
            assert counts(nodes) == [2, 2]

    seeded(36, scenario)


def test_collections_that_only_logs_know_count_and_dropped_ones_do_not() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        first, second = nodes = make_nodes(store, clock, 2)
        async with run_coordinator(store, nodes, clock, rules=RULES) as system:
            await follow_until(system, all_assigned)
            heavy, light = sorted(first.served), sorted(second.served)
            for id in range(10):
                for name in heavy:
                    await log_vchannel(store, name, 100 + id, VChannelState.NORMAL)
                for name in light:
                    await log_vchannel(store, name, 200 + id, VChannelState.DROPPED)
            await clock.sleep(LONG_S)
            assert counts(nodes) == [2, 2]
            assert len(set(heavy) & first.served.keys()) == 1

    seeded(37, scenario)


async def log_vchannel(
    store: MemoryMetaStore, pchannel: PChannelName, id: int, state: VChannelState
) -> None:
    """What the owner of the pchannel saves of a collection that its log has created."""
    collection = CollectionId(id)
    name = vchannel_name(pchannel, collection, 0)
    tick = TimeTick(1)
    vchannel = VChannelSnapshot(name, collection, state, (), (), tick, tick)
    await store.write({LOG_VCHANNELS + name: encode_vchannel_meta(vchannel)})


def test_changed_rules_move_channels_without_a_restart_and_a_call_outlives_other_changes() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        first, second = nodes = make_nodes(store, clock, 2)
        live = LiveNodes([first])
        balance = LiveBalance(replace(RULES, allow_rebalance=False), 3600.0)
        async with run_coordinator(store, nodes, clock, live=live, balance=balance) as system:

            async def changed(rules: BalanceRules) -> None:
                balance.rules = rules
                system.find(BALANCER).tell(NodesChanged())
                await clock.sleep(LONG_S)

            await follow_until(system, all_assigned)
            live.put(second)
            system.find(ASSIGNER).tell(NodesChanged())
            await clock.sleep(LONG_S)
            assert counts(nodes) == [4, 0]
            await changed(RULES)
            assert counts(nodes) == [2, 2]
            # Turned off by a call: a change of another rule leaves that as it is.
            assert not (await update(system, allow_rebalance=False)).allow_rebalance
            await changed(replace(RULES, count_fair=not RULES.count_fair))
            assert not (await update(system)).allow_rebalance
            await changed(replace(RULES, allow_rebalance=False))
            await changed(RULES)
            assert (await update(system)).allow_rebalance

    seeded(37, scenario)
