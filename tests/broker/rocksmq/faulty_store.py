"""An OrderedStore in memory that fails, hangs, or dies at the write it is told."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from broker.model.rocksmq.ordered_writes import OrderedWrite, Put, Remove
from broker.ports.queues.ordered_store import OrderedStoreError


class Killed(BaseException):
    """The process is dead: nothing of it runs any more."""


class FaultyStore:
    """See OrderedStore. What is in `entries` survives, so that another store opens it."""

    def __init__(self, entries: dict[bytes, bytes] | None = None) -> None:
        self.entries = {} if entries is None else entries
        self.writes = 0
        self.fail_writes: set[int] = set()
        """By number, from 1; the write has no effect."""
        self.kill_at: int | None = None
        self.kill_after = False
        """Whether the write at which the process dies takes effect."""
        self.full = False
        self.held = threading.Event()
        """Writes wait for it."""
        self.held.set()
        self.begun = threading.Event()
        self.batches: list[Sequence[OrderedWrite]] = []
        self.compacted: list[tuple[bytes, bytes]] = []
        self.closed = False

    def opener(self) -> Callable[[Path], "FaultyStore"]:
        return lambda _: self

    def write(self, writes: Sequence[OrderedWrite]) -> None:
        self.begun.set()
        assert self.held.wait(60)
        self.writes += 1
        if self.kill_at is not None and self.writes >= self.kill_at:
            if self.writes == self.kill_at and self.kill_after:
                self._apply(writes)
            raise Killed
        if self.full or self.writes in self.fail_writes:
            raise OrderedStoreError("No space left" if self.full else "I/O error", full=self.full)
        self._apply(writes)

    def _apply(self, writes: Sequence[OrderedWrite]) -> None:
        self.batches.append(writes)
        for it in writes:
            if isinstance(it, Put):
                self.entries[it.key] = it.data
            elif isinstance(it, Remove):
                self.entries.pop(it.key, None)
            else:
                for key in [key for key in self.entries if it.begin <= key < it.end]:
                    del self.entries[key]

    def scan(
        self, begin: bytes, end: bytes, *, limit: int, bytes_max: int
    ) -> list[tuple[bytes, bytes]]:
        found: list[tuple[bytes, bytes]] = []
        size = 0
        for key, data in sorted(self.entries.items()):
            if begin <= key < end and len(found) < limit:
                size += len(data)
                if found and size > bytes_max:
                    break
                found.append((key, data))
        return found

    def compact(self, begin: bytes, end: bytes) -> None:
        self.compacted.append((begin, end))

    def close(self) -> None:
        self.closed = True
