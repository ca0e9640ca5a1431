"""Any change of few names, so that they meet; many of them are refused."""

import random
from collections.abc import Callable

from broker.codec.milvus_schemas import table_schema
from broker.core.naming import vchannel_name
from broker.model.broadcast import Broadcast
from broker.model.collection import RowSchema
from broker.model.ids import CollectionId, PartitionId
from broker.model.master.ddl import (
    AdoptCollection,
    ChangeCompaction,
    ChangeRetention,
    ChangeSchema,
    CreateAlias,
    CreateCollection,
    CreateDatabase,
    CreateIndex,
    CreatePartition,
    Ddl,
    DropAlias,
    DropCollection,
    DropDatabase,
    DropIndex,
    DropPartition,
    GivenBroadcast,
    PlannedRequest,
)
from broker.model.master.fields import Field, FieldType, TableSchema
from broker.model.master.table_change import (
    AddCollection,
    AddDatabase,
    AddPartition,
    Index,
    PointAlias,
    PutIndex,
    RemoveAlias,
    RemoveCollection,
    RemoveDatabase,
    RemoveIndexes,
    RemovePartition,
    TableChange,
)
from broker.model.retention.compaction import Compaction
from broker.model.retention.policy import Retention
from tests.broker.master.simulated_master import PCHANNELS, SimulatedMaster, given_request

VECTOR = Field(100, "vector", FieldType.FLOAT_VECTOR, (("dim", "4"),))
ROWS = (RowSchema(b"arrow", (1,)), RowSchema(b"arrow 2", (1, 2)), RowSchema(b"arrow 3", (1, 2, 3)))
OLD = ("old1", "old2")
"""Collections of an earlier release, with the ids 100 and 101."""
NAMES = ("a", "b", "c", *OLD)
DATABASE = "db"
DATABASE_ID = 7
"""As a client of Milvus makes it."""


def fields(version: int = 0) -> TableSchema:
    """The same fields in some version."""
    return table_schema("any", [VECTOR], version=version)


def some_change(chance: random.Random) -> Ddl:
    """By a program of Tidemark's."""
    name, other = chance.choice(NAMES), chance.choice(NAMES)
    database, part = chance.choice(("", "", "", DATABASE)), chance.choice(("p", "q"))
    rows, table = chance.choice(((ROWS[0], fields()), (None, fields()), (None, None)))
    kept = Retention(0, chance.choice((0, 0, 5000)))
    create = CreateCollection(name, chance.randint(1, 3), rows, table, database, kept)
    params = (("index_type", chance.choice(("HNSW", "FLAT"))),)
    version, old = chance.choice((1, 2)), chance.randrange(2)
    changes: tuple[Ddl, ...] = (
        *(create for _ in range(6)),
        DropCollection(name, database),
        AdoptCollection(OLD[old], CollectionId(100 + old), fields()),
        ChangeSchema(name, ROWS[version - 1], ROWS[version], fields(version), database),
        ChangeRetention(name, chance.choice((None, -1, 1000)), 1 << 20, database),
        ChangeCompaction(name, chance.choice((None, Compaction(1000))), database),
        CreatePartition(name, part, database),
        CreatePartition(name, part, database),
        DropPartition(name, part, database),
        CreateIndex(name, "vector", params, chance.choice(("", "i")), database),
        DropIndex(name, "vector", chance.choice(("", "i")), database),
        CreateAlias(name, f"{other}_alias", chance.random() < 0.5, database),
        CreateAlias(name, other, chance.random() < 0.5, database),
        DropAlias(f"{other}_alias", database),
        CreateDatabase(DATABASE),
        CreateDatabase(DATABASE),
        DropDatabase(DATABASE),
    )
    return chance.choice(changes)


def some_given_change(chance: random.Random, master: SimulatedMaster, key: str) -> PlannedRequest:
    """By a client of Milvus, which has chosen every id: of what there is or was, or a new one."""
    made = [it for it, _ in master.logs.changes() if isinstance(it, AddCollection)]
    if not made or chance.random() < 0.4:
        # Some are ids that Tidemark is about to give.
        id = CollectionId(chance.choice((chance.randint(100, 112), chance.randint(5000, 5003))))
        return given_request(_creation(chance, id), key)
    it = chance.choice(made)
    name, database, part = it.name, it.database, chance.choice(("p", "q"))
    partition = PartitionId(chance.randint(10, 14))
    alias = chance.choice((f"{name}_alias", chance.choice(NAMES)))
    index = Index(chance.randint(1, 3), "given", "", 100, (("index_type", "GIVEN"),))
    changes: tuple[TableChange, ...] = (
        RemoveCollection(it.id, name, database),
        AddPartition(it.id, name, database, part, partition),
        AddPartition(it.id, name, database, part, partition),
        RemovePartition(it.id, name, database, part, partition),
        PointAlias(database, alias, it.id, name),
        RemoveAlias(database, alias),
        PutIndex(it.id, name, database, index),
        RemoveIndexes(it.id, name, database, (index.id,)),
        AddDatabase(DATABASE, DATABASE_ID),
        RemoveDatabase(DATABASE, DATABASE_ID),
    )
    change = chance.choice(changes)
    # On its vchannels only what waits for other changes of the collection.
    ordered = not isinstance(change, RemoveAlias | AddDatabase | RemoveDatabase)
    return given_request(change, key, it.vchannels if ordered else ())


def some_clash(chance: random.Random, key: str) -> Broadcast:
    """A creation that is broadcast unchecked, as by an earlier release; its id is new."""
    id = CollectionId(chance.randint(10_000, 1 << 40))
    ddl = given_request(_creation(chance, id), key).ddl
    assert isinstance(ddl, GivenBroadcast)
    return ddl.broadcast


def _creation(chance: random.Random, id: CollectionId) -> AddCollection:
    vchannels = (vchannel_name(chance.choice(PCHANNELS), id, 0),)
    partitions = (("_default", PartitionId((1 << 50) + id)),)
    table: Callable[[], TableSchema | None] = chance.choice((fields, lambda: None))
    return AddCollection("", chance.choice(NAMES), id, vchannels, partitions, None, table())
