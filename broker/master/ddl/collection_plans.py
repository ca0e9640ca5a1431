"""Plans of collections and databases: names, ids, and the least loaded pchannels for shards."""

from collections.abc import Sequence
from typing import assert_never

from broker.coordinator.catalog.messages import NameTaken
from broker.coordinator.records import FIRST_COLLECTION_ID
from broker.core.cluster.shard_placement import SHARDS_MAX, place_shards
from broker.core.master.planned_collections import PlannedCollections
from broker.core.master.table_names import shown
from broker.core.naming import collection_name_refusal, vchannel_name
from broker.core.space.retention_limits import changed_retention
from broker.master.table.table_records import TableRecords
from broker.model.collection import Collection
from broker.model.failure import Refused, StreamingCode, invalid_argument
from broker.model.ids import CollectionId, PartitionId, PChannelName, VChannelName
from broker.model.master.ddl import (
    AdoptCollection,
    ChangeCompaction,
    ChangeRetention,
    ChangeSchema,
    CreateCollection,
    CreateDatabase,
    DropCollection,
    DropDatabase,
)
from broker.model.master.table_change import (
    DEFAULT_PARTITION,
    AddCollection,
    AddDatabase,
    AlterCompaction,
    AlterRetention,
    AlterSchema,
    RemoveCollection,
    RemoveDatabase,
    TableChange,
)
from broker.ports.id_source import IdSource

NONE: Sequence[VChannelName] = ()


class OutdatedSchema(Refused):
    """The schema is not the one that the request was made for: read it, and try again."""


