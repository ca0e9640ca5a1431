"""Keeps segments: reservations of rows, statistics, sealing, drops, acknowledged flushes.

One actor, so that each segment with reservations changes in one order. A change is stored before it
counts and before it is answered. The segments of logs belong to the owners of their pchannels: they
get orders here, and what they report is in the records.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

import structlog

from actors import Actor, Context, Envelope
from broker.core.master.reservations import ReservationLimits, SegmentReservations, channel_ranges
from broker.core.naming import pchannel_of
from broker.master.segments.messages import (
    IDS_MAX,
    AcknowledgeFlushes,
    AssignRows,
    CollectionSealed,
    CountBinlogs,
    CountStatistics,
    LookForDrops,
    PassTicks,
    RowsAsked,
    RowsAssigned,
    SealCollection,
    SegmentKeeperMessage,
    StatisticsCounted,
    TidySegments,
    ids_of,
)
from broker.master.segments.partition_lookup import FoundPartition, PartitionLookup, unknown
from broker.master.segments.segment_book import SEGMENTS_A_WRITE, SegmentBook
from broker.master.segments.segment_owners import (
    DescribeChannels,
    Owners,
    SegmentOwners,
    passed_ticks,
)
from broker.master.segments.segment_sweep import SegmentSweep, SweepLimits
from broker.model.failure import Refusal, Refused, StreamingCode, invalid_argument
from broker.model.ids import PChannelName, SegmentId, TimeTick
from broker.model.master.reservation import RowsWanted, SegmentStatistics
from broker.model.master.segment_meta import SegmentMeta, SegmentMetaState, SegmentOrigin
from broker.ports.id_source import IdSource
from broker.ports.meta import MetaError, MetaStore, WriteUnconfirmed
from broker.ports.ticks import TickSource

PASS_S = 0.5
DROPS_S = 1.0
TIDY_S = 60.0
NEVER = -1
"""Instead of the number of removals: whether partitions are gone is not known."""
BINLOGS_MAX = 32
"""Files of a segment with reservations; one with more is sealed."""

_Round = PassTicks | LookForDrops | TidySegments
_ROUNDS = (PassTicks, LookForDrops, TidySegments)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SegmentParts:
    """What the actors of segments need. `query_nodes`: into how many ranges channels are split."""

    store: MetaStore
    lookup: PartitionLookup
    ids: IdSource
    ticks: TickSource
    owners: Owners
    describe: DescribeChannels
    pchannels: Sequence[PChannelName]
    query_nodes: int = 1
    limits: ReservationLimits = field(default_factory=ReservationLimits)
    sweep: SweepLimits = field(default_factory=SweepLimits)


class SegmentKeeper(Actor[SegmentKeeperMessage]):
    """See the module."""

    _context: Context[SegmentKeeperMessage]

    def __init__(self, parts: SegmentParts) -> None:
        self._parts = parts
        self._book = SegmentBook(parts.store)
        self._owners = SegmentOwners(parts.owners)
        self._numbers = {name: number for number, name in enumerate(parts.pchannels)}
        ranges = channel_ranges(len(parts.pchannels), parts.query_nodes)
        self._reservations = SegmentReservations(ranges, parts.limits)
        self._sweep = SegmentSweep(self._book, self._owners, parts.sweep)
        self._looked_at = NEVER
        self._loaded = False
        self._unsure: Sequence[SegmentMeta] = ()
        """Of a write without an answer: its outcome is read before anything else is done."""
        self._assigned = self._refused = self._unknown = 0

    async def started(self, context: Context[SegmentKeeperMessage]) -> None:
        self._context = context
        context.on_beat(PASS_S, PassTicks())
        context.on_beat(DROPS_S, LookForDrops())
        context.on_beat(TIDY_S, TidySegments())

    async def receive(self, batch: Sequence[Envelope[SegmentKeeperMessage]]) -> None:
        for envelope in batch:
            try:
                envelope.reply(await self._answer(envelope.message))
            except Refused as error:
                self._failed(envelope, error)
            except MetaError as error:
                self._failed(envelope, Refused(StreamingCode.INNER, str(error)))

    def statistics(self) -> Mapping[str, int | float | str]:
        reserved = self._reservations.statistics()
        return {
            "open_segments": len(reserved),
            "reserved_rows": sum([it.rows for it in reserved]),
            "reserved_bytes": sum([it.size_bytes for it in reserved]),
            "assigned": self._assigned,
            "refused": self._refused,
            "unknown_statistics": self._unknown,
            **self._sweep.statistics(),
        }

    def _failed(self, envelope: Envelope[SegmentKeeperMessage], error: Refused) -> None:
        """A failed timer is only logged: the next one tries again."""
        if isinstance(envelope.message, _ROUNDS):
            log.debug("segments: looking again soon", error=error.refusal.cause)
        else:
            envelope.fail(error)

    async def _answer(self, message: SegmentKeeperMessage) -> Any:
        await self._load()
        await self._settle()
        if isinstance(message, _ROUNDS):
            return await self._round(message)
        match message:
            case AssignRows(asked):
                return await self._assign_all(asked)
            case CountStatistics():
                return await self._count(message)
            case CountBinlogs(counts):
                return await self._count_binlogs(counts)
            case SealCollection():
                return await self._seal(message)
            case AcknowledgeFlushes(ids):
                return await self._acknowledge(ids)
            case _:
                assert_never(message)

    async def _round(self, timer: _Round) -> None:
        match timer:
            case PassTicks():
                await self._pass()
            case LookForDrops():
                await self._drop()
            case TidySegments():
                await self._sweep.tidy(self._now_ms())
                await self._sweep.drop_orphans(
                    self._now_ms(), self._parts.lookup.partitions_of, self._tick
                )
            case _:
                assert_never(timer)

    async def _load(self) -> None:
        """Once: not at the start, because it needs a tick."""
        if self._loaded:
            return
        found = await self._book.reserved()
        now = await self._tick()
        self._reservations.restore(found, now)
        await self._store(self._reservations.outgrown())
        self._loaded = True

    # ---- reserving --------------------------------------------------------------------------

    async def _assign_all(self, asked: Sequence[RowsAsked]) -> tuple[RowsAssigned | Refusal, ...]:
        if not 1 <= len(asked) <= IDS_MAX:
            raise invalid_argument(
                f"a request asks 1 to {IDS_MAX} times for rows, not {len(asked)}"
            )
        now = await self._tick()
        answers: list[RowsAssigned | Refusal] = []
        for each in asked:
            try:
                answers.append(await self._assign(each, now))
                self._assigned += 1
            except Refused as error:
                answers.append(error.refusal)
                self._refused += 1
        return tuple(answers)

    async def _assign(self, asked: RowsAsked, now: TimeTick) -> RowsAssigned:
        channel = self._numbers.get(pchannel_of(asked.channel))
        if channel is None:
            raise invalid_argument(f"{asked.channel!r} is no channel of this cluster")
        found = await self._parts.lookup.find(asked.database, asked.collection, asked.partition)
        wanted = _wanted(asked, found, channel)
        refusal = self._reservations.refusal(wanted)
        if refusal is not None:
            raise Refused(refusal.code, refusal.cause)
        id = self._reservations.room(wanted)
        if id is None:
            id = SegmentId((await self._parts.ids.take()).first)
            await self._store([self._reservations.new_segment(id, wanted, now)])
        reserved = self._reservations.reserve(id, wanted, now)
        return RowsAssigned(id, found.collection_id, found.partition_id, reserved.expire_tick)

    async def _pass(self) -> None:
        # Segments may be open for days while nobody writes: then no node is asked.
        if not self._reservations.wait_for_ticks:
            return
        passed = await passed_ticks(self._parts.describe, self._parts.pchannels)
        if passed is None:
            return
        soft_tick, hard_tick = passed
        self._reservations.expire(soft_tick)
        # The tick of the closing is taken after what it closes was passed.
        if self._reservations.closed(hard_tick, hard_tick):
            await self._store(self._reservations.closed(hard_tick, await self._tick()))

    # ---- statistics and sealing -------------------------------------------------------------

    async def _count(self, message: CountStatistics) -> StatisticsCounted:
        if len(message.segments) > IDS_MAX:
            raise invalid_argument(
                f"a report has {len(message.segments)} segments; at most {IDS_MAX}"
            )
        for each in message.segments:
            if each.rows < 0 or each.memory_bytes < 0:
                raise invalid_argument(
                    f"segment {each.segment_id} has {each.rows} rows and {each.memory_bytes} bytes;"
                    " neither may be below 0"
                )
        fresh = [it for it in message.segments if it.recently_modified]
        # Of a segment that is named twice the last numbers count.
        ours: dict[SegmentId, SegmentMeta] = {}
        unknown_ids: list[SegmentId] = []
        for each in fresh:
            counted = self._reservations.counted(
                each.segment_id, each.rows, each.memory_bytes, message.tick
            )
            if counted is not None:
                ours[counted.id] = counted
            elif not await self._count_logged(each):
                unknown_ids.append(each.segment_id)
        await self._store(list(ours.values()))
        if unknown_ids:
            self._unknown += len(unknown_ids)
            log.warning(
                "statistics of unknown segments", node=message.node, segments=unknown_ids[:10]
            )
        ignored = len(message.segments) - len(fresh)
        return StatisticsCounted(len(fresh) - len(unknown_ids), ignored, tuple(unknown_ids))

    async def _count_logged(self, each: SegmentStatistics) -> bool:
        meta = await self._book.find(each.segment_id)
        if meta is None:
            return False
        limits = self._parts.limits
        full = each.memory_bytes > limits.seal_proportion * limits.segment_bytes
        # The log counts its rows itself; only the memory of the query node is news.
        if full and _grows_in_log(meta):
            await self._owners.seal(meta.vchannel, each.segment_id)
        return True

    async def _count_binlogs(
        self, counts: Sequence[tuple[SegmentId, int]]
    ) -> tuple[SegmentId, ...]:
        if len(counts) > IDS_MAX or any(count < 0 for _, count in counts):
            raise invalid_argument(
                f"a report has at most {IDS_MAX} segments, each with 0 binlogs or more"
            )
        others: list[SegmentId] = []
        for id, count in counts:
            reserved = self._reservations.find(id)
            if reserved is not None and count > BINLOGS_MAX:
                sealed = self._reservations.sealed(reserved.collection_id)
                await self._store([it for it in sealed if it.id == id])
            elif reserved is None and not await self._sweep.count_binlogs(id, count):
                others.append(id)
        await self._sweep.report_binlogs([id for id, _ in counts])
        return tuple(others)

    async def _seal(self, message: SealCollection) -> CollectionSealed:
        id = message.collection_id
        if await self._parts.lookup.partitions_of(id) is None:
            raise unknown(f"there is no collection {id}")
        sealed = self._reservations.sealed(id)
        await self._store(sealed)
        vchannels = [it.name for it in await self._book.vchannels_of(id)]
        await self._owners.seal_collection(id, vchannels)
        return CollectionSealed(ids_of(sealed), len(vchannels))

    # ---- flushes and drops ------------------------------------------------------------------

    async def _acknowledge(self, ids: Sequence[SegmentId]) -> tuple[SegmentId, ...]:
        if len(ids) > IDS_MAX:
            raise invalid_argument(f"a request acknowledges {len(ids)} flushes; at most {IDS_MAX}")
        now_ms = self._now_ms()
        return tuple([it for it in ids if not await self._book.acknowledge(it, now_ms)])

    async def _drop(self) -> None:
        if await self._sweep.drop_of_logs(self._now_ms(), self._tick):
            self._looked_at = NEVER
        collections = {it.collection_id for it in self._reservations.all()}
        if not collections:
            return
        # Read before the partitions are: what is removed meanwhile is seen in the next round.
        removals = await self._parts.lookup.removals()
        if removals == self._looked_at:
            return
        known = {id: await self._parts.lookup.partitions_of(id) or () for id in collections}
        partitions = {id: frozenset(of) for id, of in known.items()}
        if self._reservations.dropped(partitions, TimeTick(0)):
            await self._store(self._reservations.dropped(partitions, await self._tick()))
        self._looked_at = removals

    # ---- inside -----------------------------------------------------------------------------

    async def _store(self, metas: Sequence[SegmentMeta]) -> None:
        for first in range(0, len(metas), SEGMENTS_A_WRITE):
            some = metas[first : first + SEGMENTS_A_WRITE]
            try:
                await self._book.put(some, self._now_ms())
            except WriteUnconfirmed:
                self._unsure = some
                raise
            # Before the next write, which may fail: what is closed twice is listed twice.
            for meta in some:
                self._reservations.keep(meta)

    async def _settle(self) -> None:
        """Keep what a write without an answer has stored: what is closed twice is listed twice."""
        for meta in self._unsure:
            if await self._book.find(meta.id) == meta:
                self._reservations.keep(meta)
        self._unsure = ()

    async def _tick(self) -> TimeTick:
        return (await self._parts.ticks.reserve(1)).first

    def _now_ms(self) -> int:
        return self._context.clock.wall_ms()


def _wanted(asked: RowsAsked, found: FoundPartition, channel: int) -> RowsWanted:
    return RowsWanted(
        found.collection_id, found.partition_id, found.name, channel, asked.count, found.row_bytes
    )


def _grows_in_log(meta: SegmentMeta) -> bool:
    return meta.origin is SegmentOrigin.LOG and meta.state is SegmentMetaState.GROWING
