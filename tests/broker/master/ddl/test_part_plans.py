"""How many partitions and indexes a collection may have."""

import pytest

from broker.codec.milvus_schemas import table_schema
from broker.master.ddl.part_plans import INDEXES_MAX, PARTITIONS_MAX, PartPlans
from broker.master.table.apply_change import ChangeWriter
from broker.master.table.table_records import TableRecords
from broker.meta.memory_store import MemoryMetaStore
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import CollectionId, PartitionId, TimeTick
from broker.model.master.ddl import CreateIndex, CreatePartition
from broker.model.master.fields import Field, FieldType
from broker.model.master.id_range import IdRange
from broker.model.master.table_change import (
    AddCollection,
    AddPartition,
    Index,
    PutIndex,
    RemoveIndexes,
    RemovePartition,
    TableChange,
)

ROWS, TICK = CollectionId(100), TimeTick(1 << 20)
VECTOR = Field(100, "vector", FieldType.FLOAT_VECTOR, (("dim", "8"),))
PARAMS = (("index_type", "HNSW"),)


class OneId:
    """See IdSource; the same id each time."""

    async def take(self, count: int = 1) -> IdRange:
        return IdRange(1_000_000, count)


class Table:
    """A table with one collection, and the plans of what belongs to it."""

    def __init__(self) -> None:
        store = MemoryMetaStore()
        self._writer = ChangeWriter(store)
        self.plans = PartPlans(TableRecords(store), OneId())

    async def apply(self, *changes: TableChange) -> None:
        for each in changes:
            await self._writer.apply(each, TICK)


async def a_table() -> Table:
    table, first = Table(), (("_default", PartitionId(1)),)
    schema = table_schema("rows", (VECTOR,))
    await table.apply(AddCollection("", "rows", ROWS, (), first, table=schema))
    return table


def partition(number: int) -> AddPartition:
    return AddPartition(ROWS, "rows", "", f"p{number}", PartitionId(1 + number))


async def test_one_partition_more_than_4096_is_refused_until_another_is_dropped() -> None:
    table = await a_table()
    *most, last = [partition(it) for it in range(1, PARTITIONS_MAX)]  # `_default` is one
    await table.apply(*most)
    await table.plans.plan(CreatePartition("rows", "one_more"))
    await table.apply(last)
    with pytest.raises(Refused, match="'rows' has 4096 partitions, the most allowed") as refused:
        await table.plans.plan(CreatePartition("rows", "one_more"))
    assert refused.value.refusal.code is StreamingCode.INVALID_ARGUMENT
    await table.apply(RemovePartition(ROWS, "rows", "", last.name, last.id))
    await table.plans.plan(CreatePartition("rows", "one_more"))


async def test_one_index_more_than_1024_is_refused_until_another_is_dropped() -> None:
    table = await a_table()
    for it in range(INDEXES_MAX):
        params = (("index_type", "HNSW"), ("number", f"{it}"))
        index = Index(2000 + it, f"i{it}", VECTOR.name, VECTOR.id, params)
        await table.apply(PutIndex(ROWS, "rows", "", index))
    with pytest.raises(Refused, match="'rows' has 1024 indexes, the most allowed"):
        await table.plans.plan(CreateIndex("rows", "vector", PARAMS))
    await table.apply(RemoveIndexes(ROWS, "rows", "", (2000,)))
    await table.plans.plan(CreateIndex("rows", "vector", PARAMS))
