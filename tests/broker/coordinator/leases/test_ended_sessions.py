"""The end of a node's session is in the store before its channels have other owners."""

from actors.testing import VirtualClock
from broker.coordinator.assignment.live_nodes import LiveNodes
from broker.meta.memory_store import MemoryMetaStore
from broker.model.failure import StreamingCode
from broker.model.ids import NodeId
from broker.node.membership.membership import CALL_SHARE
from broker.ports.nodes import NodeLease
from tests.broker.coordinator.assignment.following import (
    all_assigned,
    follow_until,
    seeded,
)
from tests.broker.coordinator.fakes import NAMES, ShakyStore
from tests.broker.coordinator.leases.registered import (
    LEASE_S,
    REGISTRAR,
    STILL,
    World,
    refused,
)


def test_a_session_ends_in_the_store_before_its_channels_have_other_owners() -> None:
    """Else a later coordinator would renew it, and its node would close ticks beside them."""

    async def scenario(clock: VirtualClock) -> None:
        store = ShakyStore(MemoryMetaStore(), clock)
        world = World(clock, store)
        async with await world.start(rules=STILL) as system:
            first = await world.register(system, 1)
            await follow_until(system, all_assigned)
            second = await world.register(system, 2)
            store.deletes = False
            await world.keep(system, 2, second, clock.monotonic_s() + 3 * LEASE_S)
            assert not world.nodes[1].served, "node 1 is lost, and its record is still there"
            assert await refused(world.renew(system, 1, first)) is StreamingCode.IGNORED_OPERATION
            store.deletes = True
            await world.keep(system, 2, second, clock.monotonic_s() + LEASE_S)
            await follow_until(system, all_assigned)
            assert len(world.nodes[1].served) == len(NAMES)
        world.live = LiveNodes()
        async with await world.start() as system:
            assert await refused(world.renew(system, 1, first)) is StreamingCode.IGNORED_OPERATION

    seeded(55, scenario)


def test_a_node_that_returns_while_its_record_cannot_be_deleted_stays() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = ShakyStore(MemoryMetaStore(), clock)
        world = World(clock, store)
        async with await world.start() as system:
            first = await world.register(system, 1)
            store.deletes = False
            await clock.sleep(2 * LEASE_S)
            second = await world.register(system, 1)
            assert second.session > first.session
            store.deletes = True
            await world.keep(system, 1, second, clock.monotonic_s() + LEASE_S)
            assert world.present() == [1]
            assert len(await store.list("node/", limit=10)) == 1

    seeded(56, scenario)


def test_a_store_that_hangs_at_the_end_of_a_session_holds_up_no_other_lease() -> None:
    async def scenario(clock: VirtualClock) -> None:
        store = ShakyStore(MemoryMetaStore(), clock)
        world = World(clock, store)
        async with await world.start() as system:
            await world.register(system, 1)
            second = await world.register(system, 2)
            store.delay_s = 3600.0
            await world.keep(system, 2, second, clock.monotonic_s() + 5 * LEASE_S)
            assert world.present() == [1, 2]
            store.delay_s = 0.0
            await world.keep(system, 2, second, clock.monotonic_s() + LEASE_S)
            assert world.present() == [2]

    seeded(57, scenario)


def test_however_many_nodes_are_lost_a_store_that_hangs_holds_up_no_renewal() -> None:
    """A node waits for the answer to a renewal for 40 % of its lease."""

    async def scenario(clock: VirtualClock) -> None:
        store = ShakyStore(MemoryMetaStore(), clock)
        world = World(clock, store, count=6)
        async with await world.start() as system:
            for node in range(1, 6):
                await world.register(system, node)
            kept = await world.register(system, 6)
            store.delay_s = 3600.0
            waited_s = 0.0
            for _ in range(12):
                await clock.sleep(LEASE_S / 5)
                asked_s = clock.monotonic_s()
                await world.renew(system, 6, kept)
                waited_s = max(waited_s, clock.monotonic_s() - asked_s)
            assert waited_s < CALL_SHARE * LEASE_S
            store.delay_s = 0.0
            await world.keep(system, 6, kept, clock.monotonic_s() + LEASE_S)
            assert world.present() == [6]

    seeded(59, scenario)


def test_a_registrar_that_starts_drops_nodes_without_a_record() -> None:
    """The one before it was killed when it had deleted the record."""

    async def scenario(clock: VirtualClock) -> None:
        world = World(clock, MemoryMetaStore())
        world.live.put(world.nodes[0])
        async with await world.start() as system:
            await world.register(system, 2)
            assert world.present() == [2]

    seeded(58, scenario)


def gets_ticks(world: World, node: int, lease: NodeLease) -> bool:
    return world.live.tick_refusal(NodeId(node), lease.session) is None


def test_a_session_that_is_over_gets_no_ticks_from_then_on_whether_or_not_it_is_recorded() -> None:
    """Its node may live, and take its lease for its own: a firewall refused a call to it."""

    async def scenario(clock: VirtualClock) -> None:
        store = ShakyStore(MemoryMetaStore(), clock)
        world = World(clock, store)
        async with await world.start() as system:
            first, other = await world.register(system, 1), await world.register(system, 2)
            assert gets_ticks(world, 1, first)
            assert not gets_ticks(world, 2, first)
            store.deletes = False
            world.absent[NodeId(1)]()
            await clock.sleep(0.01)
            assert world.present() == [1, 2], "its channels have no other owner yet"
            assert not gets_ticks(world, 1, first)
            assert await refused(world.renew(system, 1, first)) is StreamingCode.IGNORED_OPERATION
            second = await world.register(system, 1)
            assert gets_ticks(world, 1, second)
            assert not gets_ticks(world, 1, first)
            assert gets_ticks(world, 2, other)

    seeded(60, scenario)


def test_a_session_gets_ticks_when_the_registrar_or_the_coordinator_has_restarted() -> None:
    async def scenario(clock: VirtualClock) -> None:
        world = World(clock, MemoryMetaStore())
        async with await world.start() as system:
            lease = await world.register(system, 1)
            system.kill(REGISTRAR)
            assert gets_ticks(world, 1, lease), "meanwhile, too"
            await clock.sleep(LEASE_S / 2)
            assert await world.renew(system, 1, lease) == lease
            assert gets_ticks(world, 1, lease)
        world.live = LiveNodes()
        async with await world.start() as system:
            assert gets_ticks(world, 1, lease)
            await clock.sleep(2 * LEASE_S)
            assert not gets_ticks(world, 1, lease), "its lease is over"

    seeded(61, scenario)
