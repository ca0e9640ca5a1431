"""Partitions, indexes and aliases through a real broker."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from broker.client import Client, connect
from broker.client.errors import InvalidArgument, UnknownDefinition
from schemas.generated.milvus.proto import common
from schemas.generated.milvus.proto import schema as milvus
from tests.local_broker import local_broker

ARROW = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("text", pa.string())])
HNSW = {"index_type": "HNSW", "M": "8"}
FLAT = {"index_type": "FLAT"}


@asynccontextmanager
async def client(folder: Path) -> AsyncIterator[Client]:
    async with local_broker(folder, pchannels=2) as broker, connect(broker.address) as log:
        yield log


def vectors(name: str) -> bytes:
    dim = [common.KeyValuePair(key="dim", value="8")]
    return bytes(
        milvus.CollectionSchema(
            name=name,
            fields=[
                milvus.FieldSchema(name="id", data_type=milvus.DataType(5), is_primary_key=True),
                milvus.FieldSchema(name="text", data_type=milvus.DataType(21)),
                milvus.FieldSchema(name="vector", data_type=milvus.DataType(101), type_params=dim),
            ],
        )
    )


async def test_a_partition_is_there_until_it_is_dropped(tmp_path: Path) -> None:
    async with client(tmp_path) as log:
        for name, schema in (("plain", None), ("rows", ARROW)):
            created = await log.master.create_collection(name, schema=schema)
            first = await log.master.create_partition(name, "2024")
            assert first.id > created.default_partition_id
            assert first.tick > created.created_tick
            assert await log.master.has_partition(name, "2024")
            assert await log.master.show_partitions(name) == {
                "2024": first.id,
                "_default": created.default_partition_id,
            }
            assert (await log.master.describe_collection(name)).partitions == 2
            with pytest.raises(InvalidArgument, match=f"'2024' of collection '{name}' exists"):
                await log.master.create_partition(name, "2024")
            assert (await log.master.drop_partition(name, "2024")).id == 0
            assert not await log.master.has_partition(name, "2024")
            second = await log.master.create_partition(name, "2024")
            assert second.id > first.id


async def test_bad_requests_for_partitions_are_refused_by_value(tmp_path: Path) -> None:
    async with client(tmp_path) as log:
        await log.master.create_collection("rows")
        with pytest.raises(InvalidArgument, match="the default partition cannot be deleted"):
            await log.master.drop_partition("rows", "_default")
        with pytest.raises(UnknownDefinition, match="'rows' has no partition 'unknown'"):
            await log.master.drop_partition("rows", "unknown")
        for bad in ("", "../x", "a/b", "a b", "x" * 256, "$x"):
            with pytest.raises(InvalidArgument, match="partition name"):
                await log.master.create_partition("rows", bad)
        for bad in ("", "../x", "a/b", "x" * 256):
            with pytest.raises(InvalidArgument, match="is not a name"):
                await log.master.has_partition("rows", bad)
        unknown = "there is no collection 'unknown'"
        with pytest.raises(UnknownDefinition, match=unknown):
            await log.master.has_partition("unknown", "_default")
        with pytest.raises(UnknownDefinition, match=unknown):
            await log.master.show_partitions("unknown")
        with pytest.raises(UnknownDefinition, match=unknown):
            await log.master.create_partition("unknown", "p")
        with pytest.raises(UnknownDefinition, match=unknown):
            await log.master.drop_partition("unknown", "p")
        assert not await log.master.has_partition("rows", "unknown")
        assert list(await log.master.show_partitions("rows")) == ["_default"]


async def test_rows_of_a_collection_with_partitions_are_read_without_its_changes(
    tmp_path: Path,
) -> None:
    async with client(tmp_path) as log:
        await log.master.create_collection("rows", schema=ARROW)
        await log.append_arrow("rows", pa.record_batch({"id": [1], "text": ["a"]}, schema=ARROW))
        await log.master.create_partition("rows", "p")
        await log.append_arrow("rows", pa.record_batch({"id": [2], "text": ["b"]}, schema=ARROW))
        await log.master.drop_partition("rows", "p")
        async with log.read_arrow("rows", until="now") as reader:
            found = [id for batch in [it async for it in reader] for id in batch["id"].to_pylist()]
        assert found == [1, 2]


async def test_an_index_is_described_until_it_is_dropped(tmp_path: Path) -> None:
    async with client(tmp_path) as log:
        await log.master.create_collection("rows", milvus_schema=vectors("rows"))
        assert await log.master.describe_index("rows") == []
        first = await log.master.create_index("rows", "vector", HNSW)
        (index,) = await log.master.describe_index("rows", "vector")
        assert (index.name, index.id, index.state) == ("_default_idx", first.id, "pending")
        assert (index.field, index.field_id, index.params) == ("vector", 102, HNSW)
        again = await log.master.create_index(
            "rows", "vector", dict(reversed(HNSW.items())), name="mine"
        )
        assert again.id == first.id
        assert [it.name for it in await log.master.describe_index("rows")] == ["mine"]
        other = await log.master.create_index("rows", "vector", FLAT, name="mine")
        named = {it.name: it.id for it in await log.master.describe_index("rows", "vector")}
        assert named == {"mine_bak": first.id, "mine": other.id}
        with pytest.raises(InvalidArgument, match="has 2 indexes: mine, mine_bak; name the one"):
            await log.master.drop_index("rows", "vector")
        await log.master.drop_index("rows", "vector", name="mine_bak")
        await log.master.drop_index("rows", "vector", name="unknown")
        await log.master.drop_index("rows", "vector")
        assert await log.master.describe_index("rows") == []


async def test_bad_requests_for_indexes_are_refused_by_value(tmp_path: Path) -> None:
    async with client(tmp_path) as log:
        await log.master.create_collection("rows", milvus_schema=vectors("rows"))
        await log.master.create_collection("plain")
        create = log.master.create_index
        with pytest.raises(InvalidArgument, match="no field 'unknown'; the fields are: id, text"):
            await create("rows", "unknown", HNSW)
        with pytest.raises(InvalidArgument, match="field 'text' has type VARCHAR; an index needs"):
            await create("rows", "text", HNSW)
        with pytest.raises(InvalidArgument, match="the index has no parameters"):
            await create("rows", "vector", {})
        with pytest.raises(InvalidArgument, match="the index has 65 parameters"):
            await create("rows", "vector", {str(it): "" for it in range(65)})
        with pytest.raises(InvalidArgument, match="has more than 4096 characters"):
            await create("rows", "vector", {"index_type": "x" * 5000})
        with pytest.raises(InvalidArgument, match=r"index name '\.\./x' must start with"):
            await create("rows", "vector", HNSW, name="../x")
        with pytest.raises(InvalidArgument, match="'plain' has no schema, so it has no fields"):
            await create("plain", "vector", HNSW)
        with pytest.raises(UnknownDefinition, match="there is no collection 'unknown'"):
            await create("unknown", "vector", HNSW)
        with pytest.raises(UnknownDefinition, match="there is no collection 'unknown'"):
            await log.master.drop_index("unknown", "vector")
        with pytest.raises(InvalidArgument, match="collection 'rows' has no field 'unknown'"):
            await log.master.describe_index("rows", "unknown")
        with pytest.raises(UnknownDefinition, match="there is no collection 'unknown'"):
            await log.master.describe_index("unknown")
        assert await log.master.describe_index("rows") == []


async def test_an_alias_is_a_name_for_reads_until_it_is_moved_or_dropped(tmp_path: Path) -> None:
    async with client(tmp_path) as log:
        one = await log.master.create_collection("one")
        two = await log.master.create_collection("two")
        assert (await log.master.create_alias("one", "live")).id == one.id
        assert await log.master.has_collection("live")
        described = await log.master.describe_collection("live")
        assert (described.name, described.aliases) == ("one", ("live",))
        assert await log.master.has_partition("live", "_default")
        await log.master.create_alias("one", "live")  # it stands already
        with pytest.raises(InvalidArgument, match="'live' is an alias of collection 'one' already"):
            await log.master.create_alias("two", "live")
        assert (await log.master.create_alias("two", "live", alter=True)).id == two.id
        await log.master.create_alias("one", "first", alter=True)
        assert await log.master.show_aliases() == {"first": "one", "live": "two"}
        assert await log.master.show_aliases("two") == {"live": "two"}
        await log.master.drop_alias("live")
        assert not await log.master.has_collection("live")
        await log.master.drop_collection("one")
        assert await log.master.show_aliases() == {}
        assert not await log.master.has_collection("first")


async def test_bad_requests_for_aliases_are_refused_by_value(tmp_path: Path) -> None:
    async with client(tmp_path) as log:
        await log.master.create_collection("rows")
        for bad in ("", "../x", "a/b", "x" * 256):
            with pytest.raises(InvalidArgument, match="alias"):
                await log.master.create_alias("rows", bad)
        with pytest.raises(InvalidArgument, match="'rows' is the name of a collection"):
            await log.master.create_alias("rows", "rows")
        with pytest.raises(UnknownDefinition, match="there is no collection 'unknown'"):
            await log.master.create_alias("unknown", "live")
        with pytest.raises(UnknownDefinition, match="there is no alias 'unknown'"):
            await log.master.drop_alias("unknown")
        with pytest.raises(InvalidArgument, match="is not a name"):
            await log.master.drop_alias("../x")
        with pytest.raises(UnknownDefinition, match="there is no collection 'unknown'"):
            await log.master.show_aliases("unknown")
        with pytest.raises(UnknownDefinition, match="there is no database 'nowhere'"):
            await log.master.show_aliases(database="nowhere")


async def test_what_was_defined_is_there_after_a_restart(tmp_path: Path) -> None:
    async with client(tmp_path) as log:
        await log.master.create_database("second")
        await log.master.create_collection("rows", milvus_schema=vectors("rows"), database="second")
        await log.master.create_partition("rows", "p", database="second")
        await log.master.create_index("rows", "vector", HNSW, database="second")
        await log.master.create_alias("rows", "live", database="second")
        before = await log.master.describe_collection("rows", database="second")
        parts = await log.master.show_partitions("rows", database="second")
        indexes = await log.master.describe_index("rows", database="second")
    async with client(tmp_path) as log:
        assert await log.master.describe_collection("live", database="second") == before
        assert await log.master.show_partitions("live", database="second") == parts
        assert await log.master.describe_index("live", database="second") == indexes
        assert await log.master.show_aliases(database="second") == {"live": "rows"}
        await log.master.drop_alias("live", database="second")
        await log.master.drop_index("rows", "vector", database="second")
        await log.master.drop_partition("rows", "p", database="second")
        await log.master.drop_collection("rows", database="second")
        await log.master.drop_database("second")
