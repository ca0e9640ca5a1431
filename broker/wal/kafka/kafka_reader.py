"""Reads a log out of a topic: records by id, ids by tick and by size. Blocks its thread."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

from broker.model.ids import TICK_LOGICAL_BITS, MessageId, TimeTick
from broker.model.record import Record
from broker.model.retention.dead import Contents, VChannelPart
from broker.ports.wal import Corrupt, OutOfRange
from broker.wal.kafka.entries import Entry, damaged
from broker.wal.kafka.kafka_writer import SALT
from broker.wal.kafka.log_state import TopicSegment, TopicView
from broker.wal.kafka.offset_search import OffsetSearch
from broker.wal.kafka.partition import OffsetGone, Unavailable
from broker.wal.kafka.topic_scan import TopicScan
from broker.wal.segmented.formats.gap_format import Gap, GapMet
from broker.wal.segmented.lru_cache import LruCache
from broker.wal.segmented.record_format import BadRecord, Stored, Window, record_at

T = TypeVar("T")
_PLACES_MAX: Final = 64


class SizedRecord(NamedTuple):
    """A record and how many bytes it has in the topic."""

    record: Record
    size_bytes: int


class KafkaReader:
    """`view` returns what is durable now; `check_owner` raises Fenced."""

    def __init__(
        self,
        channel: str,
        scan: TopicScan,
        search: OffsetSearch,
        view: Callable[[], TopicView],
        check_owner: Callable[[], None],
    ) -> None:
        self._channel, self._scan, self._search = channel, scan, search
        self._view, self._check_owner = view, check_owner
        # Where the next read of a consumer that catches up begins, and the group it stopped in.
        self._offsets = LruCache[int, int](_PLACES_MAX)
        self._begun = LruCache[int, Entry](4)

    def read(self, from_id: MessageId, bytes_max: int) -> Sequence[Record]:
        """See `ports.wal.Log.read`."""

        def read_in(view: TopicView) -> Sequence[Record]:
            self._check(view, from_id)
            return [] if from_id == view.next_id else self._read(view, from_id, bytes_max)

        return self._unless_truncated(read_in)

    def seek_tick(self, tick: TimeTick) -> MessageId:
        """See `ports.wal.Log.seek_tick`."""

        def seek_in(view: TopicView) -> MessageId:
            segments = view.segments
            at = bisect_left(segments, tick, key=lambda it: it.last_tick)
            return view.next_id if at == len(segments) else self._seek(view, segments[at], tick)

        return self._unless_truncated(seek_in)

    def advance(self, from_id: MessageId, until_id: MessageId, bytes_max: int) -> MessageId:
        """See `ports.wal.Log.advance`."""

        def advance_in(view: TopicView) -> MessageId:
            self._check(view, from_id)
            if from_id >= min(until_id, view.next_id):
                return from_id
            return min(self._advance(view, from_id, bytes_max), until_id)

        return self._unless_truncated(advance_in)

    def forget(self) -> None:
        """Forget known places: the log began anew."""
        self._offsets.clear()
        self._begun.clear()

    def records(self, segment: TopicSegment) -> Iterator[SizedRecord]:
        """All records of a segment, in chunks."""
        low = self._view().needed_from
        for entry in self._scan.groups(segment.base_offset, segment.end_offset, low):
            yield from self._records_in(entry)

    def contents(self, records: Iterator[SizedRecord]) -> Contents:
        """What these records hold of each vchannel."""
        found: dict[str, VChannelPart] = {}
        for record, size in records:
            part = VChannelPart(size, record.base_id, record.next_id)
            before = found.get(record.vchannel)
            found[record.vchannel] = part if before is None else before.joined(part)
        return found

    def _read(self, view: TopicView, from_id: MessageId, bytes_max: int) -> Sequence[Record]:
        records, left = list[Record](), bytes_max
        for entry in self._groups_from(view, from_id, bytes_max):
            try:
                found = self._records_in(entry)
            except Corrupt:
                if records:
                    break  # the next read tells it
                raise
            for record, size in found:
                if record.next_id <= from_id:
                    continue
                if records and size > left:
                    self._begun.put(record.base_id, entry)
                    return records
                records.append(record)
                left -= size
            if records:
                self._offsets.put(records[-1].next_id, entry.offset + 1)
            if left <= 0:
                break
        return records

    def _groups_from(self, view: TopicView, from_id: MessageId, bytes_max: int) -> Iterator[Entry]:
        """The group that holds an id, and those behind it, each continuing the one before."""
        entry = self._begun.find(from_id)
        begin = self._offsets.find(from_id) if entry is None else None
        if begin is None:
            entry = entry or self._group_of(view, from_id)
            yield entry
            begin, from_id = entry.offset + 1, MessageId(entry.head.next_id)
        low = view.needed_from
        # A truncation also removes the states and claims between the last group read and `low`.
        begin = max(begin, low)
        for entry in self._scan.groups(begin, view.active.end_offset, low, max(bytes_max, 1)):
            if entry.head.base_id > from_id:
                missing = f"messages {from_id} to {entry.head.base_id - 1} are missing before it"
                self._scan.on_damage(damaged(self._scan.topic, entry.offset, missing))
            if entry.head.next_id > from_id:
                yield entry
                from_id = MessageId(entry.head.next_id)

    def _group_of(self, view: TopicView, message_id: MessageId) -> Entry:
        segments = view.segments
        segment = segments[bisect_right(segments, message_id, key=lambda it: it.next_id)]
        low = view.needed_from
        found = self._search.first(segment, low, lambda it: it.next_id > message_id)
        if found is None or found.head.base_id > message_id:
            # Damage that is to be skipped: the next group is what follows.
            reason = f"there is no group with message {message_id}"
            damage = damaged(self._scan.topic, segment.base_offset, reason)
            self._scan.on_damage(damage)
            if found is None:
                raise damage
        return found

    def _seek(self, view: TopicView, segment: TopicSegment, tick: TimeTick) -> MessageId:
        low = view.needed_from
        found = self._search.first(
            segment, low, lambda it: it.last_tick >= tick, self._near(segment, tick)
        )
        for record, _ in self._records_in(found) if found is not None else ():
            if record.last_tick >= tick:
                return MessageId(record.base_id + max(0, tick - record.base_tick))
        # The group found is damaged, and passed over, or ends with a gap.
        return segment.next_id if found is None else MessageId(found.head.next_id)

    def _near(self, segment: TopicSegment, tick: TimeTick) -> Iterator[int]:
        """Where Kafka finds the time of the tick, and the offset before it."""
        # Asked only if a read is needed at all. A hint: an old owner's leftovers have times, too.
        try:
            offset = self._scan.partition.offset_at(tick >> TICK_LOGICAL_BITS)
        except Unavailable:
            return
        yield min(offset, segment.end_offset - 1)
        yield offset - 1

    def _advance(self, view: TopicView, from_id: MessageId, bytes_max: int) -> MessageId:
        entry = self._begun.find(from_id) or self._group_of(view, from_id)
        before = entry.head.active_bytes - len(entry.value)
        start, reached = before, from_id
        for record, size in self._records_in(entry):
            if record.next_id <= from_id:
                start += size
        segments = view.segments
        at = bisect_right(segments, from_id, key=lambda it: it.next_id)
        limit = start + bytes_max
        while at < len(segments):
            segment = segments[at]
            if segment.size_bytes > limit:
                return self._advance_in(view, segment, reached, limit, must_move=reached == from_id)
            reached, limit, at = segment.next_id, limit - segment.size_bytes, at + 1
        return reached

    def _advance_in(
        self, view: TopicView, segment: TopicSegment, reached: MessageId, limit: int, *,
        must_move: bool,
    ) -> MessageId:  # fmt: skip
        """The end of the last record of the segment that ends within `limit` bytes of it."""
        found = self._search.first(
            segment,
            view.needed_from,
            lambda it: it.active_bytes > limit and it.next_id > reached,
        )
        if found is None:
            return segment.next_id
        end = found.head.active_bytes - len(found.value)
        reached_here = max(reached, MessageId(found.head.base_id))
        for record, size in self._records_in(found):
            end += size
            if record.next_id <= reached_here:
                continue
            if end > limit and not (must_move and reached_here == reached):
                break
            reached_here = record.next_id
        return reached_here

    def _records_in(self, entry: Entry) -> list[SizedRecord]:
        """The records of a group; none when it is damaged and that is to be skipped."""
        window = Window(_Value(entry.value), self._scan.topic, len(entry.value), len(entry.value))
        found, at, expected = list[SizedRecord](), 0, entry.head.base_id
        try:
            while at < len(entry.value):
                try:
                    stored: Stored | Gap = record_at(window, at, SALT)
                except GapMet as met:
                    stored = met.gap
                if stored.base_id != expected:
                    raise BadRecord(at, f"message {stored.base_id} where {expected} belongs")
                if isinstance(stored, Stored):
                    found.append(SizedRecord(stored.record, stored.end - at))
                at, expected = stored.end, stored.next_id
            if expected != entry.head.next_id:
                raise BadRecord(at, f"the group ends at message {expected}")
        except BadRecord as bad:
            reason = f"byte {bad.offset} of the group: {bad.reason}"
            self._scan.on_damage(damaged(self._scan.topic, entry.offset, reason))
        return found

    def _check(self, view: TopicView, from_id: MessageId) -> None:
        if not view.first_id <= from_id <= view.next_id:
            raise OutOfRange(self._channel, from_id, view.first_id, view.next_id)

    def _unless_truncated(self, act: Callable[[TopicView], T]) -> T:
        """`act` on what is durable now; again after a truncation removed what it was reading."""
        while True:
            view = self._view()
            try:
                return act(view)
            except OffsetGone as gone:
                if self._view().needed_from > view.needed_from:
                    continue
                # A newer owner truncates, too; this one does not know its bounds.
                self._check_owner()
                reason = "it was removed, not by Tidemark: by the topic's own retention, or by hand"
                damage = damaged(gone.topic, gone.offset, reason)
                self._scan.on_damage(damage)
                raise damage from gone


class _Value:
    """The value of an entry, read as a file is."""

    def __init__(self, value: bytes) -> None:
        self._value = value

    def read(self, offset: int, size: int) -> bytes:
        return self._value[offset : offset + size]

    def size(self) -> int:
        return len(self._value)

    def close(self) -> None:
        pass
