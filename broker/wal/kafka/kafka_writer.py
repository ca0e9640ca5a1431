"""Appends groups to a topic, and knows whether it still owns it. One thread at a time."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from broker.core.space.removal import expired
from broker.model.ids import TICK_LOGICAL_BITS, MessageId, Term, TimeTick
from broker.model.record import Record
from broker.model.retention.policy import Retention
from broker.ports.wal import Fenced, LogBounds, NotStored, WalError, WriterFailed
from broker.wal.append_check import check_append
from broker.wal.kafka.entries import Entry, EntryHead, EntryKind, encode_key
from broker.wal.kafka.log_state import TopicView, emptied_view
from broker.wal.kafka.partition import AnswerLost, Rejected, Unavailable
from broker.wal.kafka.topic_scan import TopicScan
from broker.wal.segmented.copied_entries import (
    CopiedEntry,
    copied_entries,
    encode_copies,
)
from broker.wal.segmented.formats.gap_format import Gap
from broker.wal.segmented.record_format import encode

SALT: Final = 0
"""Kafka tells where a record begins and ends, so that nothing needs to be told apart by salt."""


@dataclass(slots=True)
class WriterCounts:
    """Since opening."""

    groups: int = 0
    records: int = 0
    written_bytes: int = 0
    gaps_passed: int = 0
    segments_started: int = 1


@dataclass(frozen=True, slots=True)
class TopicOwner:
    """Who writes: a term of a pchannel, in a cluster."""

    channel: str
    term: Term
    cluster: str


class KafkaWriter:
    """The owner at a term, whose claim lies at the offset `position`.

    `view` is what is durable: any thread may read it. `wrote` is given each group that was stored,
    without its records.
    """

    def __init__(
        self,
        scan: TopicScan,
        owner: TopicOwner,
        position: int,
        view: TopicView,
        segment_bytes: int,
        wrote: Callable[[Entry], None],
    ) -> None:
        self._scan, self._owner = scan, owner
        self._partition = scan.partition
        self._position = position
        self._segment_bytes = segment_bytes
        self._wrote = wrote
        self._final: WalError | None = None
        self._begins_at = 0
        self._discarded = False
        self.view = view
        self.counted = WriterCounts()

    @property
    def term(self) -> Term:
        return self._owner.term

    def bounds(self) -> LogBounds:
        return self.view.bounds()

    def begin(self, low: int) -> None:
        """Say what the log holds, after the claim; `low`: the first offset of the topic."""
        self._begins_at = low
        self._store_state(self.view.sealed_now())

    def append(
        self, records: Sequence[Record], when_written: Callable[[], None] | None = None
    ) -> None:
        """See `ports.wal.Log.append`."""
        self._refuse_final()
        if not records:
            return
        view = self.view
        check_append(records, view.next_id, view.last_tick, self.term)
        if view.active.size_bytes >= self._segment_bytes:
            self.seal()
            view = self.view
        view = self._store_parts(view, records)
        if when_written is not None:
            when_written()
        self.view = view
        self.counted.groups += 1
        self.counted.records += len(records)

    def append_copies(
        self, records: Sequence[Record], until_id: MessageId, until_tick: TimeTick
    ) -> None:
        """See `ports.log_copies`."""
        self._refuse_final()
        view = self.view
        if view.active.size_bytes >= self._segment_bytes:
            self.seal()
            view = self.view
        after = view.next_id, view.last_tick, view.last_term
        entries = copied_entries(records, after, (until_id, until_tick))
        view = self._store_parts(view, entries)
        self.view = view
        self.counted.groups += 1
        self.counted.records += len(records)

    def begin_anew(self, first_id: MessageId, removed_tick: TimeTick) -> None:
        """See `ports.log_copies`."""
        self._refuse_final()
        self._store_state(emptied_view(first_id, removed_tick))
        with suppress(WalError):
            # The state counts without it, and the next `truncate` or `discard` tries again.
            self._give_back_prefix(self.view.needed_from)

    def discard(self) -> None:
        """See `ports.log_copies`. After a failure it may be tried again."""
        self._refuse_final()
        if not self._discarded:
            # Once: a state for each try would fill the topic that is to be emptied.
            self._store_state(emptied_view(self.view.next_id, self.view.last_tick))
            self._discarded = True
        self._give_back_prefix(self.view.needed_from)

    def seal(self) -> None:
        """Start a new segment unless the active one is empty."""
        self._refuse_final()
        sealed = self.view.sealed_now()
        if sealed is not self.view:
            self._store_state(sealed)
            self.counted.segments_started += 1

    def truncate(self, before_id: MessageId, retention: Retention, now_ms: int) -> MessageId:
        """See `ports.wal.Log.truncate`."""
        self._refuse_final()
        view = self.view
        if 0 < retention.age_ms_max < now_ms - (view.active_tick >> TICK_LOGICAL_BITS):
            view = view.sealed_now()
        allowed = expired(view.sealed, view.active.size_bytes, retention, now_ms)
        gone = sum(1 for it in view.sealed[:allowed] if it.next_id <= before_id)
        left = view.without(gone)
        if left is not self.view:
            # Kafka begins no segment by itself: a state that drops some begins one, too.
            self._store_state(left.sealed_now())
        if self._begins_at < self.view.needed_from:
            self._give_back_prefix(self.view.needed_from)
        return self.view.first_id

    def check_owner(self) -> None:
        """Raise Fenced when a newer owner has claimed the topic by now. For any thread."""
        self._refuse_final()
        position = self._position
        _, high = self._partition.ends()
        newer = self._scan.newer_term(self.term, position + 1, high)
        if newer:
            raise Fenced(self._owner.channel, self.term, newer)

    def _give_back_prefix(self, offset: int) -> None:
        # A state that says so is durable: whoever owns the topic next begins there, too.
        try:
            self._partition.delete_before(offset)
        except Unavailable as failure:
            told = f"{self._owner.channel}: cannot give back old data, as will be tried again"
            raise WalError(f"{told}: {failure}") from failure
        self._begins_at = offset

    def _parts(
        self, records: Sequence[CopiedEntry]
    ) -> Iterator[tuple[Sequence[CopiedEntry], bytes]]:
        """The group as values that Kafka takes; more than one only if it is very large."""
        limit, group_id = self._partition.value_bytes_max, self.view.next_id
        first, pieces, size = 0, list[bytes](), 0
        for at, record in enumerate(records):
            if isinstance(record, Gap):
                head, body = encode_copies((record,), group_id, SALT)
            else:
                head, body = encode(record, group_id, SALT)
            length = len(head) + len(body)
            if pieces and size + length > limit:
                yield records[first:at], b"".join(pieces)
                first, pieces, size = at, [], 0
            pieces += (head, body)
            size += length
        yield records[first:], b"".join(pieces)

    def _store_parts(self, view: TopicView, records: Sequence[CopiedEntry]) -> TopicView:
        for number, (part, value) in enumerate(self._parts(records)):
            try:
                view = self._store_group(view, part, value)
            except NotStored as refusal:
                if not number:
                    raise
                told = WriterFailed(f"a part of the group was stored before: {refusal}")
                raise self._fail(told) from refusal
        return view

    def _store_group(
        self, view: TopicView, records: Sequence[CopiedEntry], value: bytes
    ) -> TopicView:
        first, last, active = records[0], records[-1], view.active
        size = active.size_bytes + len(value)
        tick = view.active_tick if active.size_bytes else first.base_tick
        head = EntryHead(
            EntryKind.GROUP, self.term, self._position, view.state, first.base_id, last.next_id,
            first.base_tick, last.last_tick, size, tick,
        )  # fmt: skip
        offset = self._put(head, value)
        self.counted.written_bytes += len(value)
        self._wrote(Entry(offset, head, b""))
        grown = active._replace(
            next_id=last.next_id, end_offset=offset + 1, last_tick=last.last_tick, size_bytes=size
        )
        return replace(view, active=grown, active_tick=tick, last_term=last.term)

    def _store_state(self, view: TopicView) -> None:
        value = view.as_state(self._owner.cluster).encode()
        ids, ticks = (view.next_id, view.next_id), (view.last_tick, view.last_tick)
        head = EntryHead(EntryKind.STATE, self.term, self._position, view.state, *ids, *ticks)
        self.view = view.behind_state(self._put(head, value))

    def _put(self, head: EntryHead, value: bytes) -> int:
        """Store an entry and check that no newer owner came before it; its offset."""
        stamp_ms = head.last_tick >> TICK_LOGICAL_BITS
        channel = self._owner.channel
        try:
            offset = self._partition.append(encode_key(head, value), value, stamp_ms)
        except Rejected as refusal:
            raise self._fail(NotStored(f"{channel}: {refusal}")) from refusal
        except AnswerLost as failure:
            raise self._fail(WriterFailed(f"{channel}: {failure}")) from failure
        if offset != self._position + 1:
            self._pass_gap(offset)
        self._position = offset
        return offset

    def _pass_gap(self, offset: int) -> None:
        """Others wrote since: a newer owner ends this one, leftovers of older ones do not."""
        channel, behind = self._owner.channel, self._position + 1
        if offset < behind:
            told = f"topic {self._scan.topic} was truncated, or deleted and made anew"
            raise self._fail(
                WriterFailed(f"{channel}: {told}: offset {offset} followed {self._position}")
            )
        try:
            newer = self._scan.newer_term(self.term, behind, offset)
        except WalError as failure:
            told = f"others wrote to topic {self._scan.topic}, and what cannot be read"
            raise self._fail(WriterFailed(f"{channel}: {told}: {failure}")) from failure
        if newer:
            raise self._fail(Fenced(channel, self.term, newer))
        self.counted.gaps_passed += 1

    def _refuse_final(self) -> None:
        if self._final is not None:
            raise self._final

    def _fail(self, error: WalError) -> WalError:
        self._final = error
        return error
