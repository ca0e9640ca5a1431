"""An in-memory log that records reads and writes and injects damage."""

from collections.abc import Callable, Sequence

from broker.model.ids import MessageId, PChannelName, Term
from broker.model.record import Record
from broker.ports.wal import Corrupt
from broker.wal.memory_wal import MemoryLog, MemoryWal


class WatchedLog(MemoryLog):
    """Remembers what was read and written, and reports damage where it is told to."""

    wal: "WatchedMemory"

    async def read(self, from_id: MessageId, bytes_max: int) -> Sequence[Record]:
        self.wal.reads.append(from_id)
        good: list[Record] = []
        for record in await super().read(from_id, bytes_max):
            if not self.wal.damaged.isdisjoint(range(record.base_id, record.next_id)):
                break
            good.append(record)
        if not good and from_id < self.bounds().next_id:
            raise Corrupt("seg", from_id, "checksum")
        return good

    async def append(
        self, records: Sequence[Record], when_written: Callable[[], None] | None = None
    ) -> None:
        await super().append(records, when_written)
        self.wal.records += records


class WatchedMemory(MemoryWal):
    """Logs in memory that are watched; `records` is all that was ever stored."""

    def __init__(self, **given: object) -> None:
        super().__init__(**given)  # type: ignore[arg-type]
        self.reads: list[MessageId] = []
        self.records: list[Record] = []
        self.damaged: set[int] = set()

    async def open(self, channel: PChannelName, term: Term) -> MemoryLog:
        log = await super().open(channel, term)
        log.__class__ = WatchedLog
        assert isinstance(log, WatchedLog)
        log.wal = self
        return log
