"""The metadata file as an event loop sees it: its calls, each one trip to aiosqlite's thread.

Owns one connection, for one call at a time, and the wait for other processes. Never interprets a
value.

Why a transaction is one trip, by way of an SQL function of ours: it has the file's write lock, and
with a trip for each statement a process whose loop is busy kept the lock from all others for as
many of its turns. SQLite lets a function use the connection that it is called on, but for closing
it (https://www.sqlite.org/c3ref/create_function.html).
"""

import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Self, TypeVar

import aiosqlite
import anyio
from anyio import to_thread

from broker.meta import sqlite_steps
from broker.meta.sqlite_steps import LOOK_MS, Write, is_busy
from broker.ports.meta import MetaEntry

RUN = "tidemark_run"
"""The SQL function; its argument is the number of what is to be done."""

_LAST_CODE_POINT = chr(0x10FFFF)
_SURROGATES = range(0xD800, 0xE000)

T = TypeVar("T")


class SqliteFile:
    """Every call may raise sqlite3.Error, and UnicodeError for a key that is no text."""

    def __init__(
        self,
        path: Path,
        inner: sqlite3.Connection,
        connection: aiosqlite.Connection,
        busy_timeout_ms: int,
    ) -> None:
        self._path = path
        self._busy_s = busy_timeout_ms / 1000
        self._inner = inner
        self._connection = connection
        self._numbers = count()
        self._asked: dict[int, Callable[[], None]] = {}

    @classmethod
    async def open(cls, path: Path, busy_timeout_ms: int) -> Self:
        """The file at `path`, made when it is not there. Nothing stays open on failure."""
        # aiosqlite's thread outlives an opening that fails in it, and may outlive the loop.
        inner = await to_thread.run_sync(_connect, path)
        connection = await aiosqlite.Connection(lambda: inner, iter_chunk_size=64)
        file = cls(path, inner, connection, busy_timeout_ms)
        try:
            await connection.execute(f"PRAGMA busy_timeout = {LOOK_MS:d}")
            await connection.create_function(RUN, 1, file._run)
            await file._patiently(lambda: file.pragma("synchronous = FULL"))
        except BaseException:
            await file.close()
            raise
        return file

    async def close(self) -> None:
        """Idempotent."""
        await self._connection.close()

    async def entry(self, key: str) -> MetaEntry | None:
        """The newest entry of a key."""
        return await self._in_one_go(lambda: sqlite_steps.entry(self._inner, key))

    async def entries(self, prefix: str) -> list[tuple[str, MetaEntry]]:
        """In key order, from one moment."""
        end = _end_of_prefix(prefix)
        query = "SELECT key, value, revision FROM entries WHERE key >= ? "
        query += "ORDER BY key" if end is None else "AND key < ? ORDER BY key"
        bounds = (prefix,) if end is None else (prefix, end)
        rows = await self._patiently(lambda: self._connection.execute_fetchall(query, bounds))
        return [(key, MetaEntry(value, revision)) for key, value, revision in rows]

    async def apply(self, writes: Sequence[Write]) -> None:
        """One after the other in one transaction, durable when this returns.

        One that is refused leaves no trace, and the others go on. Raises when none was applied.
        Whoever is ended while it waits has given the word already: the writes may take effect.
        """
        await self._in_one_go(lambda: sqlite_steps.apply(self._inner, writes))

    async def is_ours(self) -> bool:
        """Whether the schema is there; False for an empty file; anything else raises untouched."""
        return await self._in_one_go(lambda: sqlite_steps.is_ours(self._inner, self._path))

    async def use_journal(self) -> bool:
        """Switch to the write-ahead journal; False while another process is in the way."""
        with suppress(sqlite3.OperationalError):
            return await self.pragma("journal_mode = WAL") == "wal"
        return False

    async def create(self) -> None:
        """Make the schema in an empty file; two processes may try at once, and one does it."""
        await self._in_one_go(lambda: sqlite_steps.create(self._inner, self._path))

    async def pragma(self, name: str) -> int | str | None:
        """What SQLite says of itself; None when it only does as it is told."""
        rows = list(await self._connection.execute_fetchall(f"PRAGMA {name}"))
        return rows[0][0] if rows else None

    async def _in_one_go(self, steps: Callable[[], T]) -> T:
        """What the steps return or raise; they are done on aiosqlite's thread, in one trip."""

        async def trip() -> T:
            done: Future[T] = Future()
            number = next(self._numbers)
            self._asked[number] = lambda: _settle(done, steps)
            await self._connection.execute_fetchall(f"SELECT {RUN}(?)", (number,))
            return done.result()

        return await self._patiently(trip)

    def _run(self, number: int) -> None:
        """On aiosqlite's thread, once for each number: who asked may be gone by now."""
        self._asked.pop(number)()

    async def _patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        """Again while another process is in the way; by the time and not by the number of looks,
        each of which takes as long as the loop is busy."""
        until_s = anyio.current_time() + self._busy_s
        while True:
            try:
                return await call()
            except sqlite3.OperationalError as error:
                if not is_busy(error) or anyio.current_time() >= until_s:
                    raise


def _settle(done: "Future[T]", steps: Callable[[], T]) -> None:
    try:
        done.set_result(steps())
    except Exception as error:  # noqa: BLE001 - raised again where it is waited for
        done.set_exception(error)


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
