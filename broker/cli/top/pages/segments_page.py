"""The page of segments: what each collection has, and every segment."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from broker.cli.top.broker_state import SEGMENTS_MAX
from broker.cli.top.look import Look, flows_by_collection, label_of
from broker.cli.top.rates import Flow
from broker.cli.top.section import (
    Page,
    PageColumn,
    PageRow,
    Section,
    count_column,
    name_column,
    size_column,
    span_column,
    text_column,
)
from broker.model.ids import CollectionId
from broker.model.master.segment_meta import SegmentMeta, SegmentMetaState, SegmentOrigin

NO_COLLECTIONS = (
    "There is no collection yet. Create one with `tidemark collection create NAME --shards 4`."
)
NO_SEGMENTS = (
    "There is no segment. Rows of collections that were created with a schema are kept in segments;"
    " messages of other collections are not."
)
NOT_ASKED = "Segments show with the next refresh."
NOTES = (
    "rows/s: messages appended per second",
    "rows, bytes: of segments, as their logs saved them; up to a minute old",
    "growing takes rows; sealed takes none; flushed is complete, until it is acknowledged",
    f"segments: the first {SEGMENTS_MAX:,} by collection; - where not all of one are known",
    "vchannel: reserved for a segment of AssignSegmentID; age: since it was opened",
)
SHOWN = (SegmentMetaState.GROWING, SegmentMetaState.SEALED, SegmentMetaState.FLUSHED)
ORDER = (*SHOWN, SegmentMetaState.DROPPED)


@dataclass(slots=True)
class _Sum:
    """What the segments of a collection hold."""

    rows: int = 0
    bytes: int = 0
    states: defaultdict[SegmentMetaState, int] = field(default_factory=lambda: defaultdict(int))


def segments_page(look: Look) -> Page:
    """Collections, then their segments."""
    return Page("segments", (collection_section(look), segment_section(look)), NOTES)


def collection_section(look: Look) -> Section:
    """One row for each collection, with the sums of its segments."""
    columns = (
        name_column("n", "collection"),
        count_column("", "shards", 6),
        count_column("w", "rows/s", 2),
        count_column("o", "rows"),
        size_column("b", "bytes"),
        count_column("t", "partitions", 5),
        count_column("g", "growing"),
        count_column("l", "sealed", 3),
        count_column("f", "flushed", 4),
    )
    sums, whole = _sums(look.broker.segments or ()), _is_whole(look)
    partitions = look.broker.partitions
    flows = flows_by_collection(look.broker, look.rates)
    last = look.broker.segments[-1].collection_id if look.broker.segments else None
    rows = []
    for it in sorted(look.broker.collections, key=lambda it: (it.database, it.name)):
        # Listed by collection: what lies before the last one is there whole.
        known = whole or (it.id in sums and it.id != last)
        found = sums[it.id] if known else None
        flow = flows.get(label_of(it), Flow()) if look.rates.flows is not None else None
        values = (
            label_of(it),
            len(it.vchannels),
            flow and flow.messages,
            found and found.rows,
            found and found.bytes,
            None if partitions is None else partitions.get(it.id, 0),
            *[found and found.states[state] for state in SHOWN],
        )
        rows.append(PageRow(values))
    missing = look.broker.missing.get("collections", NO_COLLECTIONS)
    return Section("collections", columns, rows, missing, order="o", down=True)


def segment_section(look: Look) -> Section:
    """One row for each segment: growing ones first, then by collection."""
    found = look.broker.segments or ()
    labels = {it.id: label_of(it) for it in look.broker.collections}
    title = "segment" if _is_whole(look) else f"segment, of the first {len(found):,}"
    columns = (
        name_column("m", title),
        name_column("", "collection"),
        text_column("partition", 4),
        text_column("vchannel", 5),
        count_column("", "rows"),
        size_column("y", "bytes"),
        PageColumn("a", "state", "text"),
        span_column("", "age", 3),
    )
    rows = [
        PageRow(
            (
                str(it.id),
                labels.get(it.collection_id, f"id {it.collection_id}"),
                it.partition_tag or str(it.partition_id),
                it.vchannel if it.origin is SegmentOrigin.LOG else "reserved",
                it.rows,
                it.size_bytes,
                it.state.value,
                look.age_s(it.open_tick),
            )
        )
        for it in sorted(found, key=lambda it: ORDER.index(it.state))
    ]
    words = NO_SEGMENTS if look.broker.segments is not None else NOT_ASKED
    return Section("segments", columns, rows, look.broker.missing.get("segments", words))


def _is_whole(look: Look) -> bool:
    return look.broker.segments is not None and len(look.broker.segments) < SEGMENTS_MAX


def _sums(segments: Sequence[SegmentMeta]) -> defaultdict[CollectionId, _Sum]:
    sums: defaultdict[CollectionId, _Sum] = defaultdict(_Sum)
    for it in segments:
        one = sums[it.collection_id]
        one.rows += it.rows
        one.bytes += it.size_bytes
        one.states[it.state] += 1
    return sums
