"""The metadata file itself: its schema, its transactions, and the wait for other processes.

Owns one connection, for one call at a time. Never interprets a value.
Next: broker/meta/sqlite.py

Why a short wait of SQLite's, many times over, and not one long one: SQLite sleeps longer and longer
between its looks, up to 100 ms, and a transaction of another process lasts one or two.
"""

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

import aiosqlite
import anyio
from anyio import to_thread

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

_NEXT_REVISION = "UPDATE head SET revision = revision + 1 RETURNING revision"

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

    def __init__(self, path: Path, connection: aiosqlite.Connection, busy_timeout_ms: int) -> None:
        self._path = path
        self._busy_s = busy_timeout_ms / 1000
        self._connection = connection

    @classmethod
    async def open(cls, path: Path, busy_timeout_ms: int) -> Self:
        """The file at `path`, made when it is not there. Nothing stays open on failure."""
        # aiosqlite's thread outlives an opening that fails in it, and may outlive the loop.
        opened = await to_thread.run_sync(_connect, path)
        connection = await aiosqlite.Connection(lambda: opened, iter_chunk_size=64)
        file = cls(path, connection, busy_timeout_ms)
        try:
            await connection.execute(f"PRAGMA busy_timeout = {LOOK_MS:d}")
            await file._patiently(lambda: file.pragma("synchronous = FULL"))
        except BaseException:
            await file.close()
            raise
        return file

    async def close(self) -> None:
        """Idempotent."""
        await self._connection.close()

    async def entry(self, key: str) -> Entry | None:
        """The newest entry of a key."""
        return await self._patiently(lambda: self._entry(key))

    async def entries(self, prefix: str) -> list[tuple[str, Entry]]:
        """In key order, from one moment."""
        end = _end_of_prefix(prefix)
        query = "SELECT key, value, revision FROM entries WHERE key >= ? "
        query += "ORDER BY key" if end is None else "AND key < ? ORDER BY key"
        bounds = (prefix,) if end is None else (prefix, end)
        rows = await self._patiently(lambda: self._connection.execute_fetchall(query, bounds))
        return [(key, Entry(value, revision)) for key, value, revision in rows]

    async def apply(self, writes: Sequence[Write]) -> None:
        """One after the other in one transaction, durable when this returns.

        One that is refused leaves no trace, and the others go on. Raises when none was applied.
        """

        async def together() -> None:
            async with self._transaction("BEGIN IMMEDIATE"):
                for write in writes:
                    await self._try(write)

        await self._patiently(together)

    async def is_ours(self) -> bool:
        """Whether the schema is there; False for an empty file; anything else raises untouched."""

        async def look() -> bool:
            # From one moment: another process may be writing the schema just now.
            async with self._transaction("BEGIN"):
                await self._connection.execute_fetchall(_FIRST_READ)
                return await self._is_ours()

        return await self._patiently(look)

    async def use_journal(self) -> bool:
        """Switch to the write-ahead journal; False while another process is in the way."""
        with suppress(sqlite3.OperationalError):
            return await self.pragma("journal_mode = WAL") == "wal"
        return False

    async def create(self) -> None:
        """Make the schema in an empty file; two processes may try at once, and one does it."""

        async def make() -> None:
            async with self._transaction("BEGIN IMMEDIATE"):
                if not await self._is_ours():
                    for statement in _CREATE:
                        await self._connection.execute(statement)

        await self._patiently(make)

    async def pragma(self, name: str) -> int | str | None:
        """What SQLite says of itself; None when it only does as it is told."""
        rows = list(await self._connection.execute_fetchall(f"PRAGMA {name}"))
        return rows[0][0] if rows else None

    @asynccontextmanager
    async def _transaction(self, begin: str) -> AsyncIterator[None]:
        """IMMEDIATE takes the write lock at once, so that what was checked holds at the commit."""
        try:
            await self._connection.execute(begin)
            yield
            await self._connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # it never began, or SQLite undid it by itself
                await self._connection.execute("ROLLBACK")
            raise

    async def _patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        """Again while another process is in the way; by the time and not by the number of looks,
        each of which takes as long as the loop is busy."""
        until_s = anyio.current_time() + self._busy_s
        while True:
            try:
                return await call()
            except sqlite3.OperationalError as error:
                busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                if not busy or anyio.current_time() >= until_s:
                    raise

    async def _try(self, write: Write) -> None:
        run = self._connection.execute
        await run("SAVEPOINT one")
        write.refused = None
        try:
            write.revision = await self._apply(write)
        except (MetaError, sqlite3.Error, UnicodeError) as error:
            if not self._connection.in_transaction:  # a full disk undoes all of it
                raise
            write.refused = error
            await run("ROLLBACK TO one")
        await run("RELEASE one")

    async def _apply(self, write: Write) -> int:
        for key, expected in sorted(write.expect.items()):
            entry = await self._entry(key)
            actual = 0 if entry is None else entry.revision
            if actual != expected:
                raise Conflict(key, expected, actual)
        run = self._connection
        head = list(await run.execute_fetchall(_NEXT_REVISION))
        revision = int(head[0][0])
        if write.deletes:
            keys = [(key,) for key in write.deletes]
            await run.executemany("DELETE FROM entries WHERE key = ?", keys)
        rows = [(key, value, revision) for key, value in write.puts.items()]
        await run.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", rows)
        return revision

    async def _entry(self, key: str) -> Entry | None:
        query = "SELECT value, revision FROM entries WHERE key = ?"
        rows = list(await self._connection.execute_fetchall(query, (key,)))
        return Entry(rows[0][0], rows[0][1]) if rows else None

    async def _is_ours(self) -> bool:
        found = await self.pragma("user_version")
        application = await self.pragma("application_id")
        if application == APPLICATION_ID:
            if found == SCHEMA_VERSION:
                return True
            raise UnknownSchema(str(self._path), int(found or 0), SCHEMA_VERSION)
        if await self.pragma("schema_version") != 0:
            raise MetaError(f"{self._path}: a SQLite file, but not Tidemark's metadata")
        return False


def _connect(path: Path) -> sqlite3.Connection:
    """For use by one thread at a time, whichever it is."""
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False)


def _end_of_prefix(prefix: str) -> str | None:
    """The first text after all that start with `prefix`; None when there is no such text."""
    stem = prefix.rstrip(_LAST_CODE_POINT)
    if not stem:
        return None
    following = ord(stem[-1]) + 1
    if following in _SURROGATES:
        following = _SURROGATES.stop
    return stem[:-1] + chr(following)
