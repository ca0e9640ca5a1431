"""The statements on the metadata file: its schema, and transactions of many writes.

Every function blocks, works on the connection it is given, and may raise sqlite3.Error, and
UnicodeError for a key that is not valid text.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from broker.ports.meta import Conflict, MetaEntry, MetaError, UnknownSchema

SCHEMA_VERSION = 1
APPLICATION_ID = 0x5449_4445
"""`TIDE`: distinguishes a metadata file from other SQLite files."""

BUSY_WAIT_MS = 3
"""SQLite's own busy timeout: it retries after 1 ms and again after 2. With a longer timeout it
would sleep up to 100 ms between attempts; other processes' transactions take one or two.
"""
BEGIN_ATTEMPTS = 32
"""Attempts to begin a transaction before the event loop waits instead."""

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
"""A transaction takes its snapshot at the first read of a table; a PRAGMA does not count."""

_ENTRY = "SELECT value, revision FROM entries WHERE key = ?"
_REVISION = "SELECT revision FROM head"
_NEXT_REVISION = "UPDATE head SET revision = revision + 1 RETURNING revision"


@dataclass(slots=True, eq=False)
class Write:
    """One caller's atomic write, with its outcome: the revision, or the error that refused it."""

    puts: Mapping[str, bytes]
    deletes: Sequence[str]
    expect: Mapping[str, int]
    revision: int = 0
    refused: Exception | None = None


def revision(connection: sqlite3.Connection) -> int:
    """That of the newest write."""
    return int(connection.execute(_REVISION).fetchone()[0])


def apply(connection: sqlite3.Connection, writes: Sequence[Write]) -> None:
    """Apply the writes in order in one transaction, durable on return.

    A refused write leaves no trace, and the others are applied. Raises when none was applied.
    """
    with _transaction(connection, "BEGIN IMMEDIATE"):
        for write in writes:
            _try(connection, write)


def apply_all(connection: sqlite3.Connection, writes: Sequence[Write]) -> None:
    """Apply all of the writes in one transaction, or raise and apply none."""
    with _transaction(connection, "BEGIN IMMEDIATE"):
        for write in writes:
            write.revision = _apply(connection, write)


def entry(connection: sqlite3.Connection, key: str) -> MetaEntry | None:
    """The newest entry of a key."""
    row = connection.execute(_ENTRY, (key,)).fetchone()
    return None if row is None else MetaEntry(row[0], row[1])


def is_ours(connection: sqlite3.Connection, path: Path) -> bool:
    """True when the schema is there, False for an empty file; anything else raises untouched.

    Reads one snapshot: another process may be writing the schema at this moment.
    """
    with _transaction(connection, "BEGIN"):
        connection.execute(_FIRST_READ).fetchone()
        return _is_ours(connection, path)


def create(connection: sqlite3.Connection, path: Path) -> None:
    """Create the schema in an empty file; when two processes try at once, one does it."""
    with _transaction(connection, "BEGIN IMMEDIATE"):
        if not _is_ours(connection, path):
            for statement in _CREATE:
                connection.execute(statement)


def is_busy(error: sqlite3.OperationalError) -> bool:
    """Whether another process holds the lock."""
    # The low byte is the primary code: SQLITE_BUSY has extended codes for its causes.
    return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY


@contextmanager
def _transaction(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
    """A transaction. IMMEDIATE takes the write lock first, so that checks hold until the commit."""
    _begin(connection, begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # SQLite has rolled back already
            connection.execute("ROLLBACK")
        raise


def _begin(connection: sqlite3.Connection, begin: str) -> None:
    for _ in range(BEGIN_ATTEMPTS - 1):
        try:
            connection.execute(begin)
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
        else:
            return
    connection.execute(begin)


def _try(connection: sqlite3.Connection, write: Write) -> None:
    connection.execute("SAVEPOINT one")
    write.refused = None
    try:
        write.revision = _apply(connection, write)
    except (MetaError, sqlite3.Error, UnicodeError) as error:
        if not connection.in_transaction:  # after a full disk SQLite rolls back everything
            raise
        write.refused = error
        connection.execute("ROLLBACK TO one")
    connection.execute("RELEASE one")


def _apply(connection: sqlite3.Connection, write: Write) -> int:
    # In the order of keys, because the port promises the first conflict in that order.
    for key, expected in sorted(write.expect.items()):
        found = entry(connection, key)
        actual = 0 if found is None else found.revision
        if actual != expected:
            raise Conflict(key, expected, actual)
    revision = int(connection.execute(_NEXT_REVISION).fetchone()[0])
    # Deletes first: a key that is also put is stored, as by the store in memory.
    connection.executemany("DELETE FROM entries WHERE key = ?", [(key,) for key in write.deletes])
    connection.executemany(
        "INSERT OR REPLACE INTO entries VALUES (?, ?, ?)",
        [(key, value, revision) for key, value in write.puts.items()],
    )
    return revision


def _is_ours(connection: sqlite3.Connection, path: Path) -> bool:
    found = _pragma(connection, "user_version")
    if _pragma(connection, "application_id") == APPLICATION_ID:
        if found == SCHEMA_VERSION:
            return True
        raise UnknownSchema(str(path), found, SCHEMA_VERSION)
    # 0 only in a file that never had a table: anything else belongs to another program.
    if _pragma(connection, "schema_version") != 0:
        raise MetaError(f"{path}: this is an SQLite file, but not Tidemark's metadata")
    return False


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
