"""The keeper of segments, over fake nodes and a store that fails: what is answered was stored."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

import pytest

from actors import ONE_FOR_ONE, SupervisorSpec, System
from actors.testing import VirtualClock, run_seeded
from broker.coordinator.assignment.stored_terms import StoredTerms
from broker.core.master.reservations import ReservationLimits
from broker.core.master.segment_records import (
    records_of,
    segment_key,
)
from broker.core.naming import pchannel_names, vchannel_name
from broker.master.segments.messages import (
    AcknowledgeFlushes,
    AssignRows,
    CollectionSealed,
    CountBinlogs,
    CountStatistics,
    FindSegments,
    ListFlushes,
    RowsAsked,
    RowsAssigned,
    SealCollection,
    ShowSegments,
    StatisticsCounted,
    TidySegments,
)
from broker.master.segments.partition_lookup import FoundPartition, unknown
from broker.master.segments.segment_keeper import SegmentParts
from broker.master.segments.segment_sweep import SweepLimits
from broker.master.tree import MasterParts, master_tree
from broker.meta.memory_store import MemoryMetaStore
from broker.model.channel import ChannelOffsets
from broker.model.effect import SegmentLevel
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import (
    CollectionId,
    MessageId,
    NodeId,
    PartitionId,
    PChannelName,
    SegmentId,
    Term,
    TimeTick,
)
from broker.model.master.id_range import IdRange
from broker.model.master.reservation import SegmentOrders, SegmentStatistics
from broker.model.master.segment_meta import SegmentMeta, SegmentMetaState
from broker.model.snapshot import (
    SegmentSnapshot,
    SegmentState,
    SnapshotChange,
    VChannelSnapshot,
    VChannelState,
    WalCheckpoint,
)
from broker.ports.meta_writes import split_write
from broker.ports.nodes import NodeControl
from broker.ports.ticks import TickRange
from tests.broker.coordinator.fakes import FakeNode, ShakyStore

KEEPER, READER = "/root/master/segments", "/root/master/segment_reader"
NAMES = pchannel_names("by-dev", 2)
COLLECTION, A, B = CollectionId(7), PartitionId(8), PartitionId(9)
VCHANNEL = vchannel_name(NAMES[0], COLLECTION, 0)
ROWS = RowsAsked(100, NAMES[0], "rows", "")
LIMITS = ReservationLimits(segment_bytes=1000)
SWEEP = SweepLimits(kept_ms=300_000, unacknowledged_max=2)
S = 1000 << 18


@dataclass
class World:
    """The master over its ports. `partitions`: those of COLLECTION; None: it is gone."""

    clock: VirtualClock
    store: ShakyStore
    node: FakeNode
    partitions: frozenset[PartitionId] | None = frozenset({A, B})
    behind_s: float = 0.0
    offline: set[PChannelName] = field(default_factory=set)
    next_id: int = 1000

    # ---- ports --------------------------------------------------------------------------------

    async def reserve(self, count: int) -> TickRange:
        return TickRange(self.now, count)

    async def take(self, count: int = 1) -> IdRange:
        self.next_id += count
        return IdRange(self.next_id - count, count)

    async def owners(self) -> Mapping[PChannelName, NodeControl]:
        return {name: self.node for name in NAMES if name not in self.offline}

    async def describe(self) -> Mapping[PChannelName, ChannelOffsets]:
        tick = TimeTick(self.now - int(self.behind_s * S))
        zero = MessageId(0)
        return {
            name: ChannelOffsets(name, Term(1), zero, zero, tick, 0, observed_tick=tick)
            for name in NAMES
            if name not in self.offline
        }

    async def find(self, database: str, collection: str, partition: str) -> FoundPartition:
        if self.partitions is None or collection != "rows":
            raise unknown(f"there is no collection {collection!r}")
        return FoundPartition(COLLECTION, A, "_default", 1)

    async def partitions_of(self, id: CollectionId) -> Collection[PartitionId] | None:
        return self.partitions if id == COLLECTION else None

    async def index_of(self, id: CollectionId, segment_id: SegmentId) -> int:
        return 0

    # ---- what tests do ------------------------------------------------------------------------

    @property
    def now(self) -> TimeTick:
        return TimeTick(self.clock.wall_ms() << 18)

    def run(self) -> System:
        parts = SegmentParts(
            self.store,
            self,
            self,
            self,
            self.owners,
            self.describe,
            NAMES,
            limits=LIMITS,
            sweep=SWEEP,
        )
        tree = master_tree(MasterParts(self.store, segments=parts), "/root")
        return System(SupervisorSpec("root", ONE_FOR_ONE, (tree,)), clock=self.clock)

    async def save(self, *changes: SegmentSnapshot | VChannelSnapshot) -> None:
        """What the owner of the log saves."""
        change = SnapshotChange(
            WalCheckpoint(MessageId(1), TimeTick(1)),
            segments=tuple([it for it in changes if isinstance(it, SegmentSnapshot)]),
            vchannels=tuple([it for it in changes if isinstance(it, VChannelSnapshot)]),
        )
        puts, deletes = records_of(change)
        for some, gone in split_write(puts, deletes):
            await self.store.write(some, deletes=gone)


def seeded(test: Callable[[World], Awaitable[None]], seed: int = 1) -> None:
    async def main() -> None:
        clock = VirtualClock()
        store = ShakyStore(MemoryMetaStore(), clock)
        node = FakeNode(NodeId(1), StoredTerms(store, NodeId(1)), clock)
        await test(World(clock, store, node))

    run_seeded(seed, main)


def logged(id: int, state: SegmentState = SegmentState.GROWING, **more: object) -> SegmentSnapshot:
    first = SegmentSnapshot(
        id=SegmentId(id),
        vchannel=VCHANNEL,
        collection_id=COLLECTION,
        partition_id=A,
        state=state,
        level=SegmentLevel.ROWS,
        schema_version=0,
        rows=3,
        size_bytes=30,
        rows_max=100,
        size_bytes_max=1000,
        created_tick=TimeTick(id),
        modified_tick=TimeTick(id),
        tick=TimeTick(id),
    )
    return replace(first, **more)  # type: ignore[arg-type]


def vchannel(*partitions: PartitionId, dropped: bool = False) -> VChannelSnapshot:
    state = VChannelState.DROPPED if dropped else VChannelState.NORMAL
    return VChannelSnapshot(VCHANNEL, COLLECTION, state, partitions, (), TimeTick(1), TimeTick(2))


async def assign(system: System, *asked: RowsAsked) -> list[RowsAssigned]:
    answers = await system.find(KEEPER).ask(AssignRows(asked or (ROWS,)), deadline_s=30.0)
    assert all(isinstance(it, RowsAssigned) for it in answers), answers
    return list(answers)


async def found(system: System, *ids: int) -> list[SegmentMeta | None]:
    asked = FindSegments(tuple(map(SegmentId, ids)))
    return list(await system.find(READER).ask(asked, deadline_s=30.0))


async def states(system: System, *ids: int) -> list[SegmentMetaState | None]:
    return [it and it.state for it in await found(system, *ids)]


async def flushes(system: System) -> list[int]:
    page = await system.find(READER).ask(ListFlushes(), deadline_s=30.0)
    return [it.id for it in page.segments]


def test_a_reservation_is_dropped_when_all_pchannels_are_closed_behind_its_end() -> None:
    async def scenario(world: World) -> None:
        async with world.run() as system:
            whole = replace(ROWS, count=1000)
            (first,) = await assign(system, whole)
            assert first.expire_tick == world.now + 2 * S
            await world.clock.sleep(1.0)
            (second,) = await assign(system, whole)
            assert second.segment_id != first.segment_id
            world.offline = {NAMES[1]}
            await world.clock.sleep(60.0)
            assert (await assign(system, whole))[0].segment_id not in (first, second)
            world.offline = set()
            await world.clock.sleep(3.0)
            assert (await assign(system, whole))[0].segment_id == first.segment_id

    seeded(scenario)


def test_what_was_opened_is_stored_first_and_a_failing_store_opens_nothing() -> None:
    async def scenario(world: World) -> None:
        async with world.run() as system:
            await assign(system, replace(ROWS, count=1))
            world.store.lost_races = 1
            wanted = replace(ROWS, channel=NAMES[1], count=1000)
            with pytest.raises(Refused) as caught:
                await system.find(KEEPER).ask(AssignRows((wanted,)), deadline_s=30.0)
            assert caught.value.refusal.code is StreamingCode.INNER
            (assigned,) = await assign(system, wanted)
            assert await states(system, assigned.segment_id) == [SegmentMetaState.GROWING]
            page = await system.find(READER).ask(ShowSegments(COLLECTION), deadline_s=30.0)
            assert len(page.segments) == 2

    seeded(scenario)


def test_a_killed_keeper_gives_out_nothing_twice() -> None:
    async def scenario(world: World) -> None:
        async with world.run() as system:
            (first,) = await assign(system, replace(ROWS, count=600))
            system.kill(KEEPER)
            await world.clock.sleep(0.5)
            (second,) = await assign(system, replace(ROWS, count=600))
            assert second.segment_id != first.segment_id
            await world.clock.sleep(5.0)
            (third,) = await assign(system, replace(ROWS, count=600))
            assert third.segment_id == first.segment_id

    seeded(scenario)


def test_a_full_segment_is_closed_when_every_node_has_processed_its_last_row() -> None:
    async def scenario(world: World) -> None:
        world.behind_s = 3.0
        async with world.run() as system:
            (assigned,) = await assign(system)
            id = assigned.segment_id
            full = SegmentStatistics(id, 10, 750, recently_modified=True)
            idle = SegmentStatistics(id, 10, 1, recently_modified=False)
            nobodys = SegmentStatistics(SegmentId(5), 10, 1, recently_modified=True)
            report = CountStatistics(4, world.now, (full, idle, nobodys))
            counted = await system.find(KEEPER).ask(report, deadline_s=30.0)
            assert counted == StatisticsCounted(1, 1, (SegmentId(5),))
            assert await states(system, id) == [SegmentMetaState.SEALED]
            await world.clock.sleep(4.0)
            assert await states(system, id) == [SegmentMetaState.SEALED]
            await world.clock.sleep(2.0)
            assert await states(system, id) == [SegmentMetaState.FLUSHED]
            assert await flushes(system) == [id]
            late = await system.find(KEEPER).ask(report, deadline_s=30.0)
            assert late == StatisticsCounted(1, 1, (SegmentId(5),))
            (meta,) = await found(system, id)
            assert meta is not None
            assert (meta.rows, meta.state) == (750, SegmentMetaState.FLUSHED)
            assert meta.close_tick >= assigned.expire_tick

    seeded(scenario)


def test_a_collection_is_sealed_in_its_logs_and_in_its_reservations() -> None:
    async def scenario(world: World) -> None:
        await world.save(vchannel(A, B))
        async with world.run() as system:
            (assigned,) = await assign(system)
            sealed = await system.find(KEEPER).ask(SealCollection(COLLECTION), deadline_s=30.0)
            assert sealed == CollectionSealed((assigned.segment_id,), 1)
            assert world.node.orders == [
                (NAMES[0], SegmentOrders(seal_collections=(COLLECTION,)))
            ]
            world.offline = {NAMES[0]}
            with pytest.raises(Refused, match="has no owner; try again"):
                await system.find(KEEPER).ask(SealCollection(COLLECTION), deadline_s=30.0)
            with pytest.raises(Refused, match="no collection 5"):
                await system.find(KEEPER).ask(SealCollection(CollectionId(5)), deadline_s=30.0)

    seeded(scenario)


def test_too_much_memory_on_a_query_node_seals_a_segment_of_a_log() -> None:
    async def scenario(world: World) -> None:
        await world.save(vchannel(A, B), logged(1), logged(2, SegmentState.FLUSHED))
        async with world.run() as system:
            for memory, id in ((750, 1), (751, 2), (751, 1)):
                each = SegmentStatistics(SegmentId(id), memory, 3, recently_modified=True)
                report = CountStatistics(4, world.now, (each,))
                counted = await system.find(KEEPER).ask(report, deadline_s=30.0)
                assert counted == StatisticsCounted(1, 0, ())
            assert world.node.orders == [(NAMES[0], SegmentOrders(seal=(SegmentId(1),)))]

    seeded(scenario)


def test_files_of_writers_are_remembered_and_reported_to_every_owner() -> None:
    async def scenario(world: World) -> None:
        await world.save(logged(1), logged(2, SegmentState.FLUSHED))
        order = (NAMES[0], SegmentOrders(binlogs=((SegmentId(1), 5),)))
        async with world.run() as system:
            (assigned,) = await assign(system)
            counts = ((SegmentId(1), 5), (SegmentId(2), 9), (SegmentId(3), 9))
            report = CountBinlogs(((assigned.segment_id, 32), *counts))
            assert await system.find(KEEPER).ask(report, deadline_s=30.0) == (2, 3)
            assert world.node.orders == [order]
            await system.find(KEEPER).ask(CountBinlogs(((SegmentId(1), 4),)), deadline_s=30.0)
            assert world.node.orders == [order, order], "a late report lowers nothing"
            assert await states(system, assigned.segment_id) == [SegmentMetaState.GROWING]
            more = CountBinlogs(((assigned.segment_id, 33),))
            assert await system.find(KEEPER).ask(more, deadline_s=30.0) == ()
            assert await states(system, assigned.segment_id) == [SegmentMetaState.SEALED]
        world.node.orders.clear()
        async with world.run() as system:
            await world.clock.sleep(61.0)
            assert world.node.orders == [order], "an owner that restarts has forgotten it"
            await world.save(logged(1, SegmentState.FLUSHED))
            await world.clock.sleep(120.0)
            assert world.node.orders == [order, *world.node.orders[1:2]]
            assert [key for key, _ in await world.store.list("segment-binlogs/", limit=9)] == []

    seeded(scenario)


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        (AssignRows(()), "1 to 1000"),
        (AssignRows((ROWS,) * 1001), "1 to 1000"),
        (CountBinlogs(((SegmentId(1), -1),)), "0 binlogs or more"),
        (AcknowledgeFlushes((SegmentId(1),) * 1001), "at most 1000"),
        (CountStatistics(1, TimeTick(1), (SegmentStatistics(SegmentId(1), 1, 1, True),) * 1001), "1000"),  # noqa: E501, FBT003
    ],
)
def test_bad_requests_are_refused_with_the_reason(message: object, cause: str) -> None:
    async def scenario(world: World) -> None:
        async with world.run() as system:
            with pytest.raises(Refused, match=cause) as caught:
                await system.find(KEEPER).ask(message, deadline_s=30.0)  # type: ignore[arg-type]
            assert caught.value.refusal.code is StreamingCode.INVALID_ARGUMENT

    seeded(scenario)


def test_one_refused_request_fails_no_other() -> None:
    async def scenario(world: World) -> None:
        asked = (
            ROWS,
            replace(ROWS, count=1001),
            replace(ROWS, channel="elsewhere"),
            replace(ROWS, collection="unknown"),
            ROWS,
        )
        async with world.run() as system:
            answers = await system.find(KEEPER).ask(AssignRows(asked), deadline_s=30.0)
            codes = [getattr(it, "code", StreamingCode.OK) for it in answers]
            bad, gone = StreamingCode.INVALID_ARGUMENT, StreamingCode.CHANNEL_NOT_EXIST
            assert codes == [StreamingCode.OK, bad, bad, gone, StreamingCode.OK]
            assert answers[0] == answers[4]
            (row,) = [it for it in system.statistics() if it.path == KEEPER]
            assert (row.extra["assigned"], row.extra["refused"]) == (2, 3)
            assert row.extra["reserved_rows"] == 200

    seeded(scenario)


def test_flushes_are_listed_in_their_order_until_they_are_acknowledged() -> None:
    async def scenario(world: World) -> None:
        first = logged(9, SegmentState.FLUSHED, tick=TimeTick(50))
        second = logged(1, SegmentState.FLUSHED, tick=TimeTick(60))
        await world.save(second, first, logged(3))
        async with world.run() as system:
            assert await flushes(system) == [9, 1]
            ids = (SegmentId(9), SegmentId(3), SegmentId(4))
            for _ in range(2):
                refused = await system.find(KEEPER).ask(AcknowledgeFlushes(ids), deadline_s=30.0)
                assert refused == (3, 4)
            assert await flushes(system) == [1]
            assert await states(system, 9) == [SegmentMetaState.FLUSHED]
            await world.clock.sleep(SWEEP.kept_ms / 1000 + 120)
            assert await states(system, 9, 1, 3) == [
                None,
                SegmentMetaState.FLUSHED,
                SegmentMetaState.GROWING,
            ]
            page = await system.find(READER).ask(ShowSegments(COLLECTION), deadline_s=30.0)
            assert [it.id for it in page.segments] == [1, 3]

    seeded(scenario)


def test_of_flushes_that_nobody_reads_the_oldest_are_passed() -> None:
    async def scenario(world: World) -> None:
        await world.save(*[logged(it, SegmentState.FLUSHED) for it in range(1, 6)])
        async with world.run() as system:
            await system.find(KEEPER).ask(TidySegments(), deadline_s=30.0)  # type: ignore[arg-type]
            assert await flushes(system) == [4, 5]
            (row,) = [it for it in system.statistics() if it.path == KEEPER]
            assert row.extra["flushes_passed"] == 3

    seeded(scenario)


def test_segments_of_dropped_partitions_and_collections_are_dropped() -> None:
    async def scenario(world: World) -> None:
        other = vchannel_name(NAMES[1], COLLECTION, 1)
        await world.save(
            vchannel(A, B),
            *[logged(it, partition_id=A if it % 2 else B) for it in range(1, 251)],
            logged(900, SegmentState.FLUSHED),
            logged(901, vchannel=other),
            logged(902, partition_id=PartitionId(-1), level=SegmentLevel.DELETES),
        )
        async with world.run() as system:
            (assigned,) = await assign(system)
            await world.clock.sleep(3.0)
            assert set(await states(system, *range(1, 251))) == {SegmentMetaState.GROWING}
            await world.save(vchannel(B))
            world.partitions = frozenset({B})
            await world.clock.sleep(3.0)
            assert await states(system, 1, 2, 249, 250, 900) == [
                SegmentMetaState.DROPPED,
                SegmentMetaState.GROWING,
                SegmentMetaState.DROPPED,
                SegmentMetaState.GROWING,
                SegmentMetaState.DROPPED,
            ]
            assert await states(system, assigned.segment_id) == [SegmentMetaState.DROPPED]
            assert await flushes(system) == []
            await world.save(vchannel(dropped=True))
            await world.clock.sleep(3.0)
            assert set(await states(system, *range(1, 251), 902)) == {SegmentMetaState.DROPPED}
            assert await states(system, 901) == [SegmentMetaState.GROWING]
            assert await world.store.list("log-vchannel-changed/", limit=9) == []
            assert await world.store.list("log-collection/", limit=9) == []

    seeded(scenario)


def test_an_owner_that_changes_the_vchannel_again_is_looked_at_again() -> None:
    async def scenario(world: World) -> None:
        await world.save(vchannel(A, B), logged(1))
        async with world.run() as system:
            await world.clock.sleep(2.0)
            await world.save(vchannel(dropped=True))
            world.store.lost_races = 3
            await world.clock.sleep(5.0)
            assert await states(system, 1) == [SegmentMetaState.DROPPED]

    seeded(scenario)


def test_an_unreadable_record_is_an_error_with_its_key() -> None:
    async def scenario(world: World) -> None:
        await world.save(logged(1))
        await world.store.write({segment_key(SegmentId(1)): b"torn"})
        async with world.run() as system:
            with pytest.raises(Refused, match="segment/1"):
                await found(system, 1)

    seeded(scenario)


def test_pages_of_segments_follow_each_other() -> None:
    async def scenario(world: World) -> None:
        await world.save(
            *[logged(it, partition_id=B if it == 2 else A) for it in (10, 9, 2, 100, 1)]
        )
        async with world.run() as system:
            for partition, expected in ((None, [1, 9, 10, 100, 2]), (A, [1, 9, 10, 100]), (B, [2])):
                seen: list[int] = []
                more = True
                while more:
                    after = SegmentId(seen[-1]) if seen else SegmentId(0)
                    page = await system.find(READER).ask(
                        ShowSegments(COLLECTION, partition, after, limit=2), deadline_s=30.0
                    )
                    seen += [it.id for it in page.segments]
                    more = page.more
                assert seen == expected
            for asked, cause in (
                (ShowSegments(CollectionId(5)), "no collection 5"),
                (ShowSegments(COLLECTION, PartitionId(5)), "no partition 5"),
                (ShowSegments(COLLECTION, limit=0), "1 to 999 segments, not 0"),
                (ShowSegments(COLLECTION, after=SegmentId(77)), "segment 77"),
            ):
                with pytest.raises(Refused, match=cause):
                    await system.find(READER).ask(asked, deadline_s=30.0)

    seeded(scenario)
