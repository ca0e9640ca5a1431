"""The metadata store in memory, for tests and the simulator."""

from collections.abc import Mapping, Sequence
from heapq import nsmallest
from operator import itemgetter

import anyio

from broker.ports.meta import Conflict, MetaEntry, MetaError
from broker.ports.meta_writes import check_list, check_write


class MemoryMetaStore:
    """A MetaStore (`broker/ports/meta.py`); a test "restarts" by passing the same object on."""

    def __init__(self) -> None:
        self._entries: dict[str, MetaEntry] = {}
        self._revision = 0
        self._closed = False
        self._written = anyio.Event()

    async def get(self, key: str) -> MetaEntry | None:
        self._check_open()
        return self._entries.get(key)

    async def list(
        self, prefix: str, *, limit: int, after: str = ""
    ) -> Sequence[tuple[str, MetaEntry]]:
        self._check_open()
        check_list(limit)
        found = [it for it in self._entries.items() if it[0].startswith(prefix) and it[0] > after]
        return nsmallest(limit, found, key=itemgetter(0))

    async def write(
        self,
        puts: Mapping[str, bytes],
        *,
        deletes: Sequence[str] = (),
        expect: Mapping[str, int] | None = None,
    ) -> int:
        self._check_open()
        check_write(puts, deletes, expect or {})
        for key, expected in sorted((expect or {}).items()):
            actual = self._entries[key].revision if key in self._entries else 0
            if actual != expected:
                raise Conflict(key, expected, actual)
        self._revision += 1
        for key in deletes:
            self._entries.pop(key, None)
        for key, value in puts.items():
            self._entries[key] = MetaEntry(value, self._revision)
        self._wake()
        return self._revision

    async def changed(self, prefix: str, since: int | None, *, wait_s: float) -> int:
        """Told of changes with any prefix."""
        with anyio.move_on_after(wait_s):
            while since is not None and self._revision <= since and not self._closed:
                await self._written.wait()
        self._check_open()
        return self._revision

    async def close(self) -> None:
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        self._written.set()
        self._written = anyio.Event()

    def _check_open(self) -> None:
        if self._closed:
            raise MetaError("the metadata store is closed")
