"""The metadata store in one SQLite file: durable, atomic, shared by the processes of one machine.

Why a write-ahead journal with synchronous=FULL: a commit is one append and one fsync, and a power
cut keeps every commit that returned. Why one connection with a lock: SQLite has one writer anyway,
and a reader on the same connection would see an uncommitted transaction. Why waiting writes share a
commit (group commit): when a node dies, each of its channels is written twice, by two processes
that delay each other; each write still takes effect as a whole or not at all.
"""

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Self, TypeVar

import anyio

from broker.meta.sqlite_file import SqliteFile
from broker.meta.sqlite_steps import Write
from broker.ports.meta import MetaEntry, MetaError, WriteUnconfirmed
from broker.ports.meta_writes import check_list, check_write

BUSY_TIMEOUT_MS = 5_000
"""How long a call waits for transactions of other processes; each takes milliseconds."""

JOURNAL_ATTEMPTS_MAX = 20
"""About two seconds in all; only when a new file is opened."""

LOOK_S = 0.5
"""Between two looks of who waits for a change: SQLite tells nobody of the writes of others."""

GROUP_MAX = 64
"""Writes of one commit; the others wait for the lock."""

T = TypeVar("T")


class SqliteMetaStore:
    """A MetaStore (`broker/ports/meta.py`) in one file; made by `open`, ended by `close`.

    Also an async context manager that closes. One object belongs to one event loop.
    """

    def __init__(self, path: Path, file: SqliteFile) -> None:
        self._path = path
        self._file = file
        self._lock = anyio.Lock()
        self._closed = False
        self._writes: list[Write] = []

    @classmethod
    async def open(cls, path: Path, *, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> Self:
        """Open the file; create it with its schema when it does not exist.

        Raises UnknownSchema for another schema version; MetaError when it is no metadata file, is
        damaged, or cannot be opened. Nothing stays open after an error.
        """
        # Shielded: a cancelled opening would leave the file and aiosqlite's thread behind.
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

    async def get_many(self, keys: Sequence[str]) -> Sequence[MetaEntry | None]:
        """See ReadsTogether (`broker/ports/meta.py`)."""
        return await self._in_turn(lambda: self._file.entries_of(keys))

    async def list(
        self, prefix: str, *, limit: int, after: str = ""
    ) -> Sequence[tuple[str, MetaEntry]]:
        check_list(limit)
        return await self._in_turn(lambda: self._file.entries(prefix, limit, after))

    async def write(
        self,
        puts: Mapping[str, bytes],
        *,
        deletes: Sequence[str] = (),
        expect: Mapping[str, int] | None = None,
    ) -> int:
        """The caller that gets the lock first also writes for those that wait behind it."""
        write = Write(dict(puts), tuple(deletes), dict(expect or {}))
        check_write(write.puts, write.deletes, write.expect)
        # Queued before the wait for the lock: whoever has it next writes this one, too.
        self._writes.append(write)
        try:
            async with self._turn():
                # Otherwise the caller before us has written it with its own.
                if write in self._writes:
                    await self._write_group()
        finally:
            self._forget(write)
        with _as_meta_error(self._path):
            if write.refused is not None:
                raise write.refused
        return write.revision

    async def changed(self, prefix: str, since: int | None, *, wait_s: float) -> int:
        """Looks every LOOK_S, for writes of any process; told of changes with any prefix."""
        until_s = anyio.current_time() + wait_s
        while True:
            revision = await self._in_turn(self._file.revision)
            left_s = until_s - anyio.current_time()
            if since is None or revision > since or left_s <= 0:
                return revision
            await anyio.sleep(min(LOOK_S, left_s))

    async def close(self) -> None:
        """Close the file after a running call. Idempotent."""
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
        """Run one call at a time; it cannot be cancelled between its start and its end."""
        async with self._lock:
            if self._closed:
                raise MetaError(f"{self._path}: the metadata store is closed")
            with anyio.CancelScope(shield=True), _as_meta_error(self._path):
                yield

    async def _write_group(self) -> None:
        """Write in order of arrival; the caller that holds the lock is among them.

        No write is reported as successful without its commit having been seen: a task can be
        cancelled in ways that anyio's shield does not prevent.
        """
        group = self._writes[:GROUP_MAX]
        del self._writes[:GROUP_MAX]
        try:
            await self._file.apply(group)
        except (MetaError, sqlite3.Error, UnicodeError) as error:
            _refuse(group, error)
        except BaseException as error:
            cause = f"{self._path}: the task that wrote this group was cancelled: {error!r}"
            _refuse(group, WriteUnconfirmed(f"{cause}; the write may have taken effect"))
            raise

    def _forget(self, write: Write) -> None:
        """A write that was cancelled, or met a closed store, must not be applied later."""
        if write in self._writes:
            self._writes.remove(write)

    async def _prepare(self) -> None:
        if not await self._file.is_ours():
            # Once for each file: SQLite stores the journal mode in it.
            await self._use_journal()
            await self._file.create()

    async def _use_journal(self) -> None:
        """SQLite's busy timeout does not apply to this pragma."""
        for attempt in range(JOURNAL_ATTEMPTS_MAX):
            if await self._file.use_journal():
                return
            await anyio.sleep(0.01 * (attempt + 1))
        raise MetaError(f"{self._path}: another process keeps the metadata file locked")


def _refuse(writes: Sequence[Write], error: Exception) -> None:
    for write in writes:
        write.refused = write.refused or error  # its own refusal says more


@contextmanager
def _as_meta_error(path: Path) -> Iterator[None]:
    """Raise errors of SQLite as MetaError, with the name of the file."""
    try:
        yield
    except (sqlite3.Error, UnicodeError) as error:
        raise MetaError(f"{path}: {error}") from error
