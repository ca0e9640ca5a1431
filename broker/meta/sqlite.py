"""Metadata in one SQLite file: durable, atomic, shared safely by several processes of one machine.

Owns the file and its schema. Never interprets a value.

Why write-ahead journal with synchronous=FULL: a commit is one append and one fsync, and a power cut
keeps every commit that returned. Why one connection with a lock: SQLite has one writer anyhow, and
a reader on the same connection would see a transaction that is not committed yet.
"""

import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Self

import aiosqlite
import anyio
from anyio import to_thread

from broker.ports.meta import Conflict, Entry, MetaError, UnknownSchema

SCHEMA_VERSION = 1
APPLICATION_ID = 0x5449_4445
"""`TIDE`: tells a metadata file from any other SQLite file."""

BUSY_TIMEOUT_MS = 5_000
"""How long a call waits for another process's transaction; those last milliseconds."""

JOURNAL_ATTEMPTS_MAX = 20
"""About two seconds, at the first opening of a new file only."""

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


class SqliteMetaStore:
    """A MetaStore (`broker/ports/meta.py`) over one file; made by `open`, ended by `close`.

    Also an async context manager that closes. One event loop uses one object.
    """

    def __init__(self, path: Path, connection: aiosqlite.Connection) -> None:
        self._path = path
        self._connection = connection
        self._lock = anyio.Lock()
        self._closed = False

    @classmethod
    async def open(cls, path: Path, *, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> Self:
        """Open the file, or make it with its schema.

        Raises UnknownSchema for another version, MetaError when it is no metadata file, is damaged,
        or cannot be opened. Nothing stays open on failure.
        """
        with anyio.CancelScope(shield=True), _as_meta_error(path):
            # aiosqlite's thread outlives an opening that fails in it, and may outlive the loop.
            opened = await to_thread.run_sync(_connect, path)
            connection = await aiosqlite.Connection(lambda: opened, iter_chunk_size=64)
        store = cls(path, connection)
        try:
            with anyio.CancelScope(shield=True), _as_meta_error(path):
                await store._prepare(busy_timeout_ms)
        except BaseException:
            await store.close()
            raise
        return store

    async def get(self, key: str) -> Entry | None:
        async with self._turn():
            return await self._entry(key)

    async def list(self, prefix: str) -> Sequence[tuple[str, Entry]]:
        end = _end_of_prefix(prefix)
        query = "SELECT key, value, revision FROM entries WHERE key >= ? "
        query += "ORDER BY key" if end is None else "AND key < ? ORDER BY key"
        bounds = (prefix,) if end is None else (prefix, end)
        async with self._turn():
            rows = await self._connection.execute_fetchall(query, bounds)
        return [(key, Entry(value, revision)) for key, value, revision in rows]

    async def write(
        self,
        puts: Mapping[str, bytes],
        *,
        deletes: Sequence[str] = (),
        expect: Mapping[str, int] | None = None,
    ) -> int:
        async with self._turn(), self._transaction():
            await self._check(expect or {})
            return await self._apply(puts, deletes)

    async def close(self) -> None:
        """Release the file; waits for a running call, and is idempotent."""
        with anyio.CancelScope(shield=True):
            async with self._lock:
                self._closed = True
                await self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """One call at a time; from its start to its end it cannot be cancelled half way."""
        async with self._lock:
            if self._closed:
                raise MetaError(f"{self._path}: the metadata store is closed")
            with anyio.CancelScope(shield=True), _as_meta_error(self._path):
                yield

    @asynccontextmanager
    async def _transaction(self, begin: str = "BEGIN IMMEDIATE") -> AsyncIterator[None]:
        """Take the write lock at once, so that what was checked still holds at the commit."""
        try:
            await self._connection.execute(begin)
            yield
            await self._connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # it never began, or SQLite undid it by itself
                await self._connection.execute("ROLLBACK")
            raise

    async def _entry(self, key: str) -> Entry | None:
        async with self._connection.execute(
            "SELECT value, revision FROM entries WHERE key = ?", (key,)
        ) as cursor:
            row = await cursor.fetchone()
        return None if row is None else Entry(row[0], row[1])

    async def _check(self, expect: Mapping[str, int]) -> None:
        for key, expected in sorted(expect.items()):
            entry = await self._entry(key)
            actual = 0 if entry is None else entry.revision
            if actual != expected:
                raise Conflict(key, expected, actual)

    async def _apply(self, puts: Mapping[str, bytes], deletes: Sequence[str]) -> int:
        async with self._connection.execute(
            "UPDATE head SET revision = revision + 1 RETURNING revision"
        ) as cursor:
            row = await cursor.fetchone()
        assert row is not None, "the head row is made with the schema"
        revision = int(row[0])
        await self._connection.executemany(
            "DELETE FROM entries WHERE key = ?", [(key,) for key in deletes]
        )
        await self._connection.executemany(
            "INSERT OR REPLACE INTO entries VALUES (?, ?, ?)",
            [(key, value, revision) for key, value in puts.items()],
        )
        return revision

    async def _prepare(self, busy_timeout_ms: int) -> None:
        await self._connection.execute(f"PRAGMA busy_timeout = {busy_timeout_ms:d}")
        await self._connection.execute("PRAGMA synchronous = FULL")
        # From one moment: another process may be writing the schema just now.
        async with self._transaction("BEGIN"), self._connection.execute(_FIRST_READ):
            ours = await self._is_ours()
        if not ours:
            await self._use_journal()
            await self._create()

    async def _is_ours(self) -> bool:
        """Whether the schema is there; False for an empty file; anything else raises untouched."""
        found = await self._pragma("user_version")
        if found == SCHEMA_VERSION and await self._pragma("application_id") == APPLICATION_ID:
            return True
        if await self._pragma("application_id") == APPLICATION_ID:
            raise UnknownSchema(str(self._path), int(found), SCHEMA_VERSION)
        if await self._pragma("schema_version") != 0:
            raise MetaError(f"{self._path}: a SQLite file, but not Tidemark's metadata")
        return False

    async def _use_journal(self) -> None:
        """Switch to the write-ahead journal; the busy timeout does not cover this statement."""
        for attempt in range(JOURNAL_ATTEMPTS_MAX):
            with suppress(sqlite3.OperationalError):
                if await self._pragma("journal_mode = WAL") == "wal":
                    return
            await anyio.sleep(0.01 * (attempt + 1))
        raise MetaError(f"{self._path}: another process keeps the metadata file locked")

    async def _create(self) -> None:
        """Make the schema in an empty file; two processes may try at once, and one does it."""
        async with self._transaction():
            if not await self._is_ours():
                for statement in _CREATE:
                    await self._connection.execute(statement)

    async def _pragma(self, name: str) -> int | str:
        async with self._connection.execute(f"PRAGMA {name}") as cursor:
            row = await cursor.fetchone()
        assert row is not None, name
        value: int | str = row[0]
        return value


def _connect(path: Path) -> sqlite3.Connection:
    """For use by one thread at a time, whichever it is."""
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False)


@contextmanager
def _as_meta_error(path: Path) -> Iterator[None]:
    """Whatever SQLite complains about, as the port's error, with the file's name."""
    try:
        yield
    except (sqlite3.Error, UnicodeError) as error:
        raise MetaError(f"{path}: {error}") from error


def _end_of_prefix(prefix: str) -> str | None:
    """The first text after all that start with `prefix`; None when there is no such text."""
    stem = prefix.rstrip(_LAST_CODE_POINT)
    if not stem:
        return None
    following = ord(stem[-1]) + 1
    if following in _SURROGATES:
        following = _SURROGATES.stop
    return stem[:-1] + chr(following)
