"""What must be true of segments: P36 to P38, and what the master counts.

Pure.
"""

from collections import Counter
from collections.abc import Iterator

from tests.chaos.storm.checkers import Violation, by_payload
from tests.chaos.storm.history import OF_BROADCASTS, History, PlacedRow, SegmentSeen


def rows_are_in_their_segment(history: History) -> Iterator[Violation]:
    """Each row in one that was created before it, for its partition, and is flushed behind it."""
    asked = by_payload(history)
    created = {it.segment: it for it in history.segments if not it.flush}
    flushed = {it.segment: it for it in history.segments if it.flush}
    for row in history.placed:
        begin, end = created.get(row.segment), flushed.get(row.segment)
        wrong = ""
        if begin is None or begin.vchannel != row.vchannel or begin.id > row.id:
            wrong = f"before its segment was created ({begin})"
        elif begin.partition != row.partition:
            wrong = f"in a segment of partition {begin.partition}"
        elif end is not None and end.id < row.id:
            wrong = f"behind the flush of its segment ({end})"
        name = history.partitions.get(row.partition, "")
        done = asked.get(row.payload)
        if not wrong and done is not None and done.partition not in ("", name):
            wrong = f"in partition {name!r}, and was appended to {done.partition!r}"
        if wrong:
            yield Violation("row misplaced", f"{row} is {wrong}", row.vchannel, (row.payload,))


def segments_end_once(history: History) -> Iterator[Violation]:
    """Created once, flushed once, behind its creation, with no more rows than it may have."""
    rows = Counter(it.segment for it in history.placed)
    begins, ends = dict[int, SegmentSeen](), dict[int, SegmentSeen]()
    for it in history.segments:
        known = ends if it.flush else begins
        wrong = ""
        if it.segment in known:
            wrong = f"comes after {known[it.segment]}"
        elif it.flush and (it.segment not in begins or begins[it.segment].id > it.id):
            wrong = "comes before its creation"
        elif not it.flush and rows[it.segment] > it.rows_max:
            wrong = f"has {rows[it.segment]} rows"
        known.setdefault(it.segment, it)
        if wrong:
            yield Violation("segment", f"{it} {wrong}", it.vchannel)


def the_master_counts_the_rows(history: History) -> Iterator[Violation]:
    """As many of each segment as its log has; of a broadcast perhaps a second copy, too."""
    rows = dict[int, list[PlacedRow]]()
    for it in history.placed:
        rows.setdefault(it.segment, []).append(it)
    repeats = Counter(
        vchannel for it in history.operations if it.sort == "broadcast" for vchannel in it.targets
    )
    for segment in history.listed:
        found = len(rows.pop(segment.segment, []))
        told = history.partitions.get(segment.partition) == OF_BROADCASTS
        more = repeats[segment.vchannel] if told else 0
        if not found <= segment.rows <= found + more:
            text = f"{segment}, and its log has {found} rows in it"
            yield Violation("rows counted", text, segment.vchannel)
    if history.listed:
        for segment_id, left in rows.items():
            text = f"segment {segment_id} is not listed, with {len(left)} rows"
            yield Violation("segment not listed", text, left[0].vchannel)
