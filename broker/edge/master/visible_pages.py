"""Pages of the collections that the caller sees."""

from collections.abc import Sequence
from typing import Final

from broker.core.security.grants import Resource, ResourceKind
from broker.edge.rpc.access.access import CURRENT, everything
from broker.edge.rpc.access.collection_names import qualified
from broker.model.collection import Collection
from broker.model.failure import Refused, StreamingCode
from broker.ports.master.table_reads import MetaTableReads

READ_AT_ONCE: Final = 1_000


async def visible_page(
    table: MetaTableReads, database: str, after: str, limit: int
) -> Sequence[Collection]:
    """The first `limit` collections of a database by name, after this one, that the caller sees.

    CHANNEL_NOT_EXIST for an unknown database, to who sees everything; else it is as an empty one.
    """
    shows = await CURRENT.get().sight()
    if shows is everything:
        return await table.page(database, after, limit)
    found: list[Collection] = []
    while len(found) < limit:
        try:
            page = await table.page(database, after, READ_AT_ONCE)
        except Refused as refused:
            if refused.refusal.code is StreamingCode.CHANNEL_NOT_EXIST:
                return ()
            raise
        found += [it for it in page if shows(named(it.database, it.name))]
        if len(page) < READ_AT_ONCE:
            break
        after = page[-1].name
    return found[:limit]


def named(database: str, name: str) -> Resource:
    """A collection, or an alias, as grants know it."""
    return Resource(ResourceKind.COLLECTION, qualified(database, name))
