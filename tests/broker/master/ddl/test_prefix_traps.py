"""Ids that begin with the same digits: what is dropped of one takes nothing of another."""

from broker.codec.milvus_schemas import table_schema
from broker.master.segments.segment_book import SegmentBook
from broker.master.table.apply_change import ChangeWriter
from broker.master.table.leftovers import remove_leftovers
from broker.master.table.table_records import TableRecords
from broker.meta.memory_store import MemoryMetaStore
from broker.model.ids import CollectionId, PartitionId, SegmentId, TimeTick, VChannelName
from broker.model.master.fields import Field, FieldType
from broker.model.master.segment_meta import SegmentMeta, SegmentMetaState, SegmentOrigin
from broker.model.master.table_change import (
    AddCollection,
    AddPartition,
    Index,
    PointAlias,
    PutIndex,
    RemoveCollection,
    RemovePartition,
)

IDS = [CollectionId(it) for it in (200, 2000, 20001)]
TICK = TimeTick(1 << 20)
VECTOR = Field(100, "vector", FieldType.FLOAT_VECTOR, (("dim", "8"),))


def segment(collection: CollectionId, partition: int) -> SegmentMeta:
    return SegmentMeta(
        id=SegmentId(collection * 10 + partition),
        collection_id=collection,
        partition_id=PartitionId(partition),
        partition_tag="",
        channel_start=0,
        channel_end=0,
        open_tick=TICK,
        close_tick=TimeTick(0),
        rows=1,
        size_bytes=1,
        modified_tick=TICK,
        state=SegmentMetaState.GROWING,
        origin=SegmentOrigin.RESERVED,
    )


async def facts(store: MemoryMetaStore, id: CollectionId) -> tuple[object, ...]:
    """Everything that the table has of one collection."""
    records, book = TableRecords(store), SegmentBook(store)
    return (
        await records.collections.by_id(id),
        await records.schema(id),
        await records.partitions(id),
        await records.partition_count(id),
        await records.aliases_of(id),
        await records.indexes(id),
        await book.page(id, None, SegmentId(0), 100),
    )


async def table() -> MemoryMetaStore:
    store = MemoryMetaStore()
    writer = ChangeWriter(store)
    for id in IDS:
        name, first = f"c{id}", (("_default", PartitionId(1)),)
        vchannels = (VChannelName(f"dml_0_{id}v0"),)
        schema = table_schema(name, (VECTOR,))
        await writer.apply(AddCollection("", name, id, vchannels, first, table=schema), TICK)
        await writer.apply(AddPartition(id, name, "", "p", PartitionId(20)), TICK)
        await writer.apply(AddPartition(id, name, "", "p0", PartitionId(200)), TICK)
        await writer.apply(PointAlias("", f"{name}_alias", id, name), TICK)
        index = Index(7, "_default_idx", "vector", 100, (("index_type", "HNSW"),))
        await writer.apply(PutIndex(id, name, "", index), TICK)
        await SegmentBook(store).put([segment(id, it) for it in (1, 2, 20)], 1)
    return store


async def test_what_is_dropped_takes_nothing_of_one_whose_id_begins_with_the_same_digits() -> None:
    store = await table()
    others = {id: await facts(store, id) for id in IDS[1:]}
    await ChangeWriter(store).apply(RemoveCollection(IDS[0], f"c{IDS[0]}", ""), TICK)
    await remove_leftovers(store, IDS[0])
    assert {id: await facts(store, id) for id in IDS[1:]} == others
    gone = await facts(store, IDS[0])
    assert gone[:6] == (None, None, [], 0, [], [])


async def test_a_dropped_partition_takes_nothing_of_one_whose_name_begins_as_its_own() -> None:
    store = await table()
    id = IDS[0]
    await ChangeWriter(store).apply(RemovePartition(id, f"c{id}", "", "p", PartitionId(20)), TICK)
    records = TableRecords(store)
    assert dict(await records.partitions(id)) == {"_default": 1, "p0": 200}
    assert await records.partition_count(id) == 2
    page = await SegmentBook(store).page(id, PartitionId(2), SegmentId(0), 100)
    assert [it.partition_id for it in page] == [2]
