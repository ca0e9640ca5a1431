"""Who may change the metadata as the coordinator: the newest one to have come, nobody before it.

Owns the record of terms of coordinators. A former one that still runs, because it was stopped for a
while or the lock that keeps a second one out did not connect it, changes nothing any more: each of
its writes names the leader's record as it was when it came.
"""

from collections.abc import Mapping, Sequence

import anyio

from broker.coordinator.counters import count_up
from broker.ports.meta import Conflict, MetaEntry, MetaError, MetaStore

LEADER_KEY = "leader"
LOOK_S = 1.0
"""How long a coordinator that writes nothing may not know that another one leads."""


class Deposed(MetaError):
    """A newer coordinator leads; nothing of the write took effect, and none will again."""


class LedStore:
    """A MetaStore (`broker/ports/meta.py`) for one coordinator; made by `lead`."""

    def __init__(self, store: MetaStore, term: int, revision: int) -> None:
        self._store = store
        self._revision = revision
        self._deposed = anyio.Event()
        self.term = term

    @property
    def deposed(self) -> bool:
        """Whether it is known that a newer coordinator leads."""
        return self._deposed.is_set()

    async def until_deposed(self) -> None:
        """Until a newer coordinator leads: noticed by the next write, or within LOOK_S."""
        while not self.deposed:
            with anyio.move_on_after(LOOK_S):
                await self._deposed.wait()
            await self._look()

    async def leads(self) -> bool:
        """See Lead (`broker/ports/leader_check.py`)."""
        entry = await self._store.get(LEADER_KEY)
        return entry is not None and entry.revision == self._revision

    async def get(self, key: str) -> MetaEntry | None:
        """See MetaStore."""
        return await self._store.get(key)

    async def list(self, prefix: str) -> Sequence[tuple[str, MetaEntry]]:
        """See MetaStore."""
        return await self._store.list(prefix)

    async def write(
        self,
        puts: Mapping[str, bytes],
        *,
        deletes: Sequence[str] = (),
        expect: Mapping[str, int] | None = None,
    ) -> int:
        """See MetaStore. Also raises Deposed."""
        mine = {**(expect or {}), LEADER_KEY: self._revision}
        try:
            return await self._store.write(puts, deletes=deletes, expect=mine)
        except Conflict as conflict:
            # Of several conflicts the one whose key comes first is told.
            if conflict.key != LEADER_KEY and await self.leads():
                raise
            self._deposed.set()
            cause = f"a newer coordinator leads than the one of term {self.term}; stop this one"
            raise Deposed(cause) from conflict

    async def close(self) -> None:
        """See MetaStore."""
        await self._store.close()

    async def _look(self) -> None:
        try:
            if not await self.leads():
                self._deposed.set()
        except MetaError:
            pass  # the store is away, for everybody


async def lead(store: MetaStore) -> LedStore:
    """Become the coordinator of this metadata, at a term above all before. Raises MetaError."""
    counted = await count_up(store, LEADER_KEY)
    return LedStore(store, term=counted.number, revision=counted.revision)
