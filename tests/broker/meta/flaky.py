"""A metadata store that fails when it is told to: before a write, or after it, or for a while."""

from collections.abc import Callable, Mapping, Sequence

from broker.ports.meta import MetaEntry, MetaError, MetaStore


class Flaky:
    """`writes_left`: so many writes succeed, then none; None: all of them.

    `fails` is asked at each write: "before" it, "after" it (the answer is lost), or "".
    """

    def __init__(self, store: MetaStore, fails: Callable[[], str] = lambda: "") -> None:
        self._store = store
        self.fails = fails
        self.writes_left: int | None = None
        self.writes = 0

    async def get(self, key: str) -> MetaEntry | None:
        return await self._store.get(key)

    async def list(
        self, prefix: str, *, limit: int, after: str = ""
    ) -> Sequence[tuple[str, MetaEntry]]:
        return await self._store.list(prefix, limit=limit, after=after)

    async def write(
        self,
        puts: Mapping[str, bytes],
        *,
        deletes: Sequence[str] = (),
        expect: Mapping[str, int] | None = None,
    ) -> int:
        how = self.fails()
        if how == "before" or self.writes_left == 0:
            raise MetaError("the store is away")
        if self.writes_left is not None:
            self.writes_left -= 1
        revision = await self._store.write(puts, deletes=deletes, expect=expect)
        self.writes += 1
        if how == "after":
            raise MetaError("the answer is lost")
        return revision

    async def close(self) -> None:
        await self._store.close()
