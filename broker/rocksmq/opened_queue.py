"""Opening a folder: the lock, the store, and the table of what it holds."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from broker.core.rocksmq import queue_keys
from broker.core.rocksmq.queue_table import QueueTable, loaded
from broker.core.time import tso
from broker.model.rocksmq.ordered_writes import Put
from broker.ports.queues.ordered_store import OrderedStore, OrderedStoreError
from broker.rocksmq.queue_errors import FolderRefused, RocksMQError, store_error
from broker.rocksmq.queue_folder import QueueFolder
from broker.rocksmq.rocks_store import RocksStore

LOAD_ENTRIES = 10_000
"""Of one read of the metadata."""

Opener = Callable[[Path], OrderedStore]


@dataclass(slots=True)
class OpenedQueue:
    """A folder that this process holds, with its store, its table, and a window of ids."""

    folder: QueueFolder
    store: OrderedStore
    table: QueueTable
    window: tso.HybridClock

    @classmethod
    def open(cls, root: Path, now_ms: int, open_store: Opener = RocksStore) -> "OpenedQueue":
        """Blocks. Raises FolderRefused and its kinds, RocksdictMissing, RocksMQFull."""
        folder = QueueFolder.hold(root)
        try:
            store = open_store(folder.store)
            try:
                return cls(folder, store, _table(root, store), _window(store, now_ms))
            except BaseException:
                with suppress(OrderedStoreError):
                    store.close()
                raise
        except OrderedStoreError as error:
            folder.release()
            raise _not_opened(root, error) from error
        except BaseException:
            folder.release()
            raise

    def close(self) -> None:
        """Close the store, then let other processes in. Blocks."""
        try:
            self.store.close()
        finally:
            self.folder.release()


def _not_opened(root: Path, error: OrderedStoreError) -> RocksMQError:
    if error.full:
        return store_error(error)
    return FolderRefused(f"RocksMQ folder {root} cannot be opened: {error}")


def _table(root: Path, store: OrderedStore) -> QueueTable:
    entries: list[tuple[bytes, bytes]] = []
    begin = queue_keys.META
    while True:
        found = store.scan(
            begin, queue_keys.META_END, limit=LOAD_ENTRIES, bytes_max=LOAD_ENTRIES * 1000
        )
        entries += found
        if not found:
            break
        begin = found[-1][0] + b"\0"
    table = loaded(entries)
    if isinstance(table, bytes):
        raise FolderRefused(f"{root} has metadata that this release does not know: {table!r}")
    return table


def _window(store: OrderedStore, now_ms: int) -> tso.HybridClock:
    """A window of ids above all that were given out before; its bound is durable."""
    found = store.scan(
        queue_keys.ID_BOUND_KEY, queue_keys.ID_BOUND_KEY + b"\0", limit=1, bytes_max=100
    )
    saved_ms = int(found[0][1]) if found else 0
    bound_ms = tso.first_bound(saved_ms, now_ms)
    store.write([Put(queue_keys.ID_BOUND_KEY, queue_keys.number(bound_ms))])
    return tso.started(saved_ms, bound_ms)
