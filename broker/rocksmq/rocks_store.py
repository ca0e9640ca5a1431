"""An OrderedStore in RocksDB: every write is one synced write batch.

Why one key space and no column families: the write-ahead log is kept until each family is flushed,
and the metadata alone would hardly ever be.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from broker.model.rocksmq.ordered_writes import OrderedWrite, Put, Remove
from broker.ports.queues.ordered_store import OrderedStoreError
from broker.rocksmq.queue_errors import RocksdictMissing

MEMTABLE_BYTES = 32 * 1024 * 1024
"""Written to a file when it is full. After a crash at most twice as much is read back."""

OPEN_FILES_MAX = 256
LOG_FILES_MAX = 3
"""RocksDB's own logs of what it does."""


class RocksStore:
    """See OrderedStore. The folder belongs to RocksDB."""

    def __init__(self, folder: Path) -> None:
        """Open the folder, or make it. Raises RocksdictMissing, OrderedStoreError."""
        try:
            import rocksdict  # noqa: PLC0415 - an extra: the error says how to install it
        except ImportError as error:
            raise RocksdictMissing from error
        self._rocksdict = rocksdict
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(MEMTABLE_BYTES)
        options.set_max_open_files(OPEN_FILES_MAX)
        options.set_keep_log_file_num(LOG_FILES_MAX)
        # A record that was torn by a crash is the end; damage before it is an error, not a gap.
        options.set_wal_recovery_mode(rocksdict.DBRecoveryMode.tolerate_corrupted_tail_records())
        options.set_paranoid_checks(True)
        self._synced = rocksdict.WriteOptions()
        self._synced.sync = True
        with _as_store_error(f"cannot open {folder}"):
            self._db = rocksdict.Rdict(str(folder), options)

    def write(self, writes: Sequence[OrderedWrite]) -> None:
        """See OrderedStore."""
        batch = self._rocksdict.WriteBatch(raw_mode=True)
        for it in writes:
            if isinstance(it, Put):
                batch.put(it.key, it.data)
            elif isinstance(it, Remove):
                batch.delete(it.key)
            else:
                batch.delete_range(it.begin, it.end)
        with _as_store_error("cannot write"):
            self._db.write(batch, self._synced)

    def scan(
        self, begin: bytes, end: bytes, *, limit: int, bytes_max: int
    ) -> list[tuple[bytes, bytes]]:
        """See OrderedStore."""
        bounded = self._rocksdict.ReadOptions()
        bounded.set_iterate_upper_bound(end)
        found: list[tuple[bytes, bytes]] = []
        size = 0
        with _as_store_error("cannot read"):
            entry = self._db.iter(bounded)
            entry.seek(begin)
            while len(found) < limit and entry.valid():
                data: bytes = entry.value()
                size += len(data)
                if found and size > bytes_max:
                    break
                found.append((entry.key(), data))
                entry.next()
            entry.status()
        return found

    def compact(self, begin: bytes, end: bytes) -> None:
        """See OrderedStore."""
        with _as_store_error("cannot compact"):
            self._db.compact_range(begin, end)

    def close(self) -> None:
        """See OrderedStore."""
        with _as_store_error("cannot close"):
            self._db.close()


@contextmanager
def _as_store_error(what: str) -> Iterator[None]:
    """rocksdict raises plain exceptions with the text of RocksDB's status."""
    try:
        yield
    except Exception as error:
        raise OrderedStoreError(f"{what}: {error}", full="No space left" in str(error)) from error
