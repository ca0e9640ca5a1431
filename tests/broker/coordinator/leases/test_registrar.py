"""Nodes that register, renew, leave and are lost; what each bad call is answered; restarts."""

import pytest

from actors.testing import VirtualClock
from broker.coordinator.assignment.channel_records import ChannelRecords
from broker.coordinator.assignment.live_nodes import LiveNodes
from broker.coordinator.assignment.messages import ChannelReported
from broker.coordinator.leases.messages import (
    CloseCluster,
    LeaveCluster,
    NodeAbsent,
    ProcessEnded,
)
from broker.coordinator.records import ALTER_KEY, decode_member
from broker.meta.memory_store import MemoryMetaStore
from broker.model.failure import StreamingCode
from broker.model.ids import NodeId, Term
from tests.broker.coordinator.assignment.following import (
    ASSIGNER,
    all_assigned,
    follow_until,
    seeded,
)
from tests.broker.coordinator.fakes import NAMES, FakeNode, ShakyStore
from tests.broker.coordinator.leases.registered import LEASE_S, REGISTRAR, STILL, World, refused


def test_channels_wait_for_the_first_node_and_go_on_at_the_next_when_its_lease_is_over() -> None:
    async def scenario(clock: VirtualClock) -> None:
        world = World(clock, MemoryMetaStore())
        async with await world.start(rules=STILL) as system:
            await clock.sleep(3.0)
            first = await world.register(system, 1)
            assert (first.lease_s, first.moving) == (LEASE_S, False)
            await follow_until(system, all_assigned)
            second = await world.register(system, 2)
            assert second.session > first.session
            lost_s = clock.monotonic_s() + LEASE_S
            await world.keep(system, 2, second, lost_s + 1.0)
            table = await follow_until(system, all_assigned)
            assert [row.node_id for row in table.nodes] == [2]
            assert world.nodes[0].removed == [], "a node without a lease is not asked"
            assert world.nodes[0].released

    seeded(41, scenario)


@pytest.mark.parametrize("how", ["leave", "process", "absent"])
def test_a_node_that_is_known_to_be_gone_is_not_waited_for(how: str) -> None:
    async def scenario(clock: VirtualClock) -> None:
        world = World(clock, MemoryMetaStore())
        async with await world.start() as system:
            first = await world.register(system, 1)
            await follow_until(system, all_assigned)
            await world.register(system, 2)
            gone_s = clock.monotonic_s()
            registrar = system.find(REGISTRAR)
            if how == "leave":
                await registrar.ask(LeaveCluster(NodeId(1), first.session), deadline_s=5.0)
            elif how == "process":
                registrar.tell(ProcessEnded(NodeId(2), 101))
                registrar.tell(ProcessEnded(NodeId(1), 101))
            else:
                world.absent[NodeId(1)]()
            table = await follow_until(system, lambda it: all_assigned(it) and len(it.nodes) == 1)
            assert [row.node_id for row in table.nodes] == [2]
            assert clock.monotonic_s() - gone_s < LEASE_S / 2

    seeded(42, scenario)


def test_a_node_id_in_use_is_refused_and_its_holder_goes_on() -> None:
    async def scenario(clock: VirtualClock) -> None:
        world = World(clock, MemoryMetaStore())
        async with await world.start() as system:
            lease = await world.register(system, 1)
            other = world.register(system, 1, pid=999)
            assert await refused(other) is StreamingCode.RESOURCE_ACQUIRED
            assert await world.renew(system, 1, lease) == lease
            assert await world.register(system, 1) == lease, "the same process asks again"
            assert world.present() == [1]

    seeded(43, scenario)


def test_a_new_process_with_the_pid_and_address_of_the_one_before_is_another_one() -> None:
    async def scenario(clock: VirtualClock) -> None:
        world = World(clock, MemoryMetaStore(), count=1)
        async with await world.start() as system:
            first = await world.register(system, 1, pid=1)
            before = await follow_until(system, all_assigned)
            world.nodes[0] = FakeNode(NodeId(1), world.nodes[0].terms, clock, "127.0.0.1:1")
            again = world.register(system, 1, pid=1, incarnation="second")
            assert await refused(again) is StreamingCode.RESOURCE_ACQUIRED
            await clock.sleep(2 * LEASE_S)
            second = await world.register(system, 1, pid=1, incarnation="second")
            assert second.session > first.session
            newest = before.version

            def is_newer(table: object) -> bool:
                return all_assigned(table) and table.version > newest  # type: ignore[arg-type,attr-defined]

            await follow_until(system, is_newer)
            assert len(world.nodes[0].served) == len(NAMES)

    seeded(54, scenario)


