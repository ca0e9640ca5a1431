"""Nodes that renew their leases, and that the coordinator's calls do not reach."""

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from actors import System
from actors.testing import VirtualClock
from broker.coordinator.assignment.live_nodes import UNREACHED_PROBES
from broker.coordinator.leases.messages import CloseCluster
from broker.coordinator.leases.node_probe import PROBE_S_MAX, PROBES_PER_LEASE
from broker.meta.memory_store import MemoryMetaStore
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import NodeId
from broker.ports.nodes import NodeLease, Probe
from tests.broker.coordinator.assignment.following import all_assigned, follow_until, seeded
from tests.broker.coordinator.leases.registered import LEASE_S, REGISTRAR, STILL, World

ENOUGH_S = (UNREACHED_PROBES + 1) * (LEASE_S / PROBES_PER_LEASE + PROBE_S_MAX) + 2 * LEASE_S
"""In which a node out of reach has lost its lease."""

LONG_S = 20.0


async def wait_until_unreached(world: World, system: System, leases: dict[int, NodeLease]) -> None:
    """Renew until the first node is out of reach."""
    while not world.live.is_out_of_reach(NodeId(1)):
        assert (await renew_for(world, system, leases, 0.01))[1] == []


async def renew_for(
    world: World, system: System, leases: dict[int, NodeLease], lasts_s: float
) -> dict[int, list[Refused]]:
    """Renew all of them well within their time, refused or not; the refusals of each."""
    refusals: dict[int, list[Refused]] = {node: [] for node in leases}
    end_s = world.clock.monotonic_s() + lasts_s
    while world.clock.monotonic_s() < end_s:
        for node, lease in leases.items():
            try:
                await world.renew(system, node, lease)
            except Refused as refused:
                refusals[node].append(refused)
        await world.clock.sleep(LEASE_S / 4)
    return refusals


def codes(refusals: list[Refused]) -> list[StreamingCode]:
    return list(dict.fromkeys([it.refusal.code for it in refusals]))


@pytest.mark.parametrize("restarts", [False, True])
def test_one_that_renews_and_answers_no_call_loses_its_channels_to_one_that_answers(
    *, restarts: bool
) -> None:
    async def scenario(clock: VirtualClock) -> None:
        world = World(clock, MemoryMetaStore())
        async with await world.start(rules=STILL) as system:
            leases = {1: await world.register(system, 1)}
            await follow_until(system, all_assigned)
            leases[2] = await world.register(system, 2)
            if not restarts:
                world.nodes[0].silent = True
                refusals = await renew_for(world, system, leases, ENOUGH_S)
        if restarts:  # the next leader cannot confirm who serves the channels
            world.nodes[0].silent = True
            system = await world.start(rules=STILL)
            async with system:
                refusals = await renew_for(world, system, leases, ENOUGH_S)
                table = await follow_until(system, all_assigned)
                assert [row.node_id for row in table.nodes] == [2]
        # First to come again, as calls may reach it by then; when its lease is over, to register.
        assert codes(refusals[1]) == [StreamingCode.INNER, StreamingCode.IGNORED_OPERATION]
        assert str(world.nodes[0].address) in str(refusals[1][0])
        assert refusals[2] == []
        assert world.present() == [2]
        assert len(world.nodes[1].served) == 4

    seeded(51, scenario)


def test_one_that_nobody_could_replace_keeps_its_channels() -> None:
    async def scenario(clock: VirtualClock) -> None:
        world = World(clock, MemoryMetaStore())
        async with await world.start() as system:
            leases = {1: await world.register(system, 1)}
            await follow_until(system, all_assigned)
            world.nodes[0].silent = True
            refusals = await renew_for(world, system, leases, ENOUGH_S)
            assert refusals == {1: []}
            world.nodes[1].silent = True
            leases[2] = await world.register(system, 2)
            refusals = await renew_for(world, system, leases, ENOUGH_S)
            assert refusals == {1: [], 2: []}, "both are out of reach"
            assert world.live.reachable() == {1, 2}
            first, second = world.live.warnings()
            assert first.startswith("node 1 is registered, and answers none of the")
            assert str(world.nodes[1].address) in second

    seeded(52, scenario)


