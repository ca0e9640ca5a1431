"""Channels and nodes: failing nodes, lost channels, reports, moves, and all of it at once."""

import anyio
import pytest

from actors import System
from actors.testing import VirtualClock
from broker.coordinator.assignment.channel_records import ChannelRecords
from broker.coordinator.assignment.live_nodes import LiveNodes
from broker.coordinator.assignment.messages import ChannelReported, NodesChanged
from broker.meta.memory_store import MemoryMetaStore
from broker.model.channel import PChannelState
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import PChannelName, Term
from tests.broker.coordinator.assignment.following import (
    ASSIGNER,
    all_assigned,
    follow_until,
    is_true,
    seeded,
    terms_in,
)
from tests.broker.coordinator.fakes import (
    NAMES,
    FakeNode,
    ShakyStore,
    make_nodes,
    run_coordinator,
)


def test_a_node_that_comes_up_late_costs_no_terms() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        (node,) = nodes = make_nodes(store, clock)
        node.down = True
        async with run_coordinator(store, nodes, clock) as system:
            await clock.sleep(20.0)
            node.down = False
            assert terms_in(await follow_until(system, all_assigned)) == dict.fromkeys(NAMES, 2)

    seeded(3, scenario)


@pytest.mark.parametrize("spoken", [True, False])
def test_a_node_that_has_just_spoken_is_not_asked_first_whether_it_is_up(spoken: bool) -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        (node,) = nodes = make_nodes(store, clock)
        node.silent = True
        live = LiveNodes(nodes)
        if spoken:
            live.heard(node.node_id)
        async with run_coordinator(store, nodes, clock, live=live):
            await clock.sleep(1.0)
            assert set(node.served) == (set(NAMES) if spoken else set())

    seeded(21, scenario)


def test_a_node_that_died_since_it_spoke_costs_one_term_and_no_more() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        (node,) = nodes = make_nodes(store, clock)
        live = LiveNodes(nodes)
        live.heard(node.node_id)
        node.down = True
        async with run_coordinator(store, nodes, clock, live=live) as system:
            await clock.sleep(20.0)
            node.down = False
            assert terms_in(await follow_until(system, all_assigned)) == dict.fromkeys(NAMES, 3)

    seeded(22, scenario)


def test_a_node_that_went_and_came_back_is_asked_again() -> None:
    live = LiveNodes()
    (node,) = make_nodes(MemoryMetaStore(), VirtualClock())
    live.put(node)
    live.heard(node.node_id)
    assert live.is_confirmed(node.node_id)
    live.put(node)
    assert not live.is_confirmed(node.node_id)


@pytest.mark.parametrize(
    "code", [StreamingCode.INNER, StreamingCode.IGNORED_OPERATION, StreamingCode.UNKNOWN]
)
def test_a_refused_assignment_is_tried_again_at_a_higher_term(code: StreamingCode) -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        (node,) = nodes = make_nodes(store, clock)
        node.refusals = [code] * 6
        async with run_coordinator(store, nodes, clock) as system:
            terms = terms_in(await follow_until(system, all_assigned))
            assert sum(terms.values()) == 2 * len(NAMES) + 6
            assert terms == node.served

    seeded(4, scenario)


def test_one_node_that_hangs_holds_up_only_its_own_channels_and_only_for_the_deadline() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        hanging, healthy = nodes = make_nodes(store, clock, 2)
        hanging.hangs = True
        async with run_coordinator(store, nodes, clock) as system:
            await follow_until(system, lambda table: len(terms_in(table)) == 2)
            assert len(healthy.served) == 2
            assert clock.monotonic_s() < 1.0
            hanging.hangs = False
            await follow_until(system, all_assigned)
            assert 299.0 < clock.monotonic_s() < 310.0

    seeded(5, scenario)


def test_a_channel_restarted_by_its_node_vanishes_and_returns_at_the_nodes_term() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        (node,) = nodes = make_nodes(store, clock)
        async with run_coordinator(store, nodes, clock) as system:
            await follow_until(system, all_assigned)
            await node.restart_channel(NAMES[1])
            table = await follow_until(system, all_assigned)
            assert terms_in(table) == {**dict.fromkeys(NAMES, 2), NAMES[1]: 3} == node.served
            assert len(node.history) == len(NAMES) + 1

    seeded(6, scenario)


def test_a_restart_of_a_channel_that_nobody_reported_is_noticed_in_the_record() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        (node,) = nodes = make_nodes(store, clock)
        async with run_coordinator(store, nodes, clock) as system:
            await follow_until(system, all_assigned)
            node.news = None
            await node.restart_channel(NAMES[1])
            table = await follow_until(system, lambda table: terms_in(table).get(NAMES[1]) == 3)
            assert terms_in(table) == node.served

    seeded(7, scenario)


