"""Reads the meta table from the metadata store."""

from collections.abc import Awaitable, Sequence
from typing import TypeVar

from broker.core.master.table_names import shown
from broker.master.table.table_records import TableRecords
from broker.model.collection import Collection
from broker.model.failure import Refused, StreamingCode, invalid_argument
from broker.model.ids import CollectionId, PartitionId
from broker.model.master.clash import Clash
from broker.model.master.table_change import Index
from broker.ports.master.table_reads import Description
from broker.ports.meta import MetaError, MetaStore

T = TypeVar("T")


class StoredTable:
    """See `broker.ports.master.table_reads.MetaTableReads`."""

    def __init__(self, store: MetaStore) -> None:
        self._records = TableRecords(store)

    async def has_collection(self, database: str, name: str) -> bool:
        """See MetaTableReads."""
        return await _read(self._records.resolved(database, name)) is not None

    async def describe(self, database: str, name: str, id: CollectionId) -> Description:
        """See MetaTableReads."""
        found = await self._existing(database, name, id)
        records = self._records
        database_id = await _read(records.database(found.database))
        return Description(
            found,
            database_id or 0,
            await _read(records.schema(found.id)),
            tuple(await _read(records.aliases_of(found.id))),
            await _read(records.partition_count(found.id)),
        )

    async def page(self, database: str, after: str, limit: int) -> Sequence[Collection]:
        """See MetaTableReads."""
        await self._check_database(database)
        return await _read(self._records.collections.page(after, limit, database))

    async def partition(self, database: str, collection: str, name: str) -> PartitionId | None:
        """See MetaTableReads."""
        found = await self._existing(database, collection)
        return await _read(self._records.partition(found.id, name))

    async def partitions(self, database: str, collection: str) -> Sequence[tuple[str, PartitionId]]:
        """See MetaTableReads."""
        found = await self._existing(database, collection)
        return await _read(self._records.partitions(found.id))

    async def indexes(self, database: str, collection: str, field: str) -> Sequence[Index]:
        """See MetaTableReads."""
        found = await self._existing(database, collection)
        known = await _read(self._records.indexes(found.id))
        if not field:
            return known
        schema = await _read(self._records.schema(found.id))
        names = {} if schema is None else {it.name: it.id for it in schema.fields}
        if field not in names:
            raise invalid_argument(f"collection '{found.name}' has no field {shown(field)}")
        # By the id: a client of Milvus names no field in its message.
        return [it for it in known if it.field_id == names[field]]

    async def aliases(self, database: str, collection: str) -> Sequence[tuple[str, str]]:
        """See MetaTableReads."""
        if collection:
            found = await self._existing(database, collection)
            return [(it, found.name) for it in await _read(self._records.aliases_of(found.id))]
        await self._check_database(database)
        pairs = []
        for alias, id in await _read(self._records.aliases(database)):
            name = await _read(self._records.collections.name_of(id))
            if name is not None:  # else it was dropped, and the alias goes soon
                pairs.append((alias, name))
        return pairs

    async def database(self, name: str) -> int:
        """See MetaTableReads."""
        return await _read(self._records.database(name)) or 0

    async def databases(self) -> Sequence[tuple[str, int]]:
        """See MetaTableReads."""
        return await _read(self._records.databases())

    async def partition_counts(
        self, after: CollectionId, limit: int
    ) -> Sequence[tuple[CollectionId, int]]:
        """See MetaTableReads."""
        return await _read(self._records.partition_counts(after, limit))

    async def clashes(self, after: str = "", limit: int = 100) -> Sequence[Clash]:
        """See MetaTableReads."""
        found = await _read(self._records.clashes(after, limit))
        return [Clash(id, cause) for id, cause in found]

    async def _check_database(self, name: str) -> None:
        if await _read(self._records.database(name)) is None:
            raise Refused(StreamingCode.CHANNEL_NOT_EXIST, f"there is no database {shown(name)}")

    async def _existing(
        self, database: str, name: str, id: CollectionId = CollectionId(0)
    ) -> Collection:
        if name:
            found = await _read(self._records.resolved(database, name))
        else:
            found = await _read(self._records.collections.by_id(id))
        if found is None:
            what = shown(name) if name else f"with id {id}"
            raise Refused(StreamingCode.CHANNEL_NOT_EXIST, f"there is no collection {what}")
        return found


async def _read(call: Awaitable[T]) -> T:
    try:
        return await call
    except MetaError as error:
        raise Refused(StreamingCode.INNER, str(error)) from error
