"""The metadata file with an async interface: each call is one round trip to aiosqlite's thread.

Why a transaction is one round trip, through an SQL function of ours: it holds the file's write
lock, and with a round trip for each statement a process with a busy event loop would keep the lock
from all other processes for as many turns of its loop. SQLite lets a function use the connection it
is called on, except for closing it (https://www.sqlite.org/c3ref/create_function.html).
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
from broker.meta.sqlite_steps import BUSY_WAIT_MS, Write, is_busy
from broker.ports.meta import MetaEntry

RUN = "tidemark_run"
"""The SQL function; its argument is the number of a pending call."""

_LAST_CODE_POINT = chr(0x10FFFF)
_SURROGATES = range(0xD800, 0xE000)

T = TypeVar("T")


class SqliteFile:
    """Every call may raise sqlite3.Error, and UnicodeError for a key that is not valid text."""

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
        self._pending: dict[int, Callable[[], None]] = {}

    @classmethod
    async def open(cls, path: Path, busy_timeout_ms: int) -> Self:
        """Open the file, creating it when it does not exist. Nothing stays open after an error."""
        # aiosqlite's thread outlives an opening that fails in it, and may outlive the loop.
        inner = await to_thread.run_sync(_connect, path)
        connection = await aiosqlite.Connection(lambda: inner, iter_chunk_size=64)
        file = cls(path, inner, connection, busy_timeout_ms)
        try:
            await connection.execute(f"PRAGMA busy_timeout = {BUSY_WAIT_MS:d}")
            await connection.create_function(RUN, 1, file._run)
            await file._retry_while_busy(lambda: file.pragma("synchronous = FULL"))
        except BaseException:
            await file.close()
            raise
        return file

    async def close(self) -> None:
        """Idempotent."""
        await self._connection.close()

    async def entry(self, key: str) -> MetaEntry | None:
        """The newest entry of a key."""
        return await self._on_thread(lambda: sqlite_steps.entry(self._inner, key))

    async def entries_of(self, keys: Sequence[str]) -> list[MetaEntry | None]:
        """The newest entry of each key, in one round trip."""
        return await self._on_thread(lambda: [sqlite_steps.entry(self._inner, it) for it in keys])

    async def revision(self) -> int:
        """That of the newest write of any process."""
        return await self._on_thread(lambda: sqlite_steps.revision(self._inner))

    async def entries(self, prefix: str, limit: int, after: str) -> list[tuple[str, MetaEntry]]:
        """The first entries with this prefix above `after` in key order, from one snapshot."""
        # A range of keys instead of LIKE, whose wildcards a prefix may have; it uses the index.
        end = _end_of_prefix(prefix)
        # One lower bound: SQLite seeks to one of two, and would then walk up to the other.
        start, above = (after, ">") if after >= prefix else (prefix, ">=")
        below, bounds = ("", ()) if end is None else ("AND key < ?", (end,))
        query = (
            f"SELECT key, value, revision FROM entries WHERE key {above} ? {below}"
            " ORDER BY key LIMIT ?"
        )
        rows = await self._retry_while_busy(
            lambda: self._connection.execute_fetchall(query, (start, *bounds, limit))
        )
        return [(key, MetaEntry(value, revision)) for key, value, revision in rows]

    async def apply(self, writes: Sequence[Write]) -> None:
        """Apply the writes in order in one transaction, durable on return.

        A refused write leaves no trace, and the others are applied. Raises when none was applied. A
        caller that is cancelled has handed the writes over already: they may take effect.
        """
        await self._on_thread(lambda: sqlite_steps.apply(self._inner, writes))

    async def is_ours(self) -> bool:
        """True when the schema is there, False for an empty file; else raises without a change."""
        return await self._on_thread(lambda: sqlite_steps.is_ours(self._inner, self._path))

    async def use_journal(self) -> bool:
        """Switch to the write-ahead journal; False while another process blocks it."""
        with suppress(sqlite3.OperationalError):
            return await self.pragma("journal_mode = WAL") == "wal"
        return False

    async def create(self) -> None:
        """Create the schema in an empty file; when two processes try at once, one does it."""
        await self._on_thread(lambda: sqlite_steps.create(self._inner, self._path))

    async def pragma(self, name: str) -> int | str | None:
        """The value of a pragma; None for one that only has an effect."""
        rows = list(await self._connection.execute_fetchall(f"PRAGMA {name}"))
        return rows[0][0] if rows else None

    async def _on_thread(self, steps: Callable[[], T]) -> T:
        """Run blocking steps on aiosqlite's thread, in one round trip; their result or error."""

        async def trip() -> T:
            done: Future[T] = Future()
            number = next(self._numbers)
            self._pending[number] = lambda: _settle(done, steps)
            # Reads no table, so it locks nothing: the steps begin and end their own transaction.
            await self._connection.execute_fetchall(f"SELECT {RUN}(?)", (number,))
            return done.result()

        return await self._retry_while_busy(trip)

    def _run(self, number: int) -> None:
        """Called on aiosqlite's thread, once for each number; the caller may be gone by then."""
        self._pending.pop(number)()

    async def _retry_while_busy(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call while another process holds the file, until the busy timeout is over.

        Limited by time, not by attempts: an attempt takes as long as the event loop is busy.
        """
        until_s = anyio.current_time() + self._busy_s
        while True:
            try:
                return await call()
            except sqlite3.OperationalError as error:
                # No pause here: each attempt has waited a few milliseconds in SQLite already.
                if not is_busy(error) or anyio.current_time() >= until_s:
                    raise


def _settle(done: "Future[T]", steps: Callable[[], T]) -> None:
    try:
        done.set_result(steps())
    except Exception as error:  # noqa: BLE001 - raised again where it is waited for
        done.set_exception(error)


def _connect(path: Path) -> sqlite3.Connection:
    """A connection that any thread may use, one at a time."""
    # No isolation level: Python would begin transactions itself, and without the write lock.
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False)


def _end_of_prefix(prefix: str) -> str | None:
    """The first text above all with this prefix; None when there is none."""
    stem = prefix.rstrip(_LAST_CODE_POINT)
    if not stem:
        return None
    following = ord(stem[-1]) + 1
    if following in _SURROGATES:  # these cannot be stored: they have no form in UTF-8
        following = _SURROGATES.stop
    return stem[:-1] + chr(following)