def test_a_channel_its_node_gave_up_is_assigned_anew_after_a_grace() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        (node,) = nodes = make_nodes(store, clock)
        async with run_coordinator(store, nodes, clock) as system:
            await follow_until(system, all_assigned)
            node.give_up_channel(NAMES[2])
            await follow_until(system, lambda table: NAMES[2] not in terms_in(table))
            table = await follow_until(system, all_assigned)
            assert terms_in(table)[NAMES[2]] == 3
            assert terms_in(table) == node.served

    seeded(8, scenario)


@pytest.mark.parametrize("count", [1, 2])
def test_a_channel_that_somebody_had_removed_is_assigned_anew_at_once(count: int) -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        node, *_ = nodes = make_nodes(store, clock, count)
        async with run_coordinator(store, nodes, clock) as system:
            await follow_until(system, all_assigned)
            name = next(iter(node.served))
            before_s = clock.monotonic_s()
            node.release_channel(name)
            await follow_until(system, lambda table: name not in terms_in(table))
            table = await follow_until(system, all_assigned)
            assert clock.monotonic_s() - before_s < 1.0
            assert terms_in(table)[name] == 3
            assert is_true(table, nodes)

    seeded(31, scenario)


def test_a_node_that_still_opens_a_channel_keeps_its_time_whatever_other_nodes_do() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        node, other = make_nodes(store, clock, 2)
        live = LiveNodes([node])
        async with (
            run_coordinator(store, [node], clock, live=live) as system,
            anyio.create_task_group() as tasks,
        ):
            await follow_until(system, all_assigned)
            tasks.start_soon(node.restart_channel, NAMES[0], 3.0)
            await clock.sleep(0.5)
            live.put(other)
            system.find(ASSIGNER).tell(NodesChanged())
            await clock.sleep(0.5)
            # Its report loses the race to the node, which has taken a term.
            system.find(ASSIGNER).tell(ChannelReported(NAMES[0], Term(2)))
            await clock.sleep(0.5)
            system.find(ASSIGNER).tell(NodesChanged())
            table = await follow_until(system, all_assigned)
            assert terms_in(table)[NAMES[0]] == 3 == node.served[NAMES[0]]
            assert [it.term for it in node.history if it.name == NAMES[0]] == [2, 3]

    seeded(32, scenario)


def test_a_node_that_dies_while_it_opens_a_channel_has_no_time_left() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        node, other = nodes = make_nodes(store, clock, 2)
        live = LiveNodes(nodes)
        async with run_coordinator(store, nodes, clock, live=live) as system:
            await follow_until(system, all_assigned)
            name = next(iter(node.served))
            node.give_up_channel(name)
            await clock.sleep(0.5)
            before_s = clock.monotonic_s()
            live.drop(node.node_id)
            system.find(ASSIGNER).tell(NodesChanged())
            await follow_until(system, lambda table: terms_in(table) == other.served)
            await follow_until(system, all_assigned)
            assert clock.monotonic_s() - before_s < 1.0

    seeded(33, scenario)


def test_a_report_of_the_serving_term_moves_the_channel_to_the_next_term_at_once() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        (node,) = nodes = make_nodes(store, clock)
        async with run_coordinator(store, nodes, clock) as system:
            await follow_until(system, all_assigned)
            for _ in range(3):  # every client says it, one of them is enough
                system.find(ASSIGNER).tell(ChannelReported(NAMES[0], Term(2)))
            table = await follow_until(system, lambda table: terms_in(table).get(NAMES[0]) == 3)
            assert clock.monotonic_s() < 1.0
            await clock.sleep(30.0)
            assert terms_in(table) == node.served

    seeded(9, scenario)


@pytest.mark.parametrize("term", [0, 1, 3, 99])
def test_a_stale_report_changes_nothing(term: int) -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        (node,) = nodes = make_nodes(store, clock)
        async with run_coordinator(store, nodes, clock) as system:
            table = await follow_until(system, all_assigned)
            system.find(ASSIGNER).tell(ChannelReported(NAMES[0], Term(term)))
            system.find(ASSIGNER).tell(ChannelReported(PChannelName("unknown_0"), Term(2)))
            await clock.sleep(60.0)
            assert await follow_until(system, all_assigned) == table
            assert len(node.history) == len(NAMES)

    seeded(10, scenario)


def test_a_channel_moves_to_another_node_and_the_former_one_is_told_to_let_go() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        former, other = make_nodes(store, clock, 2)
        async with run_coordinator(store, [former], clock) as system:
            await follow_until(system, all_assigned)
        former.give_up_channel(NAMES[0])
        async with run_coordinator(store, [former, other], clock) as system:
            table = await follow_until(system, all_assigned)
            assert dict(other.served) == {NAMES[0]: 3}
            assert former.removed == [(NAMES[0], 2)]
            assert terms_in(table) == {**former.served, **other.served}
            former.served[NAMES[0]] = Term(2)  # a zombie: its next term is refused
            with pytest.raises(Exception, match="node 2 owns it"):
                await former.restart_channel(NAMES[0])

    seeded(14, scenario)


