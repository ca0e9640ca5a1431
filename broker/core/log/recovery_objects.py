"""The vchannels and segments of one pchannel, rebuilt from the effects of its messages.

Each object has the tick of the newest message it includes, and skips messages up to that tick. So
replaying from an earlier place changes nothing. One `apply` call covers one message or one whole
transaction, whose members share a tick: either all of them count or none.

Contradictions in the log, such as rows for a segment that was never created, are reported and
otherwise skipped.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import assert_never

from broker.model.effect import (
    AllFlushed,
    CollectionAltered,
    CollectionCreated,
    CollectionDropped,
    Deleted,
    Effect,
    Inserted,
    ManuallyFlushed,
    PartitionCreated,
    PartitionDropped,
    SchemaChanged,
    SegmentCreated,
    SegmentFlushed,
    SegmentLevel,
    Truncated,
)
from broker.model.ids import TICK_LOGICAL_BITS, SegmentId, TimeTick, VChannelName
from broker.model.snapshot import (
    SchemaStart,
    SegmentSnapshot,
    SegmentState,
    VChannelSnapshot,
    VChannelState,
)

SCHEMA_KEPT_MS = 24 * 3600 * 1000
"""How long a replaced schema is kept, for rows that arrive late."""

SCHEMAS_MAX = 256
"""Schemas kept of one vchannel: each change of the vchannel saves all of them."""


class RecoveryObjects:
    """The objects of one pchannel. `changed_…`: those that differ from what was last saved.

    `has_news`: among them are more than grown segments, so the master should see them soon.
    """

    def __init__(
        self, vchannels: Iterable[VChannelSnapshot] = (), segments: Iterable[SegmentSnapshot] = ()
    ) -> None:
        self.vchannels = {each.name: each for each in vchannels}
        self.segments: dict[SegmentId, SegmentSnapshot] = {}
        self._on: dict[VChannelName, set[SegmentId]] = {}
        for each in segments:
            self._keep(each)
        self.changed_vchannels: set[VChannelName] = set()
        self.changed_segments: set[SegmentId] = set()
        self.has_news = False

    def apply(self, vchannel: str, effects: Sequence[Effect], tick: TimeTick) -> list[str]:
        """Apply the effects at `tick`; returns contradictions, one text for each."""
        step = _Step(self, VChannelName(vchannel), tick)
        for effect in effects:
            step.take(effect)
        return step.wrong

    def put_vchannel(self, changed: VChannelSnapshot) -> None:
        """Replace it, or add it."""
        self.vchannels[changed.name] = changed
        self.changed_vchannels.add(changed.name)
        self.has_news = True

    def put_segment(self, changed: SegmentSnapshot) -> None:
        """Replace it, or add it."""
        before = self.segments.get(changed.id)
        self.has_news |= before is None or before.state is not changed.state
        self._keep(changed)
        self.changed_segments.add(changed.id)

    def clear_changes(self) -> None:
        """All changes were taken."""
        self.changed_vchannels.clear()
        self.changed_segments.clear()
        self.has_news = False

    def forget_segment(self, id: SegmentId) -> None:
        """Remove a segment."""
        gone = self.segments.pop(id)
        on = self._on[gone.vchannel]
        on.discard(id)
        if not on:
            del self._on[gone.vchannel]

    def segments_on(self, vchannel: VChannelName) -> list[SegmentSnapshot]:
        """In the order of their ids."""
        return [self.segments[id] for id in sorted(self._on.get(vchannel, ()))]

    def taking_deletes(self, vchannel: VChannelName, tick: TimeTick) -> SegmentId:
        """The segment that took the deletes of the vchannel at this tick; 0: none, as far as known.

        The newest one: a writer creates the next only when it has sealed the one before.
        """
        grew = [
            (segment.created_tick, segment.id)
            for segment in self.segments_on(vchannel)
            if segment.level is SegmentLevel.DELETES
            and (segment.state is SegmentState.GROWING or segment.tick >= tick)
            and segment.created_tick < tick
        ]
        return max(grew)[1] if grew else SegmentId(0)

    def _keep(self, segment: SegmentSnapshot) -> None:
        self.segments[segment.id] = segment
        self._on.setdefault(segment.vchannel, set()).add(segment.id)


class _Step:
    """Applies one message, or all members of one transaction, to the objects before its tick."""

    def __init__(self, objects: RecoveryObjects, vchannel: VChannelName, tick: TimeTick) -> None:
        self.wrong: list[str] = []
        self._objects = objects
        self._name = vchannel
        self._tick = tick
        self._touched: set[SegmentId] = set()

    def take(self, effect: Effect) -> None:
        """Apply the effect, unless the object includes it already."""
        match effect:
            case CollectionCreated():
                self._create(effect)
            case Inserted() | Deleted() | SegmentCreated() | SegmentFlushed():
                self._of_segment(effect)
            case AllFlushed():
                self._flush(list(self._objects.segments.values()))
            case _:
                self._of_collection(effect)

    # ---- collections ------------------------------------------------------------------------

    def _create(self, effect: CollectionCreated) -> None:
        before = self._objects.vchannels.get(self._name)
        if before is not None and before.tick >= self._tick:
            return
        if before is not None and before.state is VChannelState.NORMAL:
            self._complain("has a collection already, but another one is created on it")
            return
        first = SchemaStart(effect.schema_version, effect.schema, self._tick)
        self._objects.put_vchannel(
            VChannelSnapshot(
                name=self._name,
                collection_id=effect.collection_id,
                state=VChannelState.NORMAL,
                partition_ids=effect.partition_ids,
                schemas=(first,),
                created_tick=self._tick,
                tick=self._tick,
                default_partition_id=effect.default_partition_id,
            )
        )

    def _of_collection(
        self,
        effect: CollectionDropped
        | PartitionCreated
        | PartitionDropped
        | SchemaChanged
        | CollectionAltered
        | Truncated
        | ManuallyFlushed,
    ) -> None:
        before = self._objects.vchannels.get(self._name)
        if before is None:
            self._complain(f"has no collection, but a {type(effect).__name__} refers to it")
            return
        if before.collection_id != effect.collection_id:
            name, theirs = type(effect).__name__, effect.collection_id
            self._complain(
                f"belongs to collection {before.collection_id}, but has a {name} for {theirs}"
            )
            return
        if before.tick < self._tick and before.state is VChannelState.DROPPED:
            self._complain(f"was dropped, but a {type(effect).__name__} refers to it")
            return
        if before.tick < self._tick:
            changed = self._changed(before, effect)
            if changed is not before:
                self._objects.put_vchannel(replace(changed, tick=self._tick))
        # Not only if the vchannel is behind: a snapshot written in part may have the vchannel with
        # this effect and the segments without it. Each segment skips by its own tick.
        ours = self._objects.segments_on(self._name)
        match effect:
            case CollectionDropped():
                self._flush(ours)
            case PartitionDropped(_, partition_id):
                self._flush([each for each in ours if each.partition_id == partition_id])
            case SchemaChanged() | Truncated() | ManuallyFlushed():
                ids = frozenset(effect.segment_ids)
                self._flush([each for each in ours if each.id in ids])
            case PartitionCreated() | CollectionAltered():
                return
            case _:
                assert_never(effect)

    def _changed(self, before: VChannelSnapshot, effect: Effect) -> VChannelSnapshot:
        match effect:
            case CollectionDropped():
                return replace(before, state=VChannelState.DROPPED, partition_ids=(), schemas=())
            case PartitionCreated(_, partition_id):
                if partition_id in before.partition_ids:
                    self._complain(f"has partition {partition_id} already, but it is created")
                    return before
                return replace(before, partition_ids=(*before.partition_ids, partition_id))
            case PartitionDropped(_, partition_id):
                if partition_id not in before.partition_ids:
                    self._complain(f"has no partition {partition_id}, but it is dropped")
                    return before
                left = [each for each in before.partition_ids if each != partition_id]
                return replace(before, partition_ids=tuple(left))
            case SchemaChanged(_, schema, version):
                newest = SchemaStart(version, schema, self._tick)
                return replace(before, schemas=_still_needed((*before.schemas, newest)))
            case _:
                return before

    # ---- segments ---------------------------------------------------------------------------

    def _of_segment(self, effect: Inserted | Deleted | SegmentCreated | SegmentFlushed) -> None:
        match effect:
            case Inserted():
                if effect.segment_id or self._was_open():
                    self._grow(effect.segment_id, effect.rows, effect.size_bytes)
            case Deleted():
                self._count_deletes(effect)
            case SegmentCreated():
                self._create_segment(effect)
            case SegmentFlushed(_, _, segment_id):
                found = self._own(segment_id)
                if found is None:
                    self._complain(f"has no segment {segment_id}, but it is flushed")
                else:
                    self._flush_one(found)
            case _:
                assert_never(effect)

    def _count_deletes(self, effect: Deleted) -> None:
        """Deletes name no segment; they go to the segment for deletes, if there is one."""
        found = effect.segment_id or self._objects.taking_deletes(self._name, self._tick)
        if found:
            self._grow(found, effect.rows, effect.size_bytes)

    def _grow(self, segment_id: SegmentId, rows: int, size_bytes: int) -> None:
        before = self._own(segment_id)
        if before is None:
            self._complain(f"has no segment {segment_id}, but there are rows for it")
            return
        if not self._new_to(before):
            return
        if before.state is not SegmentState.GROWING:
            self._complain(f"has rows for segment {segment_id}, which was flushed earlier")
            return
        # Effects of one transaction share a tick: the first must not hide the next from `_new_to`.
        self._touched.add(segment_id)
        self._objects.put_segment(before.grown(rows, size_bytes, self._tick))

    def _create_segment(self, effect: SegmentCreated) -> None:
        before = self._objects.segments.get(effect.segment_id)
        if before is not None:
            if self._new_to(before):
                self._complain(f"has segment {effect.segment_id} already, but it is created")
            return
        if not self._was_open():
            self._complain(f"has no collection, but segment {effect.segment_id} is created on it")
            return
        self._objects.put_segment(
            SegmentSnapshot(
                id=effect.segment_id,
                vchannel=self._name,
                collection_id=effect.collection_id,
                partition_id=effect.partition_id,
                state=SegmentState.GROWING,
                level=effect.level,
                schema_version=effect.schema_version,
                rows=0,
                size_bytes=0,
                rows_max=effect.rows_max,
                size_bytes_max=effect.size_bytes_max,
                created_tick=self._tick,
                modified_tick=self._tick,
                tick=self._tick,
            )
        )

    def _was_open(self) -> bool:
        """Whether a collection existed at this tick, as far as known: it may be dropped since."""
        found = self._objects.vchannels.get(self._name)
        if found is None or found.created_tick > self._tick:
            return False
        return found.state is VChannelState.NORMAL or found.tick >= self._tick

    def _flush(self, segments: Sequence[SegmentSnapshot]) -> None:
        for segment in segments:
            self._flush_one(segment)

    def _flush_one(self, segment: SegmentSnapshot) -> None:
        if segment.state is SegmentState.GROWING and self._new_to(segment):
            flushed = replace(segment, state=SegmentState.FLUSHED, tick=self._tick)
            self._objects.put_segment(flushed)

    def _own(self, segment_id: SegmentId) -> SegmentSnapshot | None:
        found = self._objects.segments.get(segment_id)
        return found if found is not None and found.vchannel == self._name else None

    def _new_to(self, segment: SegmentSnapshot) -> bool:
        return segment.tick < self._tick or segment.id in self._touched

    def _complain(self, what: str) -> None:
        self.wrong.append(f"tick {self._tick}: {self._name or 'the pchannel'} {what}")


def _still_needed(schemas: tuple[SchemaStart, ...]) -> tuple[SchemaStart, ...]:
    """The schemas without those replaced long before the newest one."""
    old = schemas[-1].start_tick - (SCHEMA_KEPT_MS << TICK_LOGICAL_BITS)
    ends = pairwise(schemas)
    needed = [each for each, following in ends if following.start_tick > old]
    return (*needed[1 - SCHEMAS_MAX :], schemas[-1])
