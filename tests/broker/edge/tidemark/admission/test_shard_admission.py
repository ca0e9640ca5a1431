"""Which vchannels take messages, which take rows, and how soon a drop is noticed."""

from collections.abc import Mapping

import anyio
import pytest
from anyio.lowlevel import checkpoint

from broker.edge.tidemark.admission.shard_admission import KNOWN_MAX, REFRESH_S, ShardAdmission
from broker.model.collection import Collection, RowSchema
from broker.model.failure import Dropped, Refusal, Refused, StreamingCode
from broker.model.ids import CollectionId, TimeTick
from broker.model.retention.compaction import Compaction
from broker.ports.row_schemas import CatalogVersion, NoShard, Shard

pytestmark = pytest.mark.asyncio

P = "by-dev-rootcoord-dml_0"
PLAIN, ROWS, OTHER = f"{P}_100v0", f"{P}_101v0", f"{P}_7v0"


class Catalog:
    """RowSchemas of a few collections, which counts how often it is read."""

    def __init__(self) -> None:
        self.known = {PLAIN: Shard("plain", rows=False), ROWS: Shard("typed", rows=True)}
        self.dropped: set[str] = set()
        self.now = CatalogVersion(7, 2)
        self.changes = 0
        self.versions = 0
        self.reads: list[str] = []
        self.fails = False
        self.hangs = False

    def drop(self, vchannel: str) -> None:
        del self.known[vchannel]
        self.dropped.add(vchannel)
        self.now = CatalogVersion(self.now.revision + 1, self.now.drops + 1)

    def create(self, vchannel: str, *, rows: bool) -> None:
        self.known[vchannel] = Shard("new", rows=rows)
        self.now = CatalogVersion(self.now.revision + 1, self.now.drops)

    def note_change(self) -> None:
        self.changes += 1

    async def newest(self, collection: CollectionId) -> RowSchema | None:
        raise AssertionError(collection)

    async def name_of(self, collection: CollectionId) -> str | None:
        raise AssertionError(collection)

    async def version(self) -> CatalogVersion:
        self.versions += 1
        now = self.now
        await self._answer()
        return now

    async def shard(self, vchannel: str) -> Shard | NoShard:
        self.reads.append(vchannel)
        found = self.known.get(vchannel)
        gone = NoShard.DROPPED if vchannel in self.dropped else NoShard.OTHER
        await self._answer()
        return found or gone

    async def compactions(self) -> Mapping[CollectionId, Compaction]:
        return {}

    async def found(self, collection: CollectionId) -> Collection | None:
        raise AssertionError(collection)

    async def dropped_at(self, vchannel: str) -> TimeTick | None:
        raise AssertionError(vchannel)

    async def _answer(self) -> None:
        if self.hangs:
            await anyio.sleep_forever()
        if self.fails:
            raise Refused(StreamingCode.INNER, "the store is away")
        await checkpoint()


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


async def test_appends_read_each_vchannel_once_and_the_version_once_a_second_at_most() -> None:
    world = World()
    for number in range(5):
        world.now_s = number * REFRESH_S
        for _ in range(100):
            for vchannel in (PLAIN, ROWS, OTHER):
                await world.message(vchannel)
    assert world.catalog.reads == [PLAIN, ROWS, OTHER]
    assert world.catalog.versions == 5


async def test_a_creation_is_looked_at_by_vchannels_of_no_collection_only() -> None:
    world = World()
    for vchannel in (PLAIN, ROWS, OTHER):
        await world.message(vchannel)
    world.catalog.create(f"{P}_102v0", rows=False)
    world.now_s = REFRESH_S
    for _ in range(10):
        for vchannel in (PLAIN, ROWS, OTHER):
            await world.message(vchannel)
    assert world.catalog.reads[3:] == [OTHER]


async def test_what_was_read_after_a_drop_elsewhere_is_not_read_again() -> None:
    world = World()
    await world.message(PLAIN)
    world.catalog.note_change()  # this process knows the version from now
    await world.message(PLAIN)
    world.catalog.drop(ROWS)
    world.now_s = REFRESH_S
    for _ in range(10):
        await world.message(PLAIN)
    assert world.catalog.reads == [PLAIN, PLAIN]


async def test_a_drop_during_the_first_look_is_noticed_like_any_other() -> None:
    world = World()
    await world.message(ROWS)  # the version is known

    async def drop() -> None:
        assert world.catalog.reads == [ROWS, PLAIN], "the old answer is under way"
        world.catalog.drop(PLAIN)
        world.catalog.note_change()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.message, PLAIN)
        tasks.start_soon(drop)
    assert isinstance(await world.message(PLAIN), Dropped)


async def test_the_number_of_remembered_vchannels_is_limited() -> None:
    world = World()
    for number in range(KNOWN_MAX + 1):
        await world.message(f"{P}_{number}x")
    await world.message(f"{P}_{KNOWN_MAX}x")
    assert len(world.catalog.reads) == KNOWN_MAX + 1
    await world.message(f"{P}_0x")
    assert len(world.catalog.reads) == KNOWN_MAX + 2


@pytest.mark.parametrize("rows", [False, True])
async def test_a_drop_by_another_process_is_noticed_within_a_second(rows: bool) -> None:
    world = World()
    vchannel, number = (ROWS, 101) if rows else (PLAIN, 100)
    assert await world.admission.refusal(vchannel, rows=rows) is None
    world.catalog.drop(vchannel)
    world.now_s = REFRESH_S
    refusal = await world.admission.refusal(vchannel, rows=rows)
    assert isinstance(refusal, Dropped)
    assert f"collection {number} of vchannel '{vchannel}' was dropped" in refusal.cause
    assert await world.admission.refusal(vchannel, rows=rows, raw=True) is None


async def test_a_drop_by_this_process_counts_at_once() -> None:
    world = World()
    assert await world.message(PLAIN) is None
    world.catalog.drop(PLAIN)
    world.catalog.note_change()
    assert isinstance(await world.message(PLAIN), Dropped)


async def test_a_vchannel_that_seemed_dropped_takes_appends_after_the_next_change() -> None:
    world = World()
    world.catalog.dropped.add(PLAIN)
    shard = world.catalog.known.pop(PLAIN)
    for number in range(2):
        world.now_s = number * REFRESH_S
        assert isinstance(await world.message(PLAIN), Dropped)
    assert world.catalog.reads == [PLAIN], "without a change it is not read again"
    # As when another process makes the indexes of the catalog.
    world.catalog.known[PLAIN] = shard
    world.catalog.now = CatalogVersion(world.catalog.now.revision + 1, world.catalog.now.drops)
    world.now_s = 2 * REFRESH_S
    assert await world.message(PLAIN) is None


async def test_a_new_collection_is_known_with_its_first_append() -> None:
    world = World()
    assert await world.message(PLAIN) is None
    created = f"{P}_102v7"
    world.catalog.create(created, rows=True)
    refusal = await world.message(created)
    assert refusal is not None
    assert refusal.code is StreamingCode.SCHEMA_VERSION_MISMATCH


async def test_a_new_collection_is_known_within_a_second_where_its_name_was_used_before() -> None:
    world = World()
    assert await world.message(PLAIN) is None
    created = f"{P}_102v7"
    assert await world.message(created) is None
    world.catalog.create(created, rows=True)
    world.now_s = REFRESH_S
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
