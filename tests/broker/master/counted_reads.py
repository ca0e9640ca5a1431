"""A store in memory that counts round trips, and can read several keys in one."""

from collections.abc import Sequence

from broker.meta.memory_store import MemoryMetaStore
from broker.ports.meta import MetaEntry


class CountedReads(MemoryMetaStore):
    """`single` counts reads of one key, `together` those of several."""

    def __init__(self) -> None:
        super().__init__()
        self.single = self.together = 0

    async def get(self, key: str) -> MetaEntry | None:
        self.single += 1
        return await super().get(key)

    async def get_many(self, keys: Sequence[str]) -> Sequence[MetaEntry | None]:
        self.together += 1
        return [await super(CountedReads, self).get(key) for key in keys]

    def trips(self) -> tuple[int, int]:
        """Both counts since the last call."""
        found = self.single, self.together
        self.single = self.together = 0
        return found
