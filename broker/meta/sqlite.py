"""Metadata in one SQLite file: durable, atomic, shared safely by several processes of one machine.

Owns whose turn it is, and which writes share a commit. Never interprets a value.

Why write-ahead journal with synchronous=FULL: a commit is one append and one fsync, and a power cut
keeps every commit that returned. Why one connection with a lock: SQLite has one writer anyhow, and
a reader on the same connection would see a transaction that is not committed yet. Why writes that
wait at the same time share a commit: when a node dies, each of its channels is written down twice,
by two processes that keep each other waiting; each still takes effect whole or not at all.
"""

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Self, TypeVar

import anyio

from broker.meta.sqlite_file import SqliteFile
from broker.meta.sqlite_steps import Write
from broker.ports.meta import MetaEntry, MetaError

BUSY_TIMEOUT_MS = 5_000
"""How long a call waits for another process's transaction; those last milliseconds."""

JOURNAL_ATTEMPTS_MAX = 20
"""About two seconds, at the first opening of a new file only."""

TOGETHER_MAX = 64
"""Writes that share a commit: others wait for the lock meanwhile."""

T = TypeVar("T")


class SqliteMetaStore:
    """A MetaStore (`broker/ports/meta.py`) over one file; made by `open`, ended by `close`.

    Also an async context manager that closes. One event loop uses one object.
    """

    def __init__(self, path: Path, file: SqliteFile) -> None:
        self._path = path
        self._file = file
        self._lock = anyio.Lock()
        self._closed = False
        self._writes: list[Write] = []

    @classmethod
    async def open(cls, path: Path, *, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> Self:
        """Open the file, or make it with its schema.

        Raises UnknownSchema for another version, MetaError when it is no metadata file, is damaged,
        or cannot be opened. Nothing stays open on failure.
        """
        with anyio.CancelScope(shield=True), _as_meta_error(path):
            file = await SqliteFile.open(path, busy_timeout_ms)
        store = cls(path, file)
        try:
            with anyio.CancelScope(shield=True), _as_meta_error(path):
                await store._prepare()
        except BaseException:
            await store.close()
            raise
        return store

    async def get(self, key: str) -> MetaEntry | None:
        return await self._in_turn(lambda: self._file.entry(key))

    async def list(self, prefix: str) -> Sequence[tuple[str, MetaEntry]]:
        return await self._in_turn(lambda: self._file.entries(prefix))

    async def write(
        self,
        puts: Mapping[str, bytes],
        *,
        deletes: Sequence[str] = (),
        expect: Mapping[str, int] | None = None,
    ) -> int:
        """Whoever's turn comes first writes for all that wait behind it, too."""
        mine = Write(dict(puts), tuple(deletes), dict(expect or {}))
        self._writes.append(mine)
        try:
            async with self._turn():
                if mine in self._writes:
                    await self._write_together()
        finally:
            self._forget(mine)
        with _as_meta_error(self._path):
            if mine.refused is not None:
                raise mine.refused
        return mine.revision

    async def close(self) -> None:
        """Release the file; waits for a running call, and is idempotent."""
        with anyio.CancelScope(shield=True):
            async with self._lock:
                self._closed = True
                await self._file.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _in_turn(self, call: Callable[[], Awaitable[T]]) -> T:
        async with self._turn():
            return await call()

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """One call at a time; from its start to its end it cannot be cancelled half way."""
        async with self._lock:
            if self._closed:
                raise MetaError(f"{self._path}: the metadata store is closed")
            with anyio.CancelScope(shield=True), _as_meta_error(self._path):
                yield

    async def _write_together(self) -> None:
        """In the order they came: the first of them has the turn, so it is always among them.

        Nobody is told of a success that was not seen, whatever ends this one: a task may be
        cancelled in ways that no shield of anyio's holds off.
        """
        together = self._writes[:TOGETHER_MAX]
        del self._writes[:TOGETHER_MAX]
        try:
            await self._file.apply(together)
        except (MetaError, sqlite3.Error, UnicodeError) as error:
            _refuse(together, error)
        except BaseException as error:
            cause = f"{self._path}: who wrote this with others was ended: {error!r}"
            _refuse(together, MetaError(f"{cause}; it may or may not be there"))
            raise

    def _forget(self, mine: Write) -> None:
        """Of one that was cancelled, or came to a closed store, nothing is written later."""
        if mine in self._writes:
            self._writes.remove(mine)

    async def _prepare(self) -> None:
        if not await self._file.is_ours():
            await self._use_journal()
            await self._file.create()

    async def _use_journal(self) -> None:
        """SQLite's own wait does not cover this."""
        for attempt in range(JOURNAL_ATTEMPTS_MAX):
            if await self._file.use_journal():
                return
            await anyio.sleep(0.01 * (attempt + 1))
        raise MetaError(f"{self._path}: another process keeps the metadata file locked")


def _refuse(writes: Sequence[Write], error: Exception) -> None:
    for write in writes:
        write.refused = write.refused or error


@contextmanager
def _as_meta_error(path: Path) -> Iterator[None]:
    """Whatever SQLite complains about, as the port's error, with the file's name."""
    try:
        yield
    except (sqlite3.Error, UnicodeError) as error:
        raise MetaError(f"{path}: {error}") from error
