"""What a log holds: its segments, as values of the owner and as stored in a state. Pure.

Kafka has no segments of ours: one is a range of offsets, the unit that retention removes. A state
lists the newest ones, up to a page, and names the state that lists those before. The value of a
state; little-endian:

    first id i64 | next id i64 | last tick u64 | last term i64 | removed tick u64 | earlier i64
    segments u32 | cluster bytes u32
    (base id i64 | next id i64 | base offset i64 | end offset i64 | last tick u64 | bytes u64) * n
    cluster
"""

import struct
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from broker.model.ids import FIRST_MESSAGE_ID, MessageId, Term, TimeTick
from broker.ports.wal import LogBounds
from broker.wal.kafka.entries import NOWHERE, damaged

PAGE_SEGMENTS: Final = 256
_FIXED = struct.Struct("<qqQqQqII")
_SEGMENT = struct.Struct("<qqqqQQ")


class TopicSegment(NamedTuple):
    """Messages [base_id, next_id), in entries from `base_offset` to before `end_offset`."""

    base_id: MessageId
    next_id: MessageId
    base_offset: int
    end_offset: int
    last_tick: TimeTick
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LogState:
    """The value of a state: `page` has the newest sealed segments, `earlier` leads to the rest."""

    first_id: MessageId
    next_id: MessageId
    last_tick: TimeTick
    last_term: Term
    removed_tick: TimeTick
    earlier: int
    page: tuple[TopicSegment, ...]
    cluster: str

    def encode(self) -> bytes:
        """The stored form."""
        name = self.cluster.encode()
        fixed = _FIXED.pack(
            self.first_id, self.next_id, self.last_tick, self.last_term, self.removed_tick,
            self.earlier, len(self.page), len(name),
        )  # fmt: skip
        return b"".join([fixed, *(_SEGMENT.pack(*it) for it in self.page), name])


def decode_state(value: bytes, topic: str, offset: int) -> LogState:
    """Parse a state, whose checksum was right. Raises Corrupt."""
    try:
        *numbers, earlier, segments, name_bytes = _FIXED.unpack_from(value)
        first_id, next_id, last_tick, last_term, removed_tick = numbers
        names_at = _FIXED.size + segments * _SEGMENT.size
        if len(value) != names_at + name_bytes:
            raise damaged(topic, offset, "the lengths of the state disagree")
        page = tuple(
            TopicSegment(MessageId(base), MessageId(end), at, until, TimeTick(tick), size)
            for base, end, at, until, tick, size in _SEGMENT.iter_unpack(
                value[_FIXED.size : names_at]
            )
        )
        cluster = value[names_at:].decode()
    except (struct.error, UnicodeDecodeError) as error:
        raise damaged(topic, offset, f"the state does not parse: {error}") from None
    return LogState(
        MessageId(first_id), MessageId(next_id), TimeTick(last_tick), Term(last_term),
        TimeTick(removed_tick), earlier, page, cluster,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class TopicView:
    """What the owner knows to be durable. Replaced whole, so readers see one moment.

    `sealed` are the segments that can be removed, oldest first; `active` takes appends, and has
    `active_tick` as its first tick. The newest state lies at `state`; it lists the sealed segments
    from number `page_from` on, and `earlier` is the state that lists those before.
    """

    first_id: MessageId
    removed_tick: TimeTick
    last_term: Term
    sealed: tuple[TopicSegment, ...]
    active: TopicSegment
    active_tick: TimeTick
    state: int = NOWHERE
    page_from: int = 0
    earlier: int = NOWHERE

    @property
    def next_id(self) -> MessageId:
        return self.active.next_id

    @property
    def last_tick(self) -> TimeTick:
        return self.active.last_tick

    @property
    def segments(self) -> tuple[TopicSegment, ...]:
        return (*self.sealed, self.active)

    @property
    def needed_from(self) -> int:
        """The first offset that is still needed: the state before the oldest segment.

        Its term tells that what an older owner left behind it does not count.
        """
        return max(self.segments[0].base_offset - 1, 0)

    def bounds(self) -> LogBounds:
        """As the port has them."""
        size = self.active.size_bytes + sum([it.size_bytes for it in self.sealed])
        return LogBounds(
            self.first_id, self.next_id, self.last_tick, self.last_term, size, self.removed_tick
        )

    def sealed_now(self) -> "TopicView":
        """With the active segment sealed, unless it is empty."""
        if not self.active.size_bytes:
            return self
        return replace(self, sealed=(*self.sealed, self.active), active=_behind(self.active))

    def without(self, segments: int) -> "TopicView":
        """Without so many of the oldest sealed segments."""
        if not segments:
            return self
        last = self.sealed[segments - 1]
        left, page_from = self.sealed[segments:], max(0, self.page_from - segments)
        return replace(
            self,
            first_id=last.next_id,
            removed_tick=last.last_tick,
            sealed=left,
            page_from=page_from,
            earlier=self.earlier if page_from else NOWHERE,
        )

    def as_state(self, cluster: str) -> LogState:
        """What a state must say of it. The active segment must be empty: a state begins one."""
        return LogState(
            self.first_id, self.next_id, self.last_tick, self.last_term, self.removed_tick,
            self.earlier, self.sealed[self.page_from :], cluster,
        )  # fmt: skip

    def behind_state(self, offset: int) -> "TopicView":
        """After `as_state` was stored at this offset."""
        full = len(self.sealed) - self.page_from >= PAGE_SEGMENTS
        return replace(
            self,
            active=self.active._replace(base_offset=offset + 1, end_offset=offset + 1),
            state=offset,
            page_from=len(self.sealed) if full else self.page_from,
            earlier=offset if full else self.earlier,
        )


def _behind(segment: TopicSegment) -> TopicSegment:
    """An empty segment behind this one."""
    return segment._replace(base_id=segment.next_id, base_offset=segment.end_offset, size_bytes=0)


def empty_view() -> TopicView:
    """The view of a topic without a state."""
    return emptied_view(FIRST_MESSAGE_ID, TimeTick(0))


def emptied_view(first_id: MessageId, removed_tick: TimeTick) -> TopicView:
    """The view of a log that begins at `first_id`, and holds nothing yet."""
    nothing = TopicSegment(first_id, first_id, 0, 0, removed_tick, 0)
    return TopicView(first_id, removed_tick, Term(0), (), nothing, TimeTick(0))