def test_a_node_on_the_data_of_another_cluster_is_refused() -> None:
    async def scenario(clock: VirtualClock) -> None:
        world = World(clock, MemoryMetaStore())
        async with await world.start() as system:
            for identity in ("", "another"):
                stranger = world.register(system, 1, cluster_id=identity)
                assert await refused(stranger) is StreamingCode.INVALID_ARGUMENT
            assert world.present() == []

    seeded(44, scenario)


def test_a_session_that_is_over_is_neither_renewed_nor_ended_again() -> None:
    async def scenario(clock: VirtualClock) -> None:
        world = World(clock, MemoryMetaStore())
        async with await world.start() as system:
            old = await world.register(system, 1)
            await clock.sleep(2 * LEASE_S)
            assert world.present() == []
            assert await refused(world.renew(system, 1, old)) is StreamingCode.IGNORED_OPERATION
            new = await world.register(system, 1)
            assert new.session > old.session
            registrar = system.find(REGISTRAR)
            await registrar.ask(LeaveCluster(NodeId(1), old.session), deadline_s=5.0)
            registrar.tell(NodeAbsent(NodeId(1), old.session))
            registrar.tell(ProcessEnded(NodeId(1), 1))
            assert await world.renew(system, 1, new) == new
            assert await refused(world.renew(system, 2, new)) is StreamingCode.IGNORED_OPERATION

    seeded(45, scenario)


def test_a_stopping_node_is_emptied_while_it_is_still_there() -> None:
    async def scenario(clock: VirtualClock) -> None:
        world = World(clock, MemoryMetaStore())
        first, second = world.nodes
        async with await world.start() as system:
            lease = await world.register(system, 1)
            await follow_until(system, all_assigned)
            assert not (await world.renew(system, 1, lease, stopping=True)).moving
            await world.register(system, 2)
            await clock.sleep(LEASE_S / 4)
            assert (await world.renew(system, 1, lease)).moving
            await follow_until(system, lambda it: all_assigned(it) and not first.served)
            assert len(first.removed) == len(second.served) == len(NAMES)
            system.find(REGISTRAR).tell(CloseCluster())
            assert not (await world.renew(system, 1, lease)).moving

    seeded(46, scenario)


def test_a_coordinator_that_restarts_takes_no_nodes_right_to_write() -> None:
    async def scenario(clock: VirtualClock) -> None:
        world = World(clock, MemoryMetaStore())
        async with await world.start() as system:
            lease = await world.register(system, 1)
            before = await follow_until(system, all_assigned)
            await clock.sleep(0.3)  # it is recorded behind that: an owner in between is asked anew
        await clock.sleep(60.0)
        world.live = LiveNodes()
        async with await world.start() as system:
            assert await world.renew(system, 1, lease) == lease
            after = await follow_until(system, all_assigned)
            assert after.version > before.version
            assert after.nodes == before.nodes, "same owners, same terms"
            assert world.present() == [1]

    seeded(47, scenario)


def test_a_recorded_node_that_is_not_heard_of_again_is_lost_after_one_lease() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        world = World(clock, store)
        async with await world.start() as system:
            await world.register(system, 1)
            await follow_until(system, all_assigned)
        world.live = LiveNodes()
        async with await world.start() as system:
            assert world.present() == [1]
            await clock.sleep(2 * LEASE_S)
            assert world.present() == []
            assert await store.list("node/", limit=1000) == []

    seeded(48, scenario)