@pytest.mark.parametrize("refused_s", [0.0, LONG_S / 4])
def test_one_that_answers_again_in_time_keeps_its_lease(refused_s: float) -> None:
    async def scenario(clock: VirtualClock) -> None:
        world = World(clock, MemoryMetaStore())
        async with await world.start(rules=STILL, lease_s=LONG_S) as system:
            leases = {1: await world.register(system, 1), 2: await world.register(system, 2)}
            await follow_until(system, all_assigned)
            world.nodes[0].silent = True
            with capture_logs() as lines:
                await wait_until_unreached(world, system, leases)
                before = await renew_for(world, system, leases, refused_s)
                world.nodes[0].silent = False
                await clock.sleep(PROBE_S_MAX + LONG_S / PROBES_PER_LEASE)
                after = await renew_for(world, system, leases, 4 * LONG_S)
            assert bool(before[1]) == bool(refused_s)
            assert after == {1: [], 2: []}
            assert world.present() == [1, 2]
            said = [it["event"] for it in lines if it.get("node") == 1]
            assert len(said) == 2
            assert "answers no call" in said[0]
            assert "answers calls again" in said[1]

    seeded(53, scenario)


def test_no_node_loses_its_lease_so_while_the_cluster_stops() -> None:
    async def scenario(clock: VirtualClock) -> None:
        world = World(clock, MemoryMetaStore())
        async with await world.start(rules=STILL) as system:
            leases = {1: await world.register(system, 1), 2: await world.register(system, 2)}
            system.find(REGISTRAR).tell(CloseCluster())
            world.nodes[0].silent = True
            assert (await renew_for(world, system, leases, ENOUGH_S))[1] == []

    seeded(54, scenario)


def test_one_that_was_out_of_reach_for_a_few_probes_is_renewed_meanwhile() -> None:
    async def scenario(clock: VirtualClock) -> None:
        world = World(clock, MemoryMetaStore())
        async with await world.start(rules=STILL) as system:
            leases = {1: await world.register(system, 1), 2: await world.register(system, 2)}
            await follow_until(system, all_assigned)
            for _ in range(3):
                world.nodes[0].silent = True
                few_s = (UNREACHED_PROBES - 1) * PROBE_S_MAX
                assert (await renew_for(world, system, leases, few_s))[1] == []
                world.nodes[0].silent = False
                assert (await renew_for(world, system, leases, LONG_S))[1] == []
            assert world.present() == [1, 2]

    seeded(57, scenario)


def test_a_node_that_answers_with_an_error_keeps_its_lease_and_gets_no_channels() -> None:
    async def scenario(clock: VirtualClock) -> None:
        world = World(clock, MemoryMetaStore())
        async with await world.start(rules=STILL) as system:
            leases = {1: await world.register(system, 1), 2: await world.register(system, 2)}
            world.nodes[0].down = True  # its refusals are answers
            assert (await renew_for(world, system, leases, ENOUGH_S))[1] == []
            assert world.live.reachable() == {2}
            world.nodes[1].silent = True
            assert (await renew_for(world, system, leases, ENOUGH_S))[2] == [], "nobody takes over"

    seeded(55, scenario)


def test_a_probe_of_an_earlier_process_says_nothing_about_the_node_of_now() -> None:
    async def scenario(clock: VirtualClock) -> None:
        world = World(clock, MemoryMetaStore())
        async with await world.start() as system:
            await world.register(system, 1)
            earlier = world.nodes[0]
            world.live.put(replace(earlier))
            assert world.live.probed(earlier, Probe.UNREACHED) == 0
            assert world.live.silent() == frozenset()

    seeded(56, scenario)
