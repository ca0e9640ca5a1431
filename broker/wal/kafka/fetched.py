"""What was read of topics lately, in memory, for all readers of a process.

After a take-over many readers catch up with the same part of a topic, each at another place. Each
of them would fetch it again, with the consumer that stands at the place of another one.
"""

import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Final

from broker.wal.kafka.entries import TopicRecord

FETCHED_BYTES_MAX: Final = 32 * 1024 * 1024
_SHARE: Final = 4
"""Of all of it a record may take so large a part: the largest group that is written does."""
_RECORD_BYTES: Final = 512
"""What a record takes beside its value, about."""


class Fetched:
    """The records that were used last, up to `bytes_max`. For any thread."""

    def __init__(self, bytes_max: int = FETCHED_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._records: OrderedDict[tuple[str, int], TopicRecord] = OrderedDict()
        self._bytes = 0
        self._generations = Counter[str]()
        self._lock = threading.Lock()

    @property
    def held_bytes(self) -> int:
        """What the records take in memory, about."""
        return self._bytes

    def find(self, topic: str, offset: int, until: int, bytes_max: int) -> list[TopicRecord]:
        """Records from `offset` on without a gap, up to about `bytes_max`; empty: not here."""
        found, size = list[TopicRecord](), 0
        with self._lock:
            while offset < until and (not found or size < bytes_max):
                record = self._records.get((topic, offset))
                if record is None:
                    break
                self._records.move_to_end((topic, offset))
                found.append(record)
                size += len(record.value)
                offset += 1
        return found

    def generation(self, topic: str) -> int:
        """How often all of the topic was forgotten: to be taken before a fetch."""
        with self._lock:
            return self._generations[topic]

    def put(self, topic: str, records: Sequence[TopicRecord], generation: int = 0) -> None:
        """Keep them, and give up what was not used for the longest time.

        Not if the topic was forgotten since `generation`: they may be of one that is gone.
        """
        with self._lock:
            if generation != self._generations[topic]:
                return
            for record in records:
                if _size(record) > self._bytes_max // _SHARE:
                    continue  # a few of these would leave no room for anything else
                self._drop((topic, record.offset))
                self._records[topic, record.offset] = record
                self._bytes += _size(record)
            while self._bytes > self._bytes_max:
                self._drop(next(iter(self._records)))

    def forget(self, topic: str, below: int | None = None) -> None:
        """Give up what a topic has below an offset, or all of it: ask Kafka again."""
        with self._lock:
            self._generations[topic] += below is None
            for key in [it for it in self._records if it[0] == topic]:
                if below is None or key[1] < below:
                    self._drop(key)

    def _drop(self, key: tuple[str, int]) -> None:
        record = self._records.pop(key, None)
        if record is not None:
            self._bytes -= _size(record)


def _size(record: TopicRecord) -> int:
    return len(record.value) + _RECORD_BYTES
