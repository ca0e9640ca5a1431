"""Fills a new data folder with collections, without a broker.

The master's own code writes the records, into memory; they are copied to the store of the folder.
So 10,000 collections take seconds instead of minutes.
"""

import time
from pathlib import Path

from broker.codec.milvus_schemas import table_schema
from broker.coordinator.catalog.collection_records import LOADS_KEY
from broker.coordinator.records import COLLECTION_ID_KEY, FIRST_COLLECTION_ID
from broker.core.master.id_window import FIRST_ID
from broker.core.naming import pchannel_names, vchannel_name
from broker.data_folder import hold
from broker.master.table.apply_change import ChangeWriter
from broker.meta.memory_store import MemoryMetaStore
from broker.meta.sqlite import SqliteMetaStore
from broker.model.ids import TICK_LOGICAL_BITS, CollectionId, PartitionId, TimeTick
from broker.model.master.fields import FIRST_USER_FIELD_ID, Field, FieldType
from broker.model.master.table_change import DEFAULT_PARTITION, AddCollection
from broker.ports.meta_writes import all_entries, split_write

CLUSTER, PCHANNELS = "by-dev", 16
"""As a broker has them that is started without options."""
TABLE = table_schema(
    "items",
    [
        Field(FIRST_USER_FIELD_ID, "id", FieldType.INT64, primary=True),
        Field(FIRST_USER_FIELD_ID + 1, "vector", FieldType.FLOAT_VECTOR, (("dim", "128"),)),
    ],
)
"""The fields of each collection."""


async def store_collections(folder: Path, count: int) -> None:
    """Make a data folder in which so many collections were created: `stored_name(0)` and so on."""
    memory = MemoryMetaStore()
    writer, pchannels = ChangeWriter(memory), pchannel_names(CLUSTER, PCHANNELS)
    tick = TimeTick(int(time.time() * 1000) << TICK_LOGICAL_BITS)
    for number in range(count):
        id = CollectionId(FIRST_COLLECTION_ID + number)
        created = AddCollection(
            database="",
            name=stored_name(number),
            id=id,
            vchannels=(vchannel_name(pchannels[number % PCHANNELS], id, 0),),
            partitions=((DEFAULT_PARTITION, PartitionId(FIRST_ID - count + number)),),
            table=TABLE,
        )
        await writer.apply(created, TimeTick(tick + number))
    puts = {key: entry.value async for key, entry in all_entries(memory, "", page=1000)}
    for key in (COLLECTION_ID_KEY, LOADS_KEY):
        puts[key] = puts.pop(key)  # last: records older than the loads count as indexed
    with hold(folder) as data:
        async with await SqliteMetaStore.open(data.metadata) as store:
            for some, _ in split_write(puts):
                await store.write(some)


def stored_name(number: int) -> str:
    """The name of a collection, from 0."""
    return f"stored_{number:05d}"
