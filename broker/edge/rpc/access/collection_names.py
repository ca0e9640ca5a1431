"""Finds the collection that a channel is of, because grants name collections."""

from asyncio import get_running_loop
from collections import OrderedDict
from typing import Final

from broker.core.naming import VCHANNEL_NAME_LENGTH_MAX, is_physical
from broker.core.security.grants import Resource, ResourceKind
from broker.model.ids import CollectionId
from broker.model.master.table_change import DEFAULT_DATABASE
from broker.ports.row_schemas import RowSchemas, Shard

REMEMBERED_MAX: Final = 16_384
ABSENT_S: Final = 1.0
"""After this a vchannel of no collection is looked up again: it may have one by now."""


class CollectionNames:
    """One for a server. A vchannel stays of its collection: ids are never used again."""

    def __init__(self, schemas: RowSchemas, cluster: str) -> None:
        self.cluster = Resource(ResourceKind.CLUSTER, cluster)
        self._schemas = schemas
        self._known: OrderedDict[str, tuple[str, float]] = OrderedDict()

    async def channel(self, name: str) -> Resource:
        """The channel, with its collection. Raises Refused(INNER) when the store is silent."""
        if is_physical(name):
            return Resource(ResourceKind.CHANNEL, name)
        return Resource(ResourceKind.CHANNEL, name, await self._collection(name))

    async def target(self, name: str) -> Resource:
        """What a program names: a channel, or a collection of the default database."""
        return Resource(ResourceKind.CHANNEL, name, await self._collection(name) or name)

    async def by_id(self, id: int) -> Resource:
        """The collection of this id, there or not; shown as `#4511`, which does not tell."""
        found = await self._schemas.found(CollectionId(id))
        name = f"#{id}" if found is None else qualified(found.database, found.name)
        return Resource(ResourceKind.COLLECTION, name, shown=f"#{id}")

    async def _collection(self, vchannel: str) -> str:
        if len(vchannel) > VCHANNEL_NAME_LENGTH_MAX:
            return ""  # nor is it remembered: strangers choose such names
        now_s = get_running_loop().time()
        known = self._known.get(vchannel)
        if known is not None and (known[0] or now_s < known[1]):
            return known[0]
        shard = await self._schemas.shard(vchannel)
        name = qualified(shard.database, shard.collection) if isinstance(shard, Shard) else ""
        self._known[vchannel] = name, now_s + ABSENT_S
        if len(self._known) > REMEMBERED_MAX:
            self._known.popitem(last=False)
        return name


def qualified(database: str, name: str) -> str:
    """The name that grants know a collection by: `name`, or `database/name`."""
    return name if database in ("", DEFAULT_DATABASE) else f"{database}/{name}"
