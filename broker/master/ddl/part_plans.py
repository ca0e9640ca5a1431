"""Plans of what a collection has: partitions, indexes and aliases."""

from collections.abc import Sequence
from typing import Final, assert_never

from broker.core.master.index_rules import dropped_indexes, indexed_field, planned_index
from broker.core.master.table_names import checked_partition, shown
from broker.core.naming import collection_name_refusal
from broker.master.ddl.collection_plans import announced, no_collection, told
from broker.master.table.table_records import TableRecords
from broker.model.collection import Collection
from broker.model.failure import Refused, StreamingCode, invalid_argument
from broker.model.ids import PartitionId, VChannelName
from broker.model.master.ddl import (
    CreateAlias,
    CreateIndex,
    CreatePartition,
    DropAlias,
    DropIndex,
    DropPartition,
)
from broker.model.master.table_change import (
    DEFAULT_PARTITION,
    AddPartition,
    PointAlias,
    PutIndex,
    RemoveAlias,
    RemoveIndexes,
    RemovePartition,
    TableChange,
)
from broker.ports.id_source import IdSource

PARTITIONS_MAX: Final = 4096
INDEXES_MAX: Final = 1024
Part = CreatePartition | DropPartition | CreateIndex | DropIndex | CreateAlias | DropAlias


class PartPlans:
    """Checks a change against the records, and takes its ids."""

    def __init__(self, records: TableRecords, ids: IdSource) -> None:
        self._records = records
        self._ids = ids

    async def plan(self, ddl: Part) -> tuple[TableChange, Sequence[VChannelName]]:
        """The change, and the vchannels that get a copy. Refused, MetaError."""
        match ddl:
            case CreatePartition() | DropPartition():
                return await self._partition(ddl)
            case CreateIndex():
                return await self._create_index(ddl), ()
            case DropIndex(collection, database=database):
                found = await self._existing(database, collection)
                known = await self._records.indexes(found.id)
                ids = dropped_indexes(ddl, known)
                return RemoveIndexes(found.id, found.name, database, ids), ()
            case CreateAlias():
                return await self._create_alias(ddl), ()
            case DropAlias(alias, database):
                id = await self._records.aliased(database, alias)
                if id is None or await self._records.collections.by_id(id) is None:
                    raise _no_alias(alias)
                return RemoveAlias(database, alias), ()
            case _:
                assert_never(ddl)

    async def _partition(
        self, ddl: CreatePartition | DropPartition
    ) -> tuple[TableChange, Sequence[VChannelName]]:
        name, database = checked_partition(ddl.partition), ddl.database
        found = await self._existing(database, ddl.collection)
        if isinstance(ddl, DropPartition) and name == DEFAULT_PARTITION:
            raise invalid_argument("the default partition cannot be deleted")
        known = await self._records.partition(found.id, name)
        fields = await self._records.schema(found.id)
        places, of_rows = told(found, fields), found.schema is not None
        if isinstance(ddl, DropPartition):
            if known is None:
                raise Refused(
                    StreamingCode.CHANNEL_NOT_EXIST,
                    f"collection '{found.name}' has no partition {shown(name)}",
                )
            return (
                RemovePartition(found.id, found.name, database, name, known, of_rows),
                places,
            )
        if known is not None:
            raise invalid_argument(
                f"partition {shown(name)} of collection '{found.name}' exists already"
            )
        if await self._records.partition_count(found.id) >= PARTITIONS_MAX:
            raise invalid_argument(
                f"collection '{found.name}' has {PARTITIONS_MAX} partitions, the most allowed"
            )
        id = PartitionId((await self._ids.take()).first)
        return AddPartition(found.id, found.name, database, name, id, of_rows), places

    async def _create_index(self, ddl: CreateIndex) -> TableChange:
        found = await self._existing(ddl.database, ddl.collection)
        schema = await self._records.schema(found.id)
        if schema is None:
            raise invalid_argument(f"collection '{found.name}' has no schema, so it has no fields")
        field = indexed_field(ddl.field, schema.fields)
        known = await self._records.indexes(found.id)
        if len(known) >= INDEXES_MAX:
            raise invalid_argument(
                f"collection '{found.name}' has {INDEXES_MAX} indexes, the most allowed"
            )
        new_id = (await self._ids.take()).first
        index, renamed = planned_index(ddl, field, known, new_id)
        return PutIndex(found.id, found.name, ddl.database, index, renamed)

    async def _create_alias(self, ddl: CreateAlias) -> TableChange:
        if refusal := collection_name_refusal(ddl.alias):
            raise Refused(refusal.code, refusal.cause.replace("collection name", "alias", 1))
        found = await self._existing(ddl.database, ddl.collection)
        if await self._records.collection(ddl.database, ddl.alias) is not None:
            raise invalid_argument(f"'{ddl.alias}' is the name of a collection")
        known = await self._records.resolved(ddl.database, ddl.alias)
        if known is not None and known.id != found.id and not ddl.alter:
            raise invalid_argument(
                f"'{ddl.alias}' is an alias of collection '{known.name}' already; alter it"
            )
        return PointAlias(ddl.database, ddl.alias, found.id, found.name)

    async def _existing(self, database: str, name: str) -> Collection:
        found = await self._records.collection(database, name)
        if found is None:
            raise no_collection(name)
        return announced(found)


def _no_alias(alias: str) -> Refused:
    return Refused(StreamingCode.CHANNEL_NOT_EXIST, f"there is no alias {shown(alias)}")