def test_a_former_owner_that_is_gone_holds_nobody_up() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        former, other = make_nodes(store, clock, 2)
        async with run_coordinator(store, [former], clock) as system:
            await follow_until(system, all_assigned)
        async with run_coordinator(store, [other], clock) as system:
            table = await follow_until(system, all_assigned)
            assert NAMES[0] in other.served
            assert is_true(table, [other])
            assert former.removed == []

    seeded(16, scenario)


def test_a_former_owner_that_has_a_lease_and_does_not_let_go_is_waited_for() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        former, other = nodes = make_nodes(store, clock, 2)
        async with run_coordinator(store, [former], clock) as system:
            await follow_until(system, all_assigned)
        former.keeps = True
        former.give_up_channel(NAMES[0])
        async with run_coordinator(store, nodes, clock) as system:
            await follow_until(system, lambda table: len(terms_in(table)) == len(NAMES) - 1)
            await clock.sleep(60.0)
            assert NAMES[0] not in other.served
            former.keeps = False
            table = await follow_until(system, all_assigned)
            assert is_true(table, nodes)
            assert NAMES[0] in [name for name, _ in former.removed]

    seeded(16, scenario)


def test_a_report_that_loses_its_race_to_the_node_leaves_the_node_its_time() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = ShakyStore(MemoryMetaStore(), clock)
        nodes = make_nodes(store, clock)
        async with run_coordinator(store, nodes, clock) as system:
            before = await follow_until(system, all_assigned)
            store.lost_races = 1
            system.find(ASSIGNER).tell(ChannelReported(NAMES[0], Term(2)))
            await clock.sleep(10.0)
            assert await follow_until(system, all_assigned) == before
            system.find(ASSIGNER).tell(ChannelReported(NAMES[0], Term(2)))
            await follow_until(system, lambda table: terms_in(table).get(NAMES[0]) == 3)

    seeded(17, scenario)


def test_while_the_store_fails_nothing_changes_hands_and_then_it_goes_on() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = ShakyStore(MemoryMetaStore(), clock)
        (node,) = nodes = make_nodes(store, clock)
        async with run_coordinator(store, nodes, clock) as system:
            await follow_until(system, all_assigned)
            store.broken = True
            node.give_up_channel(NAMES[0])
            system.find(ASSIGNER).tell(ChannelReported(NAMES[1], Term(2)))
            await clock.sleep(20.0)
            assert len(node.history) == len(NAMES)
            store.broken = False
            await follow_until(system, lambda table: terms_in(table) == node.served)
            table = await follow_until(system, all_assigned)
            assert terms_in(table) == node.served
            assert terms_in(table)[NAMES[0]] >= 3

    seeded(15, scenario)


@pytest.mark.parametrize("seed", range(12))
def test_in_any_disorder_a_term_is_served_once_and_all_is_well_in_the_end(seed: int) -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = ShakyStore(MemoryMetaStore(), clock)
        store.delay_s = 0.002
        nodes = make_nodes(store, clock, 3)
        async with run_coordinator(store, nodes, clock) as system:
            await disturb(system, nodes, store, clock)
            table = await follow_until(
                system, lambda table: all_assigned(table) and is_true(table, nodes)
            )
        served = [(channel.name, channel.term) for node in nodes for channel in node.history]
        assert len(set(served)) == len(served)
        for name in NAMES:
            record = (await ChannelRecords(store).read(name)).meta
            assert record.state is PChannelState.ASSIGNED
            assert record.term == terms_in(table)[name]

    seeded(seed, scenario)


async def disturb(
    system: System, nodes: list[FakeNode], store: ShakyStore, clock: VirtualClock
) -> None:
    """Everything that can go wrong, one after the other, faster than it is put right."""
    for step in range(40):
        node, name = nodes[step % 3], NAMES[step * 7 % 4]
        if step % 4 == 1:
            node.down = not node.down
        if step % 6 == 2:
            node.hangs = not node.hangs
        if step % 7 == 3:
            store.broken = not store.broken
        node.refusals = [StreamingCode.INNER] * (step % 3)
        for term in range(2, 2 + step % 5):
            system.find(ASSIGNER).tell(ChannelReported(name, Term(term)))
        if name in node.served:
            await lose_channel(node, name, gives_up=step % 2 == 0)
        await clock.sleep(0.05 * (step % 5))
    store.broken = False
    for node in nodes:
        node.down = node.hangs = False
        node.refusals.clear()


async def lose_channel(node: FakeNode, name: PChannelName, *, gives_up: bool) -> None:
    if gives_up:
        node.give_up_channel(name)
        return
    try:
        await node.restart_channel(name)
    except Refused:
        pass  # the store is broken, or another node owns it by now
