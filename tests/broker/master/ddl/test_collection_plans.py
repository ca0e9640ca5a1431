"""What a plan of a collection costs."""

import sys

from broker.core.naming import pchannel_names, vchannel_name
from broker.master.ddl.collection_plans import CollectionPlans
from broker.master.table.table_records import TableRecords
from broker.meta.memory_store import MemoryMetaStore
from broker.model.ids import CollectionId
from broker.model.master.ddl import CreateCollection
from broker.model.master.id_range import IdRange

PCHANNELS = pchannel_names("by-dev", 4)


class OneId:
    """See IdSource; the same id each time."""

    async def take(self, count: int = 1) -> IdRange:
        return IdRange(1, count)


async def calls_of_a_plan(under_way: int) -> int:
    plans = CollectionPlans(TableRecords(MemoryMetaStore()), PCHANNELS, OneId())
    for id in map(CollectionId, range(1000, 1000 + under_way)):
        plans.reserve(f"{id}", id, [vchannel_name(PCHANNELS[id % 4], id, 0)])
    calls = 0

    def count(_frame: object, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        await plans.plan(CreateCollection("one_more", 2))
    finally:
        sys.setprofile(None)
    return calls


async def test_a_plan_costs_the_same_however_many_creations_are_under_way() -> None:
    assert await calls_of_a_plan(2000) < 1.2 * await calls_of_a_plan(10)
