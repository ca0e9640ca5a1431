"""Finds the entry that holds an id or a tick: by known places and bisection, never by reading all.

Offsets of a segment are dense and its groups are in order, so about 12 small reads find one of
4,096 groups. What was found on the way is remembered, and groups are noted as they are written.
"""

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Final

from broker.wal.kafka.entries import Entry, EntryHead
from broker.wal.kafka.log_state import TopicSegment
from broker.wal.kafka.topic_scan import TopicScan
from broker.wal.segmented.lru_cache import LruCache

PLACES_MAX: Final = 4096
PROBE_BYTES: Final = 64 * 1024
_FOUND_MAX: Final = 16
_FOUND_BYTES_MAX: Final = 256 * 1024

Wanted = Callable[[EntryHead], bool]
"""False for groups before some place of the log, and true from there on."""


class OffsetSearch:
    """A sparse index of one topic, in memory. For any thread."""

    def __init__(self, scan: TopicScan, spacing_bytes: int) -> None:
        self._scan, self._spacing = scan, spacing_bytes
        self._lock = threading.Lock()
        self._places: list[tuple[int, EntryHead]] = []
        self._written_bytes = 0
        # Readers ask for the places of one group again and again.
        self._found = LruCache[int, Entry](_FOUND_MAX)

    @property
    def places(self) -> int:
        """How many are remembered."""
        return len(self._places)

    def wrote(self, entry: Entry) -> None:
        """Note a group that was just stored, if enough was written since the last one."""
        if abs(entry.head.active_bytes - self._written_bytes) >= self._spacing:
            self._written_bytes = entry.head.active_bytes
            self.note(entry)

    def note(self, entry: Entry) -> None:
        """Remember where a group lies."""
        with self._lock:
            at = bisect_left(self._places, entry.offset, key=_offset)
            if at == len(self._places) or self._places[at][0] != entry.offset:
                self._places.insert(at, (entry.offset, entry.head))
            if len(self._places) > PLACES_MAX:
                # Half as dense everywhere: each further search costs one more read.
                self._places = self._places[::2]

    def forget_below(self, offset: int) -> None:
        """Drop what truncation removes."""
        with self._lock:
            self._places = self._places[bisect_left(self._places, offset, key=_offset) :]

    def first(
        self, segment: TopicSegment, low: int, wanted: Wanted, hints: Iterable[int] = ()
    ) -> Entry | None:
        """The first group of the segment that counts and is wanted; None: there is none.

        `hints`: offsets to look at first. `low`: the first offset of the topic.
        """
        begin, end = self._narrowed(segment, wanted)
        best: Entry | None = None
        tries = iter(hints)
        while begin < end:
            at = next((it for it in tries if begin <= it < end), (begin + end) // 2)
            found = self._some_groups(at, end, low)
            if not found:
                end = at
                continue
            self.note(found[0])
            hit = next((number for number, it in enumerate(found) if wanted(it.head)), None)
            if hit is None:
                begin = found[-1].offset + 1
            elif hit or at == begin:
                return found[hit]
            else:
                best, end = found[0], at
        return best if best is not None else self._at(segment, end, low)

    def _narrowed(self, segment: TopicSegment, wanted: Wanted) -> tuple[int, int]:
        """Offsets between which the first wanted group begins; the last one may be it."""
        begin, end = segment.base_offset, segment.end_offset
        with self._lock:
            first = bisect_left(self._places, begin, key=_offset)
            last = bisect_left(self._places, end, key=_offset)
            places = self._places[first:last]
        at = bisect_left(places, True, key=lambda it: wanted(it[1]))
        if at:
            begin = places[at - 1][0] + 1
        return begin, places[at][0] if at < len(places) else end

    def _at(self, segment: TopicSegment, offset: int, low: int) -> Entry | None:
        """The first group at or behind an offset."""
        known = self._found.find(offset)
        if known is not None:
            return known
        found = next(self._scan.groups(offset, segment.end_offset, low, PROBE_BYTES), None)
        if found is not None and len(found.value) <= _FOUND_BYTES_MAX:
            self._found.put(offset, found)
        return found

    def _some_groups(self, at: int, end: int, low: int) -> list[Entry]:
        """At least one group at or behind `at`, unless there is none before `end`."""
        found, size = list[Entry](), 0
        for entry in self._scan.groups(at, end, low, PROBE_BYTES):
            found.append(entry)
            size += len(entry.value)
            if size >= PROBE_BYTES:
                break
        return found


def _offset(place: tuple[int, EntryHead]) -> int:
    return place[0]
