"""The metadata file itself: its schema, its transactions, and the wait for other processes.

Owns one connection, for one thread at a time, whichever that is; every call blocks. Never
interprets a value. Next: broker/meta/sqlite.py

Why a short wait of SQLite's, many times over, and not one long one: SQLite sleeps longer and longer
between its looks, up to 100 ms, and a transaction of another process lasts one or two.
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from broker.ports.meta import Conflict, Entry, MetaError, UnknownSchema

SCHEMA_VERSION = 1
APPLICATION_ID = 0x5449_4445
"""`TIDE`: tells a metadata file from any other SQLite file."""

LOOK_MS = 3
"""How long SQLite waits by itself for a lock: it looks after 1 and 2 more."""

_LAST_CODE_POINT = chr(0x10FFFF)
_SURROGATES = range(0xD800, 0xE000)

_CREATE = (
    """CREATE TABLE entries (
        key TEXT PRIMARY KEY, value BLOB NOT NULL, revision INTEGER NOT NULL
    ) WITHOUT ROWID""",
    "CREATE TABLE head (id INTEGER PRIMARY KEY CHECK (id = 1), revision INTEGER NOT NULL)",
    "INSERT INTO head VALUES (1, 0)",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)

_FIRST_READ = "SELECT count(*) FROM sqlite_schema"
"""A transaction sees the file as it is when it first reads a table; a PRAGMA alone is none."""

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Write:
    """What one caller wants applied as a whole, and then the revision, or why it was refused."""

    puts: Mapping[str, bytes]
    deletes: Sequence[str]
    expect: Mapping[str, int]
    revision: int = 0
    refused: Exception | None = None


class SqliteFile:
    """Every call may raise sqlite3.Error, and UnicodeError for a key that is no text."""

    def __init__(self, path: Path, busy_timeout_ms: int) -> None:
        self._path = path
        self._looks_max = max(1, busy_timeout_ms // LOOK_MS)
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            self._connection.execute(f"PRAGMA busy_timeout = {LOOK_MS:d}")
            self._patiently(lambda: self._connection.execute("PRAGMA synchronous = FULL"))
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Idempotent."""
        self._connection.close()

    def entry(self, key: str) -> Entry | None:
        """The newest entry of a key."""
        return self._patiently(lambda: self._entry(key))

    def entries(self, prefix: str) -> list[tuple[str, Entry]]:
        """In key order, from one moment."""
        end = _end_of_prefix(prefix)
        query = "SELECT key, value, revision FROM entries WHERE key >= ? "
        query += "ORDER BY key" if end is None else "AND key < ? ORDER BY key"
        bounds = (prefix,) if end is None else (prefix, end)
        rows = self._patiently(lambda: self._connection.execute(query, bounds).fetchall())
        return [(key, Entry(value, revision)) for key, value, revision in rows]

    def apply(self, writes: Sequence[Write]) -> None:
        """One after the other in one transaction, durable when this returns.

        One that is refused leaves no trace, and the others go on. Raises when none was applied.
        """

        def together() -> None:
            with self._transaction("BEGIN IMMEDIATE"):
                for write in writes:
                    self._try(write)

        self._patiently(together)

    def is_ours(self) -> bool:
        """Whether the schema is there; False for an empty file; anything else raises untouched."""

        def look() -> bool:
            # From one moment: another process may be writing the schema just now.
            with self._transaction("BEGIN"):
                self._connection.execute(_FIRST_READ).fetchone()
                return self._is_ours()

        return self._patiently(look)

    def use_journal(self) -> bool:
        """Switch to the write-ahead journal; False while another process is in the way."""
        with suppress(sqlite3.OperationalError):
            return self.pragma("journal_mode = WAL") == "wal"
        return False

    def create(self) -> None:
        """Make the schema in an empty file; two processes may try at once, and one does it."""

        def make() -> None:
            with self._transaction("BEGIN IMMEDIATE"):
                if not self._is_ours():
                    for statement in _CREATE:
                        self._connection.execute(statement)

        self._patiently(make)

    def pragma(self, name: str) -> int | str:
        """What SQLite says of itself."""
        value: int | str = self._connection.execute(f"PRAGMA {name}").fetchone()[0]
        return value

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        """IMMEDIATE takes the write lock at once, so that what was checked holds at the commit."""
        try:
            self._connection.execute(begin)
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # it never began, or SQLite undid it by itself
                self._connection.execute("ROLLBACK")
            raise

    def _patiently(self, call: Callable[[], T]) -> T:
        """Again while another process is in the way."""
        for _ in range(self._looks_max - 1):
            try:
                return call()
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
        return call()

    def _try(self, write: Write) -> None:
        self._connection.execute("SAVEPOINT one")
        write.refused = None
        try:
            write.revision = self._apply(write)
        except (MetaError, sqlite3.Error, UnicodeError) as error:
            if not self._connection.in_transaction:  # a full disk undoes all of it
                raise
            write.refused = error
            self._connection.execute("ROLLBACK TO one")
        self._connection.execute("RELEASE one")

    def _apply(self, write: Write) -> int:
        for key, expected in sorted(write.expect.items()):
            entry = self._entry(key)
            actual = 0 if entry is None else entry.revision
            if actual != expected:
                raise Conflict(key, expected, actual)
        run = self._connection
        head = run.execute("UPDATE head SET revision = revision + 1 RETURNING revision").fetchall()
        revision = int(head[0][0])
        run.executemany("DELETE FROM entries WHERE key = ?", [(key,) for key in write.deletes])
        run.executemany(
            "INSERT OR REPLACE INTO entries VALUES (?, ?, ?)",
            [(key, value, revision) for key, value in write.puts.items()],
        )
        return revision

    def _entry(self, key: str) -> Entry | None:
        query = "SELECT value, revision FROM entries WHERE key = ?"
        row = self._connection.execute(query, (key,)).fetchone()
        return None if row is None else Entry(row[0], row[1])

    def _is_ours(self) -> bool:
        found = self.pragma("user_version")
        if found == SCHEMA_VERSION and self.pragma("application_id") == APPLICATION_ID:
            return True
        if self.pragma("application_id") == APPLICATION_ID:
            raise UnknownSchema(str(self._path), int(found), SCHEMA_VERSION)
        if self.pragma("schema_version") != 0:
            raise MetaError(f"{self._path}: a SQLite file, but not Tidemark's metadata")
        return False


def _end_of_prefix(prefix: str) -> str | None:
    """The first text after all that start with `prefix`; None when there is no such text."""
    stem = prefix.rstrip(_LAST_CODE_POINT)
    if not stem:
        return None
    following = ord(stem[-1]) + 1
    if following in _SURROGATES:
        following = _SURROGATES.stop
    return stem[:-1] + chr(following)
