"""A partition of a topic as the log needs it. Implemented by `confluent_partition.py`.

Every call blocks its thread, at most for a deadline of the implementation.
"""

from collections.abc import Sequence
from typing import Protocol

from broker.ports.wal import WalError
from broker.wal.kafka.entries import TopicRecord


class Rejected(WalError):
    """Kafka refused a record: it is not stored, and never will be."""


class AnswerLost(WalError):
    """No answer came for a record: it may be stored, now or later."""


class Unavailable(WalError):
    """Kafka does not answer, or cannot; nothing was changed."""


class OffsetGone(WalError):
    """The partition begins behind an offset, or ends before it."""

    def __init__(self, topic: str, offset: int) -> None:
        super().__init__(f"{topic}: offset {offset} is not in the topic any more")
        self.topic, self.offset = topic, offset


class Partition(Protocol):
    """The one partition of a topic, for one owner: one thread appends, any number read."""

    @property
    def topic(self) -> str: ...

    @property
    def value_bytes_max(self) -> int:
        """Bytes of a value that Kafka takes."""
        ...

    def append(self, key: bytes, value: bytes, stamp_ms: int) -> int:
        """Store a record on all copies that must have it; its offset.

        Raises Rejected, and AnswerLost, after which nothing more may be appended here: the record
        may still come.
        """
        ...

    def read(self, offset: int, until: int, bytes_max: int) -> Sequence[TopicRecord]:
        """Records from `offset` on: below `until`, at least one, up to about `bytes_max`.

        Of a record `until` must be the end, or below it. Raises OffsetGone, Unavailable, and
        Corrupt where offsets are missing.
        """
        ...

    def ends(self) -> tuple[int, int]:
        """The first offset, and then the one behind the last. Raises Unavailable."""
        ...

    def offset_at(self, stamp_ms: int) -> int:
        """The first offset with this time stamp or a later one; the end if there is none.

        Raises Unavailable.
        """
        ...

    def delete_before(self, offset: int) -> None:
        """Give back what lies below the offset. Raises Unavailable."""
        ...

    def interrupt(self) -> None:
        """Let an append that waits raise AnswerLost. For any thread; does not wait."""
        ...

    def close(self) -> None:
        """Give up what waits, and disconnect. Idempotent."""
        ...
