"""Which vchannels take messages, which take rows, and how soon a drop is noticed."""

import anyio
import pytest

from broker.edge.tidemark.shard_admission import REFRESH_S, Dropped, ShardAdmission
from broker.model.collection import RowSchema
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.ids import CollectionId
from broker.ports.row_schemas import CollectionShards, Shard

pytestmark = pytest.mark.asyncio

P = "by-dev-rootcoord-dml_0"
PLAIN, ROWS, OTHER = f"{P}_100v0", f"{P}_101v0", f"{P}_7v0"


class Catalog:
    """RowSchemas of a few collections, which counts how often it is read."""

    def __init__(self) -> None:
        self.known = {PLAIN: Shard("plain", rows=False), ROWS: Shard("typed", rows=True)}
        self.live = {CollectionId(100), CollectionId(101)}
        self.changes = 0
        self.reads = 0
        self.fails = False
        self.hangs = False

    def drop(self, vchannel: str, number: int) -> None:
        del self.known[vchannel]
        self.live.discard(CollectionId(number))

    def note_change(self) -> None:
        self.changes += 1

    async def newest(self, collection: CollectionId) -> RowSchema | None:
        raise AssertionError(collection)

    async def shards(self) -> CollectionShards:
        self.reads += 1
        if self.hangs:
            await anyio.sleep_forever()
        if self.fails:
            raise Refused(StreamingCode.INNER, "the store is away")
        return CollectionShards(dict(self.known), frozenset(self.live), range(100, 102))


class World:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.catalog = Catalog()
        self.admission = ShardAdmission(self.catalog, lambda: self.now_s)

    async def message(self, vchannel: str, *, raw: bool = False) -> Refusal | None:
        return await self.admission.refusal(vchannel, rows=False, raw=raw)


async def test_a_collection_with_a_schema_takes_rows_only_and_says_what_to_use() -> None:
    world = World()
    refusal = await world.message(ROWS)
    assert refusal is not None
    assert refusal.code is StreamingCode.SCHEMA_VERSION_MISMATCH
    assert "'typed' has a schema" in refusal.cause
    assert "append_arrow" in refusal.cause
    assert await world.message(ROWS, raw=True) == refusal
    assert await world.admission.refusal(ROWS, rows=True) is None
    assert await world.message(PLAIN) is None
    assert await world.message(OTHER) is None


async def test_appends_read_the_catalog_once_a_second_at_most() -> None:
    world = World()
    for _ in range(100):
        for vchannel in (PLAIN, ROWS, OTHER):
            await world.message(vchannel)
    assert world.catalog.reads == 2, "the second read looked for the vchannel of no collection"
    world.now_s = REFRESH_S
    for _ in range(100):
        await world.message(PLAIN)
    assert world.catalog.reads == 3


@pytest.mark.parametrize("rows", [False, True])
async def test_a_drop_by_another_process_is_noticed_within_a_second(rows: bool) -> None:
    world = World()
    vchannel, number = (ROWS, 101) if rows else (PLAIN, 100)
    assert await world.admission.refusal(vchannel, rows=rows) is None
    world.catalog.drop(vchannel, number)
    world.now_s = REFRESH_S
    refusal = await world.admission.refusal(vchannel, rows=rows)
    assert isinstance(refusal, Dropped)
    assert f"collection {number} of vchannel '{vchannel}' was dropped" in refusal.cause
    assert await world.admission.refusal(vchannel, rows=rows, raw=True) is None


async def test_a_drop_by_this_process_counts_at_once() -> None:
    world = World()
    assert await world.message(PLAIN) is None
    world.catalog.drop(PLAIN, 100)
    world.catalog.note_change()
    assert isinstance(await world.message(PLAIN), Dropped)


async def test_a_new_collection_is_known_with_its_first_append() -> None:
    world = World()
    assert await world.message(PLAIN) is None
    created = f"{P}_101v7"
    world.catalog.known[created] = Shard("new", rows=True)
    refusal = await world.message(created)
    assert refusal is not None
    assert refusal.code is StreamingCode.SCHEMA_VERSION_MISMATCH


async def test_a_store_that_is_away_stops_no_append_to_a_known_vchannel() -> None:
    world = World()
    assert await world.message(PLAIN) is None
    world.catalog.fails = True
    world.now_s = REFRESH_S
    assert await world.message(PLAIN) is None
    refusal = await world.message(OTHER)
    assert refusal is not None
    assert refusal.code is StreamingCode.INNER
    world.catalog.fails = False
    assert await world.message(OTHER) is None


async def test_a_store_that_hangs_stops_no_append_to_a_known_vchannel() -> None:
    world = World()
    assert await world.message(PLAIN) is None
    world.catalog.hangs = True
    world.now_s = REFRESH_S
    with anyio.fail_after(30):
        assert await world.message(PLAIN) is None