class CollectionPlans:
    """Remembers the ids and vchannels of collections that are planned and not yet applied."""

    def __init__(
        self, records: TableRecords, pchannels: Sequence[PChannelName], ids: IdSource
    ) -> None:
        self._records = records
        self._pchannels = tuple(pchannels)
        self._ids = ids
        self._next_id = CollectionId(FIRST_COLLECTION_ID)
        self._planned = PlannedCollections()

    @property
    def next_id(self) -> CollectionId:
        """What the next collection gets as its id, unless a client of Milvus has taken it."""
        return self._next_id

    def reserve(
        self, request_key: str, id: CollectionId, vchannels: Sequence[VChannelName]
    ) -> None:
        """The broadcast of this request creates a collection, which the records do not have yet."""
        self._planned.add(request_key, id, vchannels)

    def release(self, request_key: str) -> None:
        """The records have it, or it never came to be."""
        self._planned.remove(request_key)

    async def plan(
        self,
        ddl: CreateCollection
        | AdoptCollection
        | DropCollection
        | ChangeSchema
        | ChangeRetention
        | ChangeCompaction,
    ) -> tuple[TableChange, Sequence[VChannelName]]:
        """The change, and the vchannels that get a copy. Refused, MetaError."""
        match ddl:
            case CreateCollection():
                return await self._create(ddl)
            case AdoptCollection():
                return await self._adopt(ddl)
            case DropCollection(name, database):
                dropped = await self._existing(database, name)
                change = RemoveCollection(dropped.id, name, database)
                return change, await self._announced(dropped)
            case ChangeSchema():
                return await self._change(ddl)
            case ChangeRetention():
                return await self._change_retention(ddl), NONE
            case ChangeCompaction(name, compaction, database):
                found = await self._existing(database, name)
                return AlterCompaction(found.id, name, database, compaction), NONE
            case _:
                assert_never(ddl)

    async def plan_database(self, ddl: CreateDatabase | DropDatabase) -> TableChange:
        """The change. Refused, MetaError."""
        name = ddl.database
        known = await self._records.database(name)
        if isinstance(ddl, CreateDatabase):
            if known is not None:
                raise invalid_argument(f"database {shown(name or 'default')} exists already")
            return AddDatabase(name, (await self._ids.take()).first)
        if not name:
            raise invalid_argument("the default database cannot be dropped")
        if known is None:
            raise no_database(name)
        await self.check_empty(name)
        return RemoveDatabase(name, known)

    async def check_empty(self, database: str) -> None:
        """Refused for a database that has collections. MetaError."""
        if await self._records.has_collections(database):
            raise invalid_argument(
                f"database {shown(database)} has collections; drop them before the database"
            )

    async def taken_by(self, change: AddCollection) -> Refused | None:
        """Why a collection with a given name and id cannot be created; None if it can."""
        database, name = change.database, change.name
        if change.id in self._planned:
            return invalid_argument(f"id {change.id} is of a collection that is being created")
        found = await self._records.collection(database, name)
        if found is not None and found.id != change.id:
            return NameTaken(found)
        owner = await self._records.collections.by_id(change.id)
        if owner is not None and (owner.name, owner.database) != (name, database):
            return invalid_argument(f"id {change.id} is of collection '{owner.name}'")
        if owner is None and await self._records.collections.was_dropped(change.id):
            return invalid_argument(f"id {change.id} is of a collection that was dropped")
        return None

    async def _create(self, ddl: CreateCollection) -> tuple[TableChange, Sequence[VChannelName]]:
        name, database = ddl.name, ddl.database
        if refusal := collection_name_refusal(name):
            raise Refused(refusal.code, refusal.cause)
        if not 1 <= ddl.shards <= SHARDS_MAX:
            raise invalid_argument(
                f"collection '{name}': the number of shards must be 1 to {SHARDS_MAX},"
                f" not {ddl.shards}"
            )
        if await self._records.database(database) is None:
            raise no_database(database)
        taken = await self._records.resolved(database, name)
        if taken is not None and taken.name == name:
            raise NameTaken(taken)
        if taken is not None:
            raise invalid_argument(f"'{name}' is an alias of collection '{taken.name}'")
        id = await self._free_id()
        vchannels = await self._placed(id, ddl.shards)
        partition = PartitionId((await self._ids.take()).first)
        change = AddCollection(
            database,
            name,
            id,
            vchannels,
            ((DEFAULT_PARTITION, partition),),
            ddl.schema,
            ddl.table,
            ddl.retention,
            ddl.compaction,
        )
        return change, NONE if ddl.table is None else vchannels

    async def _adopt(self, ddl: AdoptCollection) -> tuple[TableChange, Sequence[VChannelName]]:
        found = await self._existing("", ddl.name)
        if found.id != ddl.id or found.announced:
            raise Refused(
                StreamingCode.IGNORED_OPERATION, f"collection '{ddl.name}' is announced already"
            )
        if found.schema != ddl.schema:
            raise _outdated(ddl.name)
        partition = PartitionId((await self._ids.take()).first)
        change = AddCollection(
            "",
            found.name,
            found.id,
            found.vchannels,
            ((DEFAULT_PARTITION, partition),),
            found.schema,
            ddl.table,
        )
        return change, NONE if ddl.table is None else found.vchannels

    async def _change(self, ddl: ChangeSchema) -> tuple[TableChange, Sequence[VChannelName]]:
        found = await self._existing(ddl.database, ddl.name)
        if found.schema != ddl.before:
            raise _outdated(ddl.name)
        change = AlterSchema(found.id, found.name, found.database, ddl.after, ddl.table)
        # To the control channel alone: on a vchannel it would end every open transaction, and each
        # batch that is staged and not committed. Rows name their version of the schema themselves,
        # and the log does not check it.
        return change, NONE

    async def _change_retention(self, ddl: ChangeRetention) -> TableChange:
        found = await self._existing(ddl.database, ddl.name)
        limits = changed_retention(ddl.name, found.retention, ddl.retention_ms, ddl.retention_bytes)
        return AlterRetention(found.id, found.name, found.database, limits)

    async def _announced(self, collection: Collection) -> Sequence[VChannelName]:
        return told(collection, await self._records.schema(collection.id))

    async def _existing(self, database: str, name: str) -> Collection:
        found = await self._records.collection(database, name)
        if found is None:
            raise no_collection(name)
        return found

    async def _free_id(self) -> CollectionId:
        """The next id that no collection has, had, or will have by a change under way."""
        counted = (await self._records.collections.next_id()).id
        id = CollectionId(max(self._next_id, counted))
        while id in self._planned or await self._records.collections.is_known(id):
            id = CollectionId(id + 1)
        self._next_id = CollectionId(id + 1)
        return id

    async def _placed(self, id: CollectionId, shards: int) -> tuple[VChannelName, ...]:
        stored, planned = (await self._records.collections.loads()).vchannels, self._planned
        uses = {it: stored.get(it, 0) + planned.vchannels(it) for it in self._pchannels}
        placed = place_shards(uses, shards)
        return tuple(vchannel_name(pchannel, id, shard) for shard, pchannel in enumerate(placed))


def told(collection: Collection, fields: object | None) -> Sequence[VChannelName]:
    """The vchannels that get a change: those where the collection was announced.

    One without fields is a plain log, whose rows need no segments: it pays nothing for them.
    """
    return NONE if fields is None or not collection.announced else collection.vchannels


def announced(collection: Collection) -> Collection:
    """The collection. Refused for one of an earlier release that is not adopted yet."""
    if not collection.announced:
        raise Refused(
            StreamingCode.RESOURCE_ACQUIRED,
            f"collection '{collection.name}' is of an earlier release and will be announced in the"
            " background: until then it can have no partitions, indexes or aliases; try again in a"
            " moment, and read the broker's log if it stays so",
        )
    return collection


def _outdated(name: str) -> OutdatedSchema:
    cause = f"the schema of collection '{name}' has changed; try again"
    return OutdatedSchema(StreamingCode.RESOURCE_ACQUIRED, cause)


def no_collection(name: str) -> Refused:
    """The refusal of a change of a collection that does not exist."""
    cause = f"there is no collection {shown(name)}"
    return Refused(StreamingCode.CHANNEL_NOT_EXIST, cause)


def no_database(name: str) -> Refused:
    """The refusal of a change in a database that does not exist."""
    cause = f"there is no database {shown(name)}; create it first"
    return Refused(StreamingCode.CHANNEL_NOT_EXIST, cause)
