"""Reads and changes a metadata file apart from its broker: for backups and restores.

Every function blocks. MetaError says what was wrong with which file.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from broker.meta import sqlite_steps
from broker.meta.sqlite_steps import Write
from broker.ports.meta import MetaError
from broker.ports.meta_writes import split_write

BUSY_S = 5.0
PAGES_A_STEP = 1024


class MetadataSnapshot:
    """The metadata as it was when this object was made, while the broker goes on writing.

    One read transaction: it holds nobody up. `close` ends it. Any thread, one at a time.
    """

    def __init__(self, path: Path) -> None:
        """Raises MetaError when there is no metadata at `path`."""
        self._path = path
        with _as_meta_error(path):
            self._connection = _existing(path)
        try:
            with _as_meta_error(path):
                if not sqlite_steps.is_ours(self._connection, path):
                    raise MetaError(f"{path}: the metadata file is empty")
                self._connection.execute("BEGIN")
                # A transaction sees the file as it is at its first read, not at its BEGIN.
                self._connection.execute("SELECT revision FROM head").fetchone()
        except BaseException:
            self.close()
            raise

    def entries(self, prefix: str = "") -> dict[str, bytes]:
        """Values by key, of all keys that begin with `prefix`."""
        query = "SELECT key, value FROM entries WHERE substr(key, 1, ?) = ?"
        with _as_meta_error(self._path):
            return dict(self._connection.execute(query, (len(prefix), prefix)).fetchall())

    def save(self, path: Path) -> None:
        """Write it to a new file, complete in itself; the caller syncs it."""
        with _as_meta_error(path), closing(sqlite3.connect(path, isolation_level=None)) as copy:
            self._connection.backup(copy, pages=PAGES_A_STEP)
            # Without a journal beside it, so that one checksum covers everything.
            copy.execute("PRAGMA journal_mode = DELETE")

    def close(self) -> None:
        """Idempotent."""
        self._connection.close()


def entries_of(path: Path) -> dict[str, bytes]:
    """All values by key. Raises MetaError."""
    with closing(MetadataSnapshot(path)) as snapshot:
        return snapshot.entries()


def change_offline(path: Path, puts: Mapping[str, bytes], deletes: Sequence[str]) -> None:
    """Change a metadata file that no broker has open, and leave it as brokers expect it.

    Durable on return. Raises MetaError, with nothing changed.
    """
    writes = [Write(some, gone, {}) for some, gone in split_write(puts, deletes)]
    with _as_meta_error(path), closing(_existing(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        # In one transaction, although each is small: it takes effect as a whole.
        sqlite_steps.apply_all(connection, writes)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _existing(path: Path) -> sqlite3.Connection:
    # `mode=rw` refuses to create a file; a reader writes, too: to the shared index of the journal.
    address = f"{path.absolute().as_uri()}?mode=rw"
    return sqlite3.connect(
        address, uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY_S
    )


@contextmanager
def _as_meta_error(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, UnicodeError) as error:
        raise MetaError(f"{path}: {error}") from error
