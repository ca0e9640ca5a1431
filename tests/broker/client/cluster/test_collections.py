"""Collections that exist already: taken, the same, or another; and a broker without pyarrow."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from broker.client import Client, InvalidArgument, NoSuchCollection, Unrecoverable, connect
from broker.client.errors import AlreadyExists, UnknownDefinition
from broker.coordinator.catalog.collection_records import CollectionRecords
from broker.meta.sqlite import SqliteMetaStore
from broker.model.collection import Collection, RowSchema
from broker.model.ids import CollectionId, TimeTick
from schemas.generated.tidemark import v1
from tests.broker_process import BrokerProcess
from tests.local_broker import local_broker

pytestmark = pytest.mark.asyncio
SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("t", pa.string())])


@asynccontextmanager
async def serving(tmp_path: Path) -> AsyncIterator[Client]:
    async with local_broker(tmp_path, pchannels=4) as broker, connect(broker.address) as client:
        yield client


async def test_a_taken_name_is_an_error_of_its_own(tmp_path: Path) -> None:
    async with serving(tmp_path) as log:
        made = await log.collections.create("c", shards=2)
        with pytest.raises(AlreadyExists, match="'c' exists already"):
            await log.collections.create("c", shards=2)
        with pytest.raises(InvalidArgument, match="must start with a letter") as raised:
            await log.collections.create("1c")
        assert not isinstance(raised.value, AlreadyExists)
        assert await log.collections.list() == [made]


async def test_with_exist_ok_the_same_definition_is_the_collection_itself(tmp_path: Path) -> None:
    async with serving(tmp_path) as log:
        plain = await log.collections.create("plain", shards=2, exist_ok=True)
        assert await log.collections.create("plain", shards=2, exist_ok=True) == plain
        rows = await log.collections.create("rows", schema=SCHEMA, exist_ok=True)
        assert await log.collections.create("rows", schema=SCHEMA, exist_ok=True) == rows
        wider = await log.collections.add_columns("rows", pa.schema([("x", pa.float64())]))
        newest = pa.schema([*SCHEMA, ("x", pa.float64())])
        for schema in (SCHEMA, newest):
            assert await log.collections.create("rows", schema=schema, exist_ok=True) == wider


@pytest.mark.parametrize(
    ("shards", "schema", "difference"),
    [
        (3, SCHEMA, "it has 2 shards, not 3"),
        (2, None, "it has a schema, with columns k, t"),
        (2, pa.schema([*SCHEMA, ("y", pa.int8())]), r"column 'y' \(int8\) is not in it"),
        (2, pa.schema([SCHEMA[0], ("t", pa.int8())]), "column 't' is int8, not string"),
        (2, pa.schema([("k", pa.int64()), SCHEMA[1]]), "column 'k' may not be null"),
    ],
)
async def test_with_exist_ok_every_difference_is_named(
    tmp_path: Path, shards: int, schema: pa.Schema | None, difference: str
) -> None:
    async with serving(tmp_path) as log:
        await log.collections.create("rows", shards=2, schema=SCHEMA)
        with pytest.raises(
            AlreadyExists, match=f"'rows' exists already, and is another: .*{difference}"
        ):
            await log.collections.create("rows", shards=shards, schema=schema, exist_ok=True)


async def test_a_collection_of_messages_is_not_one_of_rows(tmp_path: Path) -> None:
    async with serving(tmp_path) as log:
        await log.collections.create("plain")
        with pytest.raises(AlreadyExists, match="it has no schema"):
            await log.collections.create("plain", schema=SCHEMA, exist_ok=True)


async def test_a_broker_without_pyarrow_says_that_it_is_the_broker(tmp_path: Path) -> None:
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "pyarrow.py").write_text("raise ImportError('not installed')\n")
    path = os.pathsep.join(
        [str(tmp_path / "without"), *os.environ.get("PYTHONPATH", "").split(":")]
    )
    broker = BrokerProcess(tmp_path / "data", inside=("env", f"PYTHONPATH={path}"))
    try:
        async with connect(broker.address) as log:
            with pytest.raises(
                Unrecoverable, match=r"the broker has no pyarrow.*restart the broker"
            ):
                await log.collections.create("rows", schema=SCHEMA)
            await log.collections.create("plain")
            await log.append("plain", b"x")
    finally:
        broker.terminate()


async def test_collections_of_a_database_live_and_end_beside_those_of_others(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as log:
        await log.master.create_database("sales")
        plain = await log.collections.create("c", shards=2)
        mine = await log.collections.create("c", schema=SCHEMA, database="sales")
        assert (plain.database, mine.database) == ("", "sales")
        assert mine == await log.collections.get("c", database="sales")
        assert await log.collections.list(database="sales") == [mine]
        assert await log.collections.list(database="default") == [plain]
        column = pa.schema([("x", pa.float64())])
        wider = await log.collections.add_columns("c", column, database="sales")
        assert wider.schema is not None
        assert wider.schema.widths == (2, 3)
        with pytest.raises(InvalidArgument, match="'c' was created without a schema"):
            await log.collections.add_columns("c", column)
        with pytest.raises(AlreadyExists, match="'c' exists already"):
            await log.collections.create("c", database="sales")
        await log.collections.drop("c", database="sales")
        assert await log.collections.list(database="sales") == []
        with pytest.raises(NoSuchCollection, match="no collection 'c' in database 'sales'"):
            await log.collections.get("c", database="sales")
        with pytest.raises(NoSuchCollection, match="there is no collection 'c'"):
            await log.collections.drop("c", database="sales")
        assert await log.collections.list() == [plain]


async def test_a_database_that_is_unknown_or_no_name_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as log:
        with pytest.raises(UnknownDefinition, match="there is no database 'nowhere'"):
            await log.collections.list(database="nowhere")
        with pytest.raises(InvalidArgument, match=r"database name '\.\./up' must start with"):
            await log.collections.list(database="../up")
        with pytest.raises(InvalidArgument, match=r"database name '\.\./up' must start with"):
            await log.collections.create("c", database="../up")
        with pytest.raises(NoSuchCollection, match="must start with"):
            await log.collections.drop("c", database="../up")


async def test_collections_are_listed_page_by_page(tmp_path: Path) -> None:
    async with serving(tmp_path) as log:
        names = sorted(f"c{it}" for it in range(7))
        for name in names:
            await log.collections.create(name)
        calls = log.collections._calls

        async def ask(after: str, limit: int) -> tuple[list[str], bool]:
            request = v1.ListCollectionsRequest(after=after, limit=limit)
            page = await calls.ask("List", request, v1.ListCollectionsResponse)
            return [it.name for it in page.collections], page.more

        assert await ask("", 3) == (names[:3], True)
        assert await ask(names[2], 4) == (names[3:], True)
        assert await ask(names[6], 4) == ([], False)
        assert await ask("", 0) == (names, False)
        assert await ask("c3x", 2) == (names[4:6], True)
        for limit in (-1, 1001):
            with pytest.raises(InvalidArgument, match=f"the limit must be 1 to 1000, not {limit}"):
                await ask("", limit)
        with pytest.raises(InvalidArgument, match=r"'\.\./up' is not a name"):
            await ask("../up", 1)


async def test_more_collections_than_a_page_are_streamed_and_refused_to_those_who_take_no_pages(
    tmp_path: Path,
) -> None:
    async with local_broker(tmp_path, pchannels=1):
        pass
    wide = RowSchema(b"x" * 100_000, (1,))
    async with await SqliteMetaStore.open(tmp_path / "meta.sqlite") as store:
        records = CollectionRecords(store)
        for number in range(1_100):
            # Large ones among them, so that a page also ends by its size.
            made = Collection(
                *(f"c{number:04}", CollectionId(1000 + number), (), 1),
                schema=wide if number < 30 else None,
                created_tick=TimeTick(1),
            )
            await records.create(made, await records.next_id(), await records.loads())
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        found = [it.name async for it in log.collections.each()]
        assert found == [f"c{number:04}" for number in range(1_100)]
        request = v1.ListCollectionsRequest()
        calls = log.collections._calls
        with pytest.raises(InvalidArgument, match=r"more collections than one answer holds \(10\)"):
            await calls.ask("List", request, v1.ListCollectionsResponse)
