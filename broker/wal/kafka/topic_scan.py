"""Reads entries of a topic, and tells which of them count. Blocks its thread."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from broker.wal.kafka.entries import Entry, EntryHead, EntryKind, OnDamage, entries_of
from broker.wal.kafka.fence import counts, newer_term
from broker.wal.kafka.partition import OffsetGone, Partition

CHUNK_BYTES: Final = 1 << 20
_BACK_MAX: Final = 64


class TopicTail(NamedTuple):
    """The end of a topic: the newest entry that counts, and the entries behind it."""

    newest: Entry | None
    behind: Sequence[Entry]

    @property
    def term(self) -> int:
        """The largest term that anybody claimed."""
        newest = self.newest.head.term if self.newest else 0
        return max((newest, *(it.head.term for it in self.behind)))


class TopicScan:
    """What is not ours is given to `on_damage`, which raises it or lets the scan go on."""

    def __init__(self, partition: Partition, on_damage: OnDamage) -> None:
        self.partition, self.on_damage = partition, on_damage

    @property
    def topic(self) -> str:
        return self.partition.topic

    def entries(self, offset: int, until: int, bytes_max: int = CHUNK_BYTES) -> Iterator[Entry]:
        """All entries in [offset, until), in chunks of about `bytes_max`."""
        while offset < until:
            found = self.partition.read(offset, until, bytes_max)
            offset = found[-1].offset + 1
            yield from entries_of(found, self.topic, self.on_damage)

    def heads(self, offset: int, until: int) -> list[EntryHead]:
        """Their heads."""
        return [it.head for it in self.entries(offset, until)]

    def newer_term(self, term: int, offset: int, until: int) -> int:
        """The largest term above `term` of an entry in [offset, until); 0: none.

        Where a newer owner has removed entries, what it left tells of it. Raises OffsetGone where
        somebody else did.
        """
        try:
            return newer_term(term, self.heads(offset, until))
        except OffsetGone:
            low, high = self.partition.ends()
            newer = newer_term(term, self.heads(max(low, offset), max(high, until)))
            if not newer:
                raise
            return newer

    def counts(self, entry: Entry, low: int) -> bool:
        """Whether it is part of the log, which has nothing below the offset `low`."""
        head = entry.head
        if head.kind is EntryKind.CLAIM:
            return False
        # What truncation removed before it was checked by the owner that wrote behind it.
        begin = max(head.prev + 1, low)
        return begin >= entry.offset or counts(head, self.heads(begin, entry.offset))

    def groups(
        self, offset: int, until: int, low: int, bytes_max: int = CHUNK_BYTES
    ) -> Iterator[Entry]:
        """The groups in [offset, until) that count."""
        for entry in self.entries(offset, until, bytes_max):
            if entry.head.kind is EntryKind.GROUP and self.counts(entry, low):
                yield entry

    def tail(self, low: int, high: int) -> TopicTail:
        """The end of [low, high), read from behind; what lies before it is not read."""
        behind: list[Entry] = []
        step = 1
        while high > low:
            begin = max(low, high - step)
            found = list(self.entries(begin, high))
            while found:
                if self.counts(found[-1], low):
                    return TopicTail(found[-1], behind)
                behind.insert(0, found.pop())
            high, step = begin, min(2 * step, _BACK_MAX)
        return TopicTail(None, behind)
