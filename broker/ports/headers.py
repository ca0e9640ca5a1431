"""What a stored message says of collections and segments, and how the log writes into it.

Implemented in `broker/codec/stored_headers.py`, so that node and core see no wire format. Every
call is pure and cheap enough for the write path (microseconds for an insert).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from broker.model.batch import NewBatch
from broker.model.effect import Deleted, Effect, Inserted, SegmentCreated, SegmentFlushed
from broker.model.groups.dead_letter import Letter
from broker.model.groups.delivery_times import DeliveryTimes, ReleasedMessage
from broker.model.ids import SegmentId
from broker.model.measured import SetMark
from broker.model.message import ClosedTick, Delivered
from broker.model.record import Record, RecordSlice
from broker.model.stage import StageName


class BadHeader(Exception):
    """A message whose header is not of its type's form; says what is wrong."""


class Headers(Protocol):
    """Reads and writes the stored form of a message (`NewMessage.body`)."""

    def effect(self, kind: int, stored: bytes) -> Effect | None:
        """What the message means; None when it means nothing to collections and segments.

        Raises BadHeader, also for an insert that does not name exactly one partition.
        """
        ...

    def batch_effect(self, kind: int, properties: bytes) -> Inserted | Deleted:
        """What the header among a batch's shared properties says; zeros where it says nothing.

        Raises BadHeader, also for an insert that does not name exactly one partition.
        """
        ...

    def stage(self, stored: bytes) -> StageName | None:
        """The stage of a begin of a transaction; None when it has none.

        Raises BadHeader.
        """
        ...

    def with_segment(self, stored: bytes, segment_id: SegmentId, size_bytes: int) -> bytes:
        """The insert, assigned to this segment and otherwise unchanged; `effect` has decoded it.

        `size_bytes` is written where the producer gave no size.
        """
        ...

    def with_rows(
        self, properties: bytes, rows: Inserted | Deleted, segment_id: SegmentId
    ) -> bytes:
        """A batch's shared properties with these rows in their header, otherwise unchanged.

        What the producer's header says beyond them is kept. `batch_effect` has decoded it.
        `segment_id`: of an insert; 0 for a delete.
        """
        ...

    def with_flushed(self, kind: int, stored: bytes, segment_ids: Sequence[SegmentId]) -> bytes:
        """The message with the segments it flushed; unchanged if its type does not list them."""
        ...

    def broadcast_marks(self, body: bytes, sizes: Sequence[int]) -> Sequence[tuple[int, SetMark]]:
        """The copies of broadcasts among the messages of a record's body, with their indexes.

        Damaged headers are left out: readers see no broadcast in those either.
        """
        ...

    def announced(self, stored: bytes) -> bool:
        """Whether the message is a change of definitions that the master has broadcast."""
        ...

    def batch_mark(self, commit: bytes) -> SetMark | None:
        """The batch that the commit of a transaction belongs to; None when it is of none."""
        ...

    def delivery_times(self, properties: bytes) -> DeliveryTimes | None:
        """When groups get a message with these properties; None for any time, as of most.

        `properties`: those that a batch shares, or the stored form of one message.
        """
        ...

    def plain_key(self, stored: bytes) -> tuple[bytes | None, bool]:
        """The key of a message in its stored form, None without one; whether it has no payload.

        One that cannot be read has no key.
        """
        ...

    def unpacked(self, record: Record) -> Record | None:
        """The same record with a body that is not compressed; None where that is not possible."""
        ...

    def released(self, part: RecordSlice) -> Sequence[bytes]:
        """The stored forms of delayed messages that are due, for a record of kind RELEASED."""
        ...

    def released_message(self, stored: bytes) -> ReleasedMessage:
        """Which message `released` has made the copy of. Raises BadHeader."""
        ...

    def own(self, vchannel: str, event: SegmentCreated | SegmentFlushed) -> bytes:
        """A message of the log's own: CreateSegment or Flush."""
        ...

    def letters(self, items: Iterable[Delivered | ClosedTick | RecordSlice]) -> Sequence[Letter]:
        """Each message among what a reader got, as a program sees it. For dead letters."""
        ...

    def stored(self, part: RecordSlice) -> Sequence[bytes]:
        """Each message in the form in which single messages are stored."""
        ...

    def keys(self, item: RecordSlice | Delivered) -> Sequence[bytes | None]:
        """The key of each message; None for none."""
        ...

    def copies(
        self, vchannel: str, letters: Sequence[tuple[Letter, Mapping[str, str]]]
    ) -> NewBatch:
        """The letters as rows on this vchannel, each with more properties."""
        ...
