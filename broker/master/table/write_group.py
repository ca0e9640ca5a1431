"""Several changes in one write: each reads what those before it have written."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from broker.ports.meta import Conflict, MetaEntry, MetaStore, get_many
from broker.ports.meta_writes import SPLIT_BYTES, SPLIT_KEYS

FIRST_MARK: Final = 1 << 62
"""Revisions of kept writes are above all of the store, and grow as the store's do: readers compare
those of two keys to learn which was written last."""


class WriteGroup:
    """A MetaStore in front of another one that keeps writes until `flush`, and what it has read.

    For the only writer of these keys. `list` shows the store without what was kept.
    """

    def __init__(self, store: MetaStore) -> None:
        self._store = store
        self._read: dict[str, MetaEntry | None] = {}
        self._kept: dict[str, bytes | None] = {}
        self._marks: dict[str, int] = {}
        self._mark = FIRST_MARK

    @property
    def full(self) -> bool:
        """Whether it must be flushed before the next change."""
        # A change has at most a dozen keys and one large value.
        size = sum(len(key) + len(value or b"") for key, value in self._kept.items())
        return len(self._kept) > SPLIT_KEYS - 40 or size > SPLIT_BYTES // 8

    async def get(self, key: str) -> MetaEntry | None:
        """See MetaStore."""
        if key in self._kept:
            value = self._kept[key]
            return None if value is None else MetaEntry(value, self._marks[key])
        if key not in self._read:
            self._read[key] = await self._store.get(key)
        return self._read[key]

    async def read_ahead(self, keys: Collection[str]) -> None:
        """Read what `get` will be asked for, at once. MetaError."""
        unknown = [it for it in dict.fromkeys(keys) if it not in self._read]
        self._read |= zip(unknown, await get_many(self._store, unknown), strict=True)

    async def list(
        self, prefix: str, *, limit: int, after: str = ""
    ) -> Sequence[tuple[str, MetaEntry]]:
        """See MetaStore."""
        return await self._store.list(prefix, limit=limit, after=after)

    async def write(
        self,
        puts: Mapping[str, bytes],
        *,
        deletes: Sequence[str] = (),
        expect: Mapping[str, int] | None = None,
    ) -> int:
        """Keep a write; the result is a revision that `get` shows until the flush."""
        for key, expected in sorted((expect or {}).items()):
            entry = await self.get(key)
            actual = 0 if entry is None else entry.revision
            if actual != expected:
                raise Conflict(key, expected, actual)
        self._mark += 1
        for key in deletes:
            self._kept[key] = None
        for key, value in puts.items():
            self._kept[key], self._marks[key] = value, self._mark
        return self._mark

    async def flush(self) -> int:
        """Write what was kept, at once; its revision, 0 for nothing.

        Conflict when another writer was here. MetaError.
        """
        kept = self._kept
        if not kept:
            return 0
        puts = {key: value for key, value in kept.items() if value is not None}
        read = [(key, self._read[key]) for key in kept if key in self._read]
        expect = {key: 0 if entry is None else entry.revision for key, entry in read}
        deletes = [key for key, value in kept.items() if value is None]
        revision = await self._store.write(puts, deletes=deletes, expect=expect)
        self._kept, self._read, self._marks = {}, {}, {}
        return revision

    async def close(self) -> None:
        """Keeps the store open: it belongs to others."""