def test_a_coordinator_with_a_shorter_lease_waits_for_the_longer_ones_that_were_granted() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        world = World(clock, store)
        longer_s = 10 * LEASE_S
        async with await world.start(lease_s=longer_s) as system:
            lease = await world.register(system, 1)
            assert lease.lease_s == longer_s
        restarted_s = clock.monotonic_s()
        world.live = LiveNodes()
        async with await world.start() as system:
            renewed = await world.renew(system, 1, lease)
            assert renewed.lease_s == LEASE_S, "should its node never hear of it, the first holds"
            while world.present():
                await clock.sleep(LEASE_S / 4)
            waited_s = clock.monotonic_s() - restarted_s
            assert longer_s <= waited_s <= longer_s + LEASE_S
            await world.register(system, 1)
            await clock.sleep(2 * LEASE_S)
            assert world.present() == [], "what it grants itself is as short as it says"
        world.live = LiveNodes()
        async with await world.start() as system:
            await world.register(system, 1)
            await clock.sleep(2 * LEASE_S)
            assert world.present() == [], "nobody waits for leases that are long over"

    seeded(53, scenario)


def test_a_killed_registrar_keeps_the_nodes_and_their_sessions() -> None:
    async def scenario(clock: VirtualClock) -> None:
        world = World(clock, MemoryMetaStore())
        async with await world.start() as system:
            lease = await world.register(system, 1)
            before = await follow_until(system, all_assigned)
            system.kill(REGISTRAR)
            await clock.sleep(0.2)
            assert await world.renew(system, 1, lease) == lease
            assert (await follow_until(system, all_assigned)).nodes == before.nodes

    seeded(49, scenario)


def test_a_failing_store_refuses_newcomers_and_loses_nobody() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = ShakyStore(MemoryMetaStore(), clock)
        world = World(clock, store)
        async with await world.start() as system:
            lease = await world.register(system, 1)
            await follow_until(system, all_assigned)
            store.broken = True
            assert await refused(world.register(system, 2)) is StreamingCode.INNER
            assert await world.renew(system, 1, lease) == lease
            assert world.present() == [1]
            store.broken = False
            await world.register(system, 2)

    seeded(50, scenario)


def test_a_report_about_an_older_term_changes_nothing() -> None:
    async def scenario(clock: VirtualClock) -> None:
        world = World(clock, MemoryMetaStore())
        async with await world.start() as system:
            lease = await world.register(system, 1)
            before = await follow_until(system, all_assigned)
            recorded = await ChannelRecords(world.store).read(NAMES[0])
            for term in (1, 3):
                system.find(ASSIGNER).tell(ChannelReported(NAMES[0], Term(term)))
            await world.keep(system, 1, lease, clock.monotonic_s() + 3.0)
            assert await follow_until(system, all_assigned) == before
            assert await ChannelRecords(world.store).read(NAMES[0]) == recorded

    seeded(51, scenario)


def test_a_node_that_came_back_under_its_old_id_is_given_its_channels_anew() -> None:
    async def scenario(clock: VirtualClock) -> None:
        world = World(clock, MemoryMetaStore(), count=1)
        async with await world.start() as system:
            await world.register(system, 1)
            before = await follow_until(system, all_assigned)
            system.find(REGISTRAR).tell(ProcessEnded(NodeId(1), 101))
            world.nodes[0] = FakeNode(NodeId(1), world.nodes[0].terms, clock, "127.0.0.1:1")
            await world.register(system, 1, pid=102)
            newest = before.version

            def is_newer(table: object) -> bool:
                return all_assigned(table) and table.version > newest  # type: ignore[arg-type,attr-defined]

            after = await follow_until(system, is_newer)
            terms = [channel.term for row in after.nodes for channel in row.channels]
            assert min(terms) == 3

    seeded(52, scenario)


def test_a_node_that_knows_no_switches_is_refused_where_the_log_was_switched() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = MemoryMetaStore()
        world = World(clock, store)
        async with await world.start() as system:
            await world.register(system, 1, knows_places=False)
            await store.write({ALTER_KEY: b"{}"})
            late = world.register(system, 2, knows_places=False)
            assert await refused(late) is StreamingCode.INVALID_ARGUMENT
            await world.register(system, 2)
            found = [decode_member(key, it.value) for key, it in await store.list("node/", limit=9)]
            assert [(it.node, it.knows_places) for it in found] == [(1, False), (2, True)]

    seeded(44, scenario)
