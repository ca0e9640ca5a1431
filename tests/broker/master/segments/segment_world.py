"""The actors of segments over fake nodes, a store that fails, and a clock that tests move."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from actors import ONE_FOR_ONE, SupervisorSpec, System
from actors.testing import VirtualClock, run_seeded
from broker.coordinator.assignment.stored_terms import StoredTerms
from broker.core.master.reservations import ReservationLimits
from broker.core.master.segment_records import (
    records_of,
)
from broker.core.naming import pchannel_names, vchannel_name
from broker.master.segments.messages import (
    AssignRows,
    FindSegments,
    ListFlushes,
    RowsAsked,
    RowsAssigned,
)
from broker.master.segments.partition_lookup import FoundPartition, unknown
from broker.master.segments.segment_keeper import SegmentParts
from broker.master.segments.segment_sweep import SweepLimits
from broker.master.tree import MasterParts, master_tree
from broker.meta.memory_store import MemoryMetaStore
from broker.model.channel import ChannelOffsets
from broker.model.effect import SegmentLevel
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
    index: int = 0
    looked: int = 0
    """How often its partitions were asked for."""
    told: frozenset[PartitionId] | None = None
    removed: int = 0

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
        self.looked += 1
        return self.partitions if id == COLLECTION else None

    async def removals(self) -> int:
        if self.partitions != self.told:
            self.told, self.removed = self.partitions, self.removed + 1
        return self.removed

    async def index_of(self, id: CollectionId) -> int:
        return self.index

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
    assigned = [it for it in answers if isinstance(it, RowsAssigned)]
    assert len(assigned) == len(answers), answers
    return assigned


async def found(system: System, *ids: int) -> list[SegmentMeta | None]:
    asked = FindSegments(tuple(map(SegmentId, ids)))
    return list(await system.find(READER).ask(asked, deadline_s=30.0))


async def states(system: System, *ids: int) -> list[SegmentMetaState | None]:
    return [None if it is None else it.state for it in await found(system, *ids)]


async def flushes(system: System) -> list[int]:
    page = await system.find(READER).ask(ListFlushes(), deadline_s=30.0)
    return [it.id for it in page.segments]
