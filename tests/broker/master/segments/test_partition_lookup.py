"""Collections and partitions, found in the meta table and in what logs say."""

import pytest

from broker.coordinator.catalog.collection_records import ensure_indexes
from broker.core.master.reservations import ROW_BYTES
from broker.core.master.segment_records import records_of
from broker.core.naming import vchannel_name
from broker.master.segments.partition_lookup import FoundPartition, KnownPartitions
from broker.master.table.apply_change import ChangeWriter
from broker.meta.memory_store import MemoryMetaStore
from broker.model.failure import Refused
from broker.model.ids import CollectionId, MessageId, PartitionId, PChannelName, TimeTick
from broker.model.master.fields import Field, FieldType, TableSchema
from broker.model.master.table_change import (
    AddCollection,
    AddPartition,
    Index,
    PutIndex,
    RemoveCollection,
    RemovePartition,
)
from broker.model.snapshot import SnapshotChange, VChannelSnapshot, VChannelState, WalCheckpoint

ID = CollectionId(1_000_001)
VCHANNEL = vchannel_name(PChannelName("by-dev-rootcoord-dml_0"), ID, 0)
A, B = PartitionId(11), PartitionId(12)
FIELDS = (
    Field(100, "id", FieldType.INT64, primary=True),
    Field(101, "vector", FieldType.FLOAT_VECTOR, params=(("dim", "4"),)),
)


async def table(*partitions: tuple[str, PartitionId], schema: bool) -> MemoryMetaStore:
    """A meta table with the collection `rows`."""
    store = MemoryMetaStore()
    await ensure_indexes(store)
    fields = TableSchema(FIELDS, b"") if schema else None
    added = AddCollection("", "rows", ID, (VCHANNEL,), partitions, table=fields)
    await ChangeWriter(store).apply(added, TimeTick(5))
    return store


async def log(store: MemoryMetaStore) -> None:
    """Its log has a collection of the same id with partitions A and B."""
    normal = VChannelState.NORMAL
    vchannel = VChannelSnapshot(VCHANNEL, ID, normal, (A, B), (), TimeTick(1), TimeTick(1))
    change = SnapshotChange(WalCheckpoint(MessageId(1), TimeTick(1)), vchannels=(vchannel,))
    puts, _ = records_of(change)
    await store.write(puts)


async def test_partitions_are_found_by_name_with_the_size_of_their_rows() -> None:
    store = await table(("_default", A), ("late", B), schema=True)
    known = KnownPartitions(store)
    # RowID, Timestamp, an int64 and a vector of four floats.
    assert await known.find("", "rows", "") == FoundPartition(ID, A, "_default", 40)
    assert await known.find("", "rows", "late") == FoundPartition(ID, B, "late", 40)
    assert await known.partitions_of(ID) == {A, B}
    for collection, partition in (("rows", "unknown"), ("unknown", "")):
        with pytest.raises(Refused, match="unknown"):
            await known.find("", collection, partition)


async def test_a_collection_that_the_log_announced_has_the_partitions_of_its_log() -> None:
    store = await table(schema=False)
    known = KnownPartitions(store)
    assert await known.partitions_of(ID) == frozenset()
    with pytest.raises(Refused, match="_default"):
        await known.find("", "rows", "")
    await log(store)
    assert await known.find("", "rows", "") == FoundPartition(ID, A, "_default", ROW_BYTES)
    assert await known.partitions_of(ID) == {A, B}
    with pytest.raises(Refused, match="late"):
        await known.find("", "rows", "late")


async def test_a_collection_of_a_log_alone_has_its_partitions_and_an_unknown_one_has_none() -> None:
    store = MemoryMetaStore()
    await ensure_indexes(store)
    assert await KnownPartitions(store).partitions_of(ID) is None
    await log(store)
    assert await KnownPartitions(store).partitions_of(ID) == {A, B}


async def test_segments_have_the_oldest_index_of_their_collection() -> None:
    store = await table(("_default", A), schema=True)
    known = KnownPartitions(store)
    assert await known.index_of(ID) == 0
    for id in (70, 60):
        index = Index(id, f"index {id}", "vector", 101, (("metric", str(id)),))
        await ChangeWriter(store).apply(PutIndex(ID, "rows", "", index), TimeTick(id))
    assert await known.index_of(ID) == 60


async def test_the_number_of_removals_grows_with_each_partition_or_collection_that_is_gone() -> (
    None
):
    store = await table(("_default", A), ("late", B), schema=False)
    known, tick = KnownPartitions(store), TimeTick(9)
    seen = [await known.removals()]
    for change in (
        AddPartition(ID, "rows", "", "early", PartitionId(80)),
        RemovePartition(ID, "rows", "", "late", B),
        RemovePartition(ID, "rows", "", "late", B),  # applied already
        RemoveCollection(ID, "rows", ""),
    ):
        await ChangeWriter(store).apply(change, tick)
        seen.append(await known.removals())
    assert seen[0] == seen[1] < seen[2] == seen[3] < seen[4]
