"""What is done to the metadata file in one go: its schema, and transactions of many writes.

Owns the statements. Every function here blocks, on the connection it is given, and may raise
sqlite3.Error, and UnicodeError for a key that is no text.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from broker.ports.meta import Conflict, MetaEntry, MetaError, UnknownSchema

SCHEMA_VERSION = 1
APPLICATION_ID = 0x5449_4445
"""`TIDE`: tells a metadata file from any other SQLite file."""

LOOK_MS = 3
"""How long SQLite waits by itself for a lock: it looks after 1 and 2 more. Waiting longer it would
sleep longer and longer, up to 100 ms, and a transaction of another process lasts one or two."""
LOOKS = 32
"""Of one go, before the event loop hears of it."""

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

_ENTRY = "SELECT value, revision FROM entries WHERE key = ?"
_NEXT_REVISION = "UPDATE head SET revision = revision + 1 RETURNING revision"


@dataclass(slots=True, eq=False)
class Write:
    """What one caller wants applied as a whole, and then the revision, or why it was refused."""

    puts: Mapping[str, bytes]
    deletes: Sequence[str]
    expect: Mapping[str, int]
    revision: int = 0
    refused: Exception | None = None


def apply(connection: sqlite3.Connection, writes: Sequence[Write]) -> None:
    """One after the other in one transaction, durable when this returns.

    One that is refused leaves no trace, and the others go on. Raises when none was applied.
    """
    with _transaction(connection, "BEGIN IMMEDIATE"):
        for write in writes:
            _try(connection, write)


def entry(connection: sqlite3.Connection, key: str) -> MetaEntry | None:
    """The newest entry of a key."""
    row = connection.execute(_ENTRY, (key,)).fetchone()
    return None if row is None else MetaEntry(row[0], row[1])


def is_ours(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the schema is there; False for an empty file; anything else raises untouched.

    From one moment: another process may be writing the schema just now.
    """
    with _transaction(connection, "BEGIN"):
        connection.execute(_FIRST_READ).fetchone()
        return _is_ours(connection, path)


def create(connection: sqlite3.Connection, path: Path) -> None:
    """Make the schema in an empty file; two processes may try at once, and one does it."""
    with _transaction(connection, "BEGIN IMMEDIATE"):
        if not _is_ours(connection, path):
            for statement in _CREATE:
                connection.execute(statement)


def is_busy(error: sqlite3.OperationalError) -> bool:
    """Whether another process is in the way."""
    return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY


@contextmanager
def _transaction(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
    """IMMEDIATE takes the write lock at once, so that what was checked holds at the commit."""
    _begin(connection, begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # SQLite undid it by itself
            connection.execute("ROLLBACK")
        raise


def _begin(connection: sqlite3.Connection, begin: str) -> None:
    for _ in range(LOOKS - 1):
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
        if not connection.in_transaction:  # a full disk undoes all of it
            raise
        write.refused = error
        connection.execute("ROLLBACK TO one")
    connection.execute("RELEASE one")


def _apply(connection: sqlite3.Connection, write: Write) -> int:
    for key, expected in sorted(write.expect.items()):
        found = entry(connection, key)
        actual = 0 if found is None else found.revision
        if actual != expected:
            raise Conflict(key, expected, actual)
    revision = int(connection.execute(_NEXT_REVISION).fetchone()[0])
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
    if _pragma(connection, "schema_version") != 0:
        raise MetaError(f"{path}: a SQLite file, but not Tidemark's metadata")
    return False


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
