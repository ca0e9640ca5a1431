"""Collections and databases through a real broker."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from broker.client import Client, connect
from broker.client.errors import (
    AlreadyExists,
    BadTarget,
    ChannelNotExist,
    InvalidArgument,
    OutcomeUnknown,
    UnknownDefinition,
)
from schemas.generated.milvus.proto import common
from schemas.generated.milvus.proto import schema as milvus
from schemas.generated.tidemark import v1
from tests.local_broker import local_broker

INT64, VARCHAR, VECTOR = milvus.DataType(5), milvus.DataType(21), milvus.DataType(101)
ARROW = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("text", pa.string())])


@asynccontextmanager
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with local_broker(tmp_path, pchannels=2) as broker, connect(broker.address) as found:
        yield found


def field(
    name: str, kind: milvus.DataType, *, primary: bool = False, dim: str = ""
) -> milvus.FieldSchema:
    params = [common.KeyValuePair(key="dim", value=dim)] if dim else []
    return milvus.FieldSchema(name=name, data_type=kind, is_primary_key=primary, type_params=params)


def rows(*fields: milvus.FieldSchema, name: str = "rows") -> bytes:
    return bytes(milvus.CollectionSchema(name=name, fields=list(fields)))


KEY = field("id", INT64, primary=True)


async def test_a_collection_is_described_by_its_name_and_id_until_it_is_dropped(
    tmp_path: Path,
) -> None:
    async with client(tmp_path) as log:
        created = await log.master.create_collection("plain", shards=2)
        assert (created.name, created.database, created.database_id) == ("plain", "default", 0)
        assert (created.default_partition, created.partitions) == ("_default", 1)
        assert created.default_partition_id > 0
        assert created.created_tick > 0
        assert (created.schema, created.milvus_schema, created.aliases) == (None, b"", ())
        assert len(created.vchannels) == 2
        assert await log.master.describe_collection("plain") == created
        assert await log.master.describe_collection(collection_id=created.id) == created
        assert (await log.collections.get("plain")).vchannels == created.vchannels
        dropped = await log.master.drop_collection("plain")
        assert (dropped.id, dropped.tick > created.created_tick) == (0, True)
        assert not await log.master.has_collection("plain")
        with pytest.raises(UnknownDefinition, match="there is no collection 'plain'"):
            await log.master.describe_collection("plain")
        with pytest.raises(UnknownDefinition, match=f"no collection with id {created.id}"):
            await log.master.describe_collection(collection_id=created.id)
        with pytest.raises(UnknownDefinition, match="there is no collection 'plain'"):
            await log.master.drop_collection("plain")


async def test_a_schema_has_arrows_form_or_that_of_milvus(tmp_path: Path) -> None:
    async with client(tmp_path) as log:
        arrow = await log.master.create_collection("arrow", schema=ARROW)
        assert arrow.schema is not None
        assert await log.collections.schema("arrow") == ARROW
        named = milvus.CollectionSchema.parse(arrow.milvus_schema)
        assert [(it.name, it.field_id) for it in named.fields] == [("id", 100), ("text", 101)]
        given = rows(KEY, field("vector", VECTOR, dim="8"))
        taken = await log.master.create_collection("rows", milvus_schema=given)
        assert taken.schema is None
        assert [(it.name, it.type.name, it.primary, it.dim) for it in taken.fields] == [
            ("id", "INT64", True, None),
            ("vector", "FLOAT_VECTOR", False, "8"),
        ]
        assert [it.type.name for it in arrow.fields] == ["INT64", "VARCHAR"]
        fields = milvus.CollectionSchema.parse(taken.milvus_schema).fields
        assert [(it.name, it.field_id) for it in fields] == [("id", 100), ("vector", 101)]
        assert await log.master.describe_collection("rows") == taken
        assert await log.master.describe_collection("arrow") == arrow


BAD_SCHEMAS = [
    (b"\x22\x03abc", "bad schema: the bytes are not a CollectionSchema"),
    (rows(), "the schema has 0 fields; 1 to 64"),
    (rows(*[field(f"f{it}", INT64) for it in range(65)]), "the schema has 65 fields"),
    (rows(KEY, field("../up", VARCHAR)), "field name '../up' must start with"),
    (rows(KEY, field("id", VARCHAR)), "field 'id' is named more than once"),
    (rows(field("id", INT64)), "needs exactly one primary key; this one has none"),
    (rows(KEY, field("b", INT64, primary=True)), "needs exactly one primary key"),
    (rows(field("id", VECTOR, primary=True, dim="4")), "use INT64 or VARCHAR"),
    (rows(KEY, field("what", milvus.DataType(77))), "field 'what' has type 77; use one of"),
    (rows(KEY, field("vector", VECTOR)), "vector field 'vector' has no parameter dim"),
    (rows(KEY, field("vector", VECTOR, dim="0")), "has dim '0'; use 1 to 32768"),
    (rows(KEY, name="other"), "the schema is of collection 'other', the request of 'rows'"),
    (b"x" * 300_000, "the schema has 300000 bytes"),
]


async def test_a_bad_schema_is_refused_by_what_is_wrong_in_it(tmp_path: Path) -> None:
    async with client(tmp_path) as log:
        for schema, cause in BAD_SCHEMAS:
            with pytest.raises(InvalidArgument, match=re.escape(cause)):
                await log.master.create_collection("rows", milvus_schema=schema)
        assert not await log.master.has_collection("rows")


async def test_other_bad_requests_for_collections_are_refused_by_value(tmp_path: Path) -> None:
    async with client(tmp_path) as log:
        create = log.master.create_collection
        with pytest.raises(InvalidArgument, match="two schemas"):
            await create("rows", schema=ARROW, milvus_schema=rows(KEY))
        for bad in ("", "../../etc/passwd", "a/b", "9", "x" * 256, "\x00"):
            with pytest.raises(InvalidArgument):
                await create(bad)
            with pytest.raises((InvalidArgument, UnknownDefinition)):
                await log.master.drop_collection(bad)
        for shards in (0, -1, 1_000_000):
            with pytest.raises(InvalidArgument, match="the number of shards must be 1 to"):
                await create("rows", shards=shards)
        with pytest.raises(BadTarget, match="does not fit 32 bits"):
            await create("rows", shards=1 << 40)
        with pytest.raises(UnknownDefinition, match="database 'nowhere'; create it first"):
            await create("rows", database="nowhere")
        with pytest.raises(InvalidArgument, match=r"database name '../x' must start with"):
            await create("rows", database="../x")
        assert await log.master.show_collections() == {}


async def test_a_name_that_is_taken_names_the_collection_that_has_it(tmp_path: Path) -> None:
    async with client(tmp_path) as log:
        first = await log.master.create_collection("rows")
        with pytest.raises(AlreadyExists, match=rf"'rows' exists already.*id {first.id}"):
            await log.master.create_collection("rows", shards=2)
        await log.master.create_alias("rows", "other")
        with pytest.raises(InvalidArgument, match="'other' is an alias of collection 'rows'"):
            await log.master.create_collection("other")
        refused = v1.MasterCreateCollectionRequest(collection_name="rows")
        with pytest.raises(InvalidArgument, match="exists already"):
            await log.master._calls.ask("CreateCollection", refused, v1.DescribeCollectionResponse)


async def test_unknown_names_are_no_collections_and_path_tricks_are_refused(tmp_path: Path) -> None:
    async with client(tmp_path) as log:
        assert not await log.master.has_collection("unknown")
        assert not await log.master.has_collection("..")
        with pytest.raises(InvalidArgument, match=r"'../x' is not a name"):
            await log.master.has_collection("../x")
        with pytest.raises(InvalidArgument, match="'' is not a name"):
            await log.master.describe_collection()
        with pytest.raises(BadTarget, match="collection ID"):
            await log.master.describe_collection(collection_id=1 << 64)


async def test_collections_are_listed_in_pages_by_database(tmp_path: Path) -> None:
    async with client(tmp_path) as log:
        made = {name: (await log.master.create_collection(name)).id for name in ("c", "a", "b")}
        for page in (1, 2, 3, 1000):
            shown = await log.master.show_collections(page=page)
            assert list(shown.items()) == sorted(made.items())
        for page in (0, -1, 1001):
            with pytest.raises(InvalidArgument, match="the limit must be 1 to 1000"):
                await log.master.show_collections(page=page)
        with pytest.raises(UnknownDefinition, match="there is no database 'nowhere'"):
            await log.master.show_collections(database="nowhere")


async def test_a_database_has_names_of_its_own_and_is_dropped_when_empty(tmp_path: Path) -> None:
    async with client(tmp_path) as log:
        added = await log.master.create_database("second")
        assert await log.master.list_databases() == {"default": 0, "second": added.id}
        here = await log.master.create_collection("rows")
        there = await log.master.create_collection("rows", database="second")
        assert (there.database, there.database_id) == ("second", added.id)
        assert here.id != there.id
        assert await log.master.describe_collection("rows", database="second") == there
        assert await log.master.describe_collection("rows", database="default") == here
        assert await log.master.show_collections(database="second") == {"rows": there.id}
        with pytest.raises(InvalidArgument, match="'second' has collections; drop them before"):
            await log.master.drop_database("second")
        with pytest.raises(InvalidArgument, match="'second' exists already"):
            await log.master.create_database("second")
        await log.master.drop_collection("rows", database="second")
        await log.master.drop_database("second")
        with pytest.raises(UnknownDefinition, match="there is no database 'second'"):
            await log.master.drop_database("second")
        assert await log.master.list_databases() == {"default": 0}
        assert await log.master.has_collection("rows")


async def test_the_default_database_stays(tmp_path: Path) -> None:
    async with client(tmp_path) as log:
        with pytest.raises(InvalidArgument, match="the default database cannot be dropped"):
            await log.master.drop_database("default")
        with pytest.raises(InvalidArgument, match="database 'default' exists already"):
            await log.master.create_database("default")
        for bad in ("../x", "a/b", "9", "x" * 256):
            with pytest.raises(InvalidArgument, match="database name"):
                await log.master.create_database(bad)
        with pytest.raises(BadTarget, match="the name of the database is empty"):
            await log.master.create_database("")
        with pytest.raises(BadTarget, match="the name of the database is empty"):
            await log.master.drop_database("")


async def test_a_repeated_request_id_gets_the_first_answer_also_after_a_restart(
    tmp_path: Path,
) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        first = await log.master.create_collection("rows", request_id="r1", schema=ARROW)
        assert await log.master.create_collection("rows", request_id="r1", schema=ARROW) == first
        with pytest.raises(InvalidArgument, match="'ddl:0:r1' was used with other content"):
            await log.master.create_collection("rows", request_id="r1", shards=2)
        with pytest.raises(AlreadyExists):  # the id of another caller
            await log.master.create_collection("rows", request_id="r1", source_id=2, schema=ARROW)
        gone = await log.master.drop_collection("rows", request_id="r2")
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        assert await log.master.create_collection("rows", request_id="r1", schema=ARROW) == first
        assert await log.master.drop_collection("rows", request_id="r2") == gone
        assert not await log.master.has_collection("rows")
        with pytest.raises(InvalidArgument, match="the request id has 257 characters"):
            await log.master.create_collection("rows", request_id="x" * 257)


async def test_a_timestamp_older_than_the_last_of_the_name_is_refused(tmp_path: Path) -> None:
    async with client(tmp_path) as log:
        first = await log.master.alloc_timestamp()
        second = await log.master.alloc_timestamp()
        await log.master.create_collection("rows", timestamp=second)
        with pytest.raises(InvalidArgument, match=f"timestamp {first} is older than {second}"):
            await log.master.drop_collection("rows", timestamp=first)
        await log.master.create_collection("other", timestamp=first)
        await log.master.drop_collection("rows", timestamp=second)
        with pytest.raises(BadTarget, match="is not a timestamp"):
            await log.master.drop_collection("other", timestamp=1 << 64)
        with pytest.raises(BadTarget, match="source ID"):
            await log.master.drop_collection("other", source_id=1 << 63)


async def test_at_the_deadline_the_outcome_is_unknown_and_the_request_id_named(
    tmp_path: Path,
) -> None:
    async with client(tmp_path) as log:
        with pytest.raises(OutcomeUnknown, match=r"CreateCollection may still.*request_id='mine'"):
            await log.master.create_collection("rows", request_id="mine", deadline_s=0.0)
        created = await log.master.create_collection("rows", request_id="mine")
        assert await log.master.describe_collection("rows") == created


async def test_unknown_things_are_not_asked_for_again_until_the_deadline(tmp_path: Path) -> None:
    """ChannelNotExist is retriable; what nobody has defined is not."""
    async with client(tmp_path) as log:
        with pytest.raises(UnknownDefinition) as raised:
            await log.master.describe_collection("unknown")
        assert not raised.value.retriable
        assert not isinstance(raised.value, ChannelNotExist)
