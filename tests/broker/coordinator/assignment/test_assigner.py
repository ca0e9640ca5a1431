"""The table and those who follow it: first starts, watches, restarts of the coordinator."""

import anyio
import pytest

from actors import System
from actors.testing import VirtualClock
from broker.coordinator.assignment.assigner import WATCHES_MAX
from broker.coordinator.assignment.messages import ChannelReported, ListPChannels, NextAssignment
from broker.meta.memory_store import MemoryMetaStore
from broker.model.channel import AssignmentVersion, PChannelState
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import Term
from tests.broker.coordinator.assignment.following import (
    ASSIGNER,
    WITHIN_S,
    all_assigned,
    follow_until,
    seeded,
    terms_in,
)
from tests.broker.coordinator.fakes import NAMES, ROOT, make_nodes, run_coordinator


def test_at_the_first_start_every_channel_is_served_at_term_two() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        nodes = make_nodes(store, clock)
        async with run_coordinator(store, nodes, clock) as system:
            table = await follow_until(system, all_assigned)
            assert terms_in(table) == dict.fromkeys(NAMES, 2) == nodes[0].served
            assert table.control_host == NAMES[0]
            assert [(node.node_id, node.address) for node in table.nodes] == [(1, "127.0.0.1:1")]
            listed = await system.find(ASSIGNER).ask(ListPChannels(), deadline_s=WITHIN_S)
            assert [meta.name for meta in listed] == sorted(NAMES)
            assert {meta.state for meta in listed} == {PChannelState.ASSIGNED}

    seeded(1, scenario)


def test_the_first_answer_comes_at_once_though_nothing_is_served_yet() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        nodes = make_nodes(store, clock, 2)
        nodes[0].down = nodes[1].down = True
        async with run_coordinator(store, nodes, clock) as system:
            before_s = clock.monotonic_s()
            table = await system.find(ASSIGNER).ask(NextAssignment(), deadline_s=WITHIN_S)
            assert clock.monotonic_s() == before_s
            assert table is not None
            assert [(node.node_id, node.channels) for node in table.nodes] == [(1, ()), (2, ())]

    seeded(1, scenario)


def test_a_watch_without_news_ends_after_about_a_second() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        async with run_coordinator(store, make_nodes(store, clock), clock) as system:
            table = await follow_until(system, all_assigned)
            before_s = clock.monotonic_s()
            request = NextAssignment(table.version)
            assert await system.find(ASSIGNER).ask(request, deadline_s=WITHIN_S) is None
            assert 0.9 < clock.monotonic_s() - before_s < 1.5

    seeded(1, scenario)


def test_watches_are_bounded_and_all_are_answered() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        answers: list[object] = []

        async def watch(system: System, after: AssignmentVersion) -> None:
            try:
                request = NextAssignment(after)
                answers.append(await system.find(ASSIGNER).ask(request, deadline_s=WITHIN_S))
            except Refused as error:
                answers.append(error.refusal.code)

        async with run_coordinator(store, make_nodes(store, clock), clock) as system:
            table = await follow_until(system, all_assigned)
            async with anyio.create_task_group() as group:
                for _ in range(WATCHES_MAX + 5):
                    group.start_soon(watch, system, table.version)
            assert answers.count(StreamingCode.INNER) == 5
            assert answers.count(None) == WATCHES_MAX

    seeded(1, scenario)


def test_without_nodes_the_table_is_empty_and_nothing_is_recorded() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        async with run_coordinator(store, [], clock) as system:
            await clock.sleep(10.0)
            table = await system.find(ASSIGNER).ask(NextAssignment(), deadline_s=WITHIN_S)
            assert table is not None
            assert table.nodes == ()
            assert await store.list("pchannel/", limit=1000) == []

    seeded(1, scenario)


def test_a_channel_that_no_longer_moves_shows_in_the_statistics() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        async with run_coordinator(store, make_nodes(store, clock), clock) as system:
            await follow_until(system, all_assigned)
            extras = {row.path: row.extra for row in system.statistics()}
            row = extras[f"{ROOT}/reconcilers/{NAMES[0]}"]
            assert row == {"channel_term": 2, "channel_state": "ASSIGNED", "failures": 0}
            assert extras[ASSIGNER]["channels_assigned"] == len(NAMES)

    seeded(1, scenario)


def test_channels_are_spread_evenly_over_nodes() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        async with run_coordinator(store, make_nodes(store, clock, 2), clock) as system:
            table = await follow_until(system, all_assigned)
            assert [len(node.channels) for node in table.nodes] == [2, 2]

    seeded(2, scenario)


@pytest.mark.parametrize("victim", ["window", "oracle", "catalog", "assigner", "reconcilers"])
def test_a_coordinator_that_restarts_adopts_what_its_node_serves(victim: str) -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        (node,) = nodes = make_nodes(store, clock)
        async with run_coordinator(store, nodes, clock) as system:
            before = await follow_until(system, all_assigned)
            system.kill(f"{ROOT}/{victim}")
            await clock.sleep(5.0)
            table = await follow_until(system, all_assigned)
            assert terms_in(table) == terms_in(before)
            assert table.version >= before.version
            assert len(node.history) == len(NAMES)

    seeded(11, scenario)


def test_one_placement_that_crashes_leaves_its_channel_and_the_table_alone() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        (node,) = nodes = make_nodes(store, clock)
        async with run_coordinator(store, nodes, clock) as system:
            before = await follow_until(system, all_assigned)
            system.kill(f"{ROOT}/reconcilers/{NAMES[3]}")
            await clock.sleep(1.0)
            assert await follow_until(system, all_assigned) == before
            await node.restart_channel(NAMES[3])
            await follow_until(system, lambda table: terms_in(table).get(NAMES[3]) == 3)

    seeded(12, scenario)


def test_a_new_process_has_a_larger_version_and_gives_every_channel_a_larger_term() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        async with run_coordinator(store, make_nodes(store, clock), clock) as system:
            before = await follow_until(system, all_assigned)
        async with run_coordinator(store, make_nodes(store, clock), clock) as system:
            after = await follow_until(system, all_assigned)
        assert after.version > before.version
        assert after.version.incarnation == before.version.incarnation + 1
        assert terms_in(after) == dict.fromkeys(NAMES, 3)

    seeded(13, scenario)


def test_a_report_about_a_channel_whose_placement_just_died_is_dropped() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        async with run_coordinator(store, make_nodes(store, clock), clock) as system:
            before = await follow_until(system, all_assigned)
            system.kill(f"{ROOT}/reconcilers/{NAMES[0]}")
            system.find(ASSIGNER).tell(ChannelReported(NAMES[0], Term(2)))
            await clock.sleep(30.0)
            assert await follow_until(system, all_assigned) == before

    seeded(1, scenario)
