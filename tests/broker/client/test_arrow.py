"""Arrow rows against a whole broker: what goes in comes out, whichever way it is read."""

import asyncio
import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from anyio.from_thread import start_blocking_portal

from broker.client import (
    Client,
    Gathering,
    InvalidArgument,
    Message,
    NoSuchCollection,
    SchemaVersionMismatch,
    connect,
)
from broker.client.errors import BadTarget
from broker.core.sharding import shard_of
from broker.model.message import MessageType
from schemas.generated.milvus.proto import messages
from tests.local_broker import local_broker

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.string()), ("x", pa.float64())])
NUMBERS = count()
OURS = ["_vchannel", "_message_id", "_time_tick"]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a broker that runs in a thread and a loop of its own, for all tests together."""
    folder = tmp_path_factory.mktemp("broker")
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(local_broker(folder, pchannels=5)) as broker,
    ):
        yield broker.address


@pytest.fixture
def name() -> str:
    """Of a collection that no other test has."""
    return f"rows_{next(NUMBERS)}"


def table(rows: int, first: int = 0) -> Any:
    numbers = range(first, first + rows)
    columns = {
        "k": list(numbers),
        "t": [f"t{it}" for it in numbers],
        "x": [it / 2 for it in numbers],
    }
    return pa.table(columns, schema=SCHEMA)


async def read(log: Client, target: Any, **options: Any) -> Any:
    scanner = log.read_arrow(target, **({"until": "now"} | options))
    async with asyncio.timeout(60):
        schema = await scanner.schema()
        return pa.Table.from_batches([rows async for rows in scanner], schema=schema)


async def test_rows_come_back_as_they_were_with_where_they_are(address: str, name: str) -> None:
    async with connect(address) as log:
        (shard,) = (await log.collections.create(name, schema=SCHEMA)).vchannels
        (landed,) = await log.append_arrow(name, table(100))
        assert (landed.messages, landed.durability) == (100, "fsync")
        found = await read(log, name)
        assert found.schema.names == [*SCHEMA.names, *OURS]
        assert found.drop_columns(OURS).equals(table(100))
        assert set(found["_vchannel"].to_pylist()) == {shard}
        assert found["_message_id"].to_pylist() == list(range(landed.id, landed.id + 100))
        assert found["_time_tick"].to_pylist() == list(range(landed.tick, landed.tick + 100))
        assert (await read(log, shard)).equals(found)
        (sooner,) = await log.append_arrow(name, table(1), durability="os")
        assert (sooner.messages, sooner.durability) == (1, "os")


async def test_each_row_goes_to_the_shard_of_its_key_and_keeps_its_order(
    address: str, name: str
) -> None:
    async with connect(address) as log:
        shards = (await log.collections.create(name, shards=5, schema=SCHEMA)).vchannels
        for key in ("k", "t"):
            landed = await log.append_arrow(name, table(3000), key=key)
            assert sum(it.messages for it in landed) == 3000
            for at, shard in enumerate(shards):
                ticks = [it.tick for it in landed if it.vchannel == shard]
                found = await read(log, shard, start=("tick", min(ticks)))
                mine = [it for it in table(3000).to_pylist() if shard_of(it[key], 5) == at]
                assert found.drop_columns(OURS).to_pylist() == mine


async def test_columns_that_are_not_asked_for_stay_on_the_broker(address: str, name: str) -> None:
    columns = {f"c{at}": [at] * 1000 for at in range(10)}
    wide = pa.table(columns)
    async with connect(address) as log:
        await log.collections.create(name, schema=wide.schema)
        await log.append_arrow(name, wide)
        sizes = []
        for wanted in (None, ["c7", "c2"]):
            async with (
                log.read_batches(name, until="now") as _,
                log.read_arrow(name, columns=wanted, until="now") as scanner,
            ):
                found = [rows async for rows in scanner]
            sizes.append(sum(it.nbytes for it in found))
            assert [it.schema.names for it in found] == [[*(wanted or columns), *OURS]]
            assert found[0].column(0).to_pylist() == [7 if wanted else 0] * 1000
        assert sizes[0] > sizes[1]


async def test_a_column_that_is_added_is_null_in_the_rows_of_before(
    address: str, name: str
) -> None:
    new = pa.field("new", pa.list_(pa.int8()))
    async with connect(address) as log:
        await log.collections.create(name, schema=SCHEMA)
        await log.append_arrow(name, table(2))
        changed = await log.collections.add_columns(name, pa.schema([new]))
        assert changed.schema is not None
        assert changed.schema.widths == (3, 4)
        assert await log.collections.add_columns(name, pa.schema([new])) == changed
        assert await log.collections.schema(name) == SCHEMA.append(new)
        await log.append_arrow(name, table(2).append_column(new, pa.array([[1], [2]], new.type)))
        await log.append_arrow(name, table(1))  # by who has not heard of it yet
        assert (await read(log, name, columns=["new"]))["new"].to_pylist() == [
            None, None, [1], [2], None,
        ]  # fmt: skip


async def test_open_transactions_and_staged_batches_outlive_a_column_that_is_added(
    address: str, name: str
) -> None:
    async with connect(address) as log:
        (shard,) = (await log.collections.create(name, shards=1, schema=SCHEMA)).vchannels
        async with log.txn(shard) as txn, log.stage(name, 1, 0) as stage:
            await txn.append_arrow(table(1))
            await stage.append_arrow(shard, table(1, 1))
            await log.collections.add_columns(name, pa.schema([("a", pa.int8())]))
            part = await stage.seal()
        await log.collections.add_columns(name, pa.schema([("b", pa.int8())]))
        await log.commit_batch(name, 1, [part])
        assert sorted((await read(log, name)).column("k").to_pylist()) == [0, 1]


async def test_small_batches_are_read_together_and_nothing_is_lost_at_the_end(
    address: str, name: str
) -> None:
    new = pa.field("new", pa.int64())
    async with connect(address) as log:
        shards = (await log.collections.create(name, shards=2, schema=SCHEMA)).vchannels
        landed = [await log.append_arrow(shards[it % 2], table(10, 10 * it)) for it in range(5)]
        async with log.txn(shards[0]) as txn:
            await txn.append_arrow(table(10, 50))
        await log.collections.add_columns(name, pa.schema([new]))
        await log.append_arrow(shards[0], table(10, 60).append_column(new, pa.array([1] * 10)))
        single = await read(log, name, columns=["new", "k"])
        async with log.read_arrow(name, columns=["new", "k"], until="now") as scanner:
            found = [await scanner.gathered(45, 1 << 20), await scanner.gathered(1 << 20, 1 << 20)]
            with pytest.raises(StopAsyncIteration):
                await scanner.gathered(1, 1)
            schema = await scanner.schema()
        assert [it.num_rows for it in found] == [50, 20]
        assert all(it.schema.equals(schema) for it in found)
        together = pa.Table.from_batches(found).sort_by("k")
        assert together.equals(single.sort_by("k"))
        where = dict(zip(*(together[it].to_pylist() for it in ("k", "_message_id")), strict=True))
        assert [where[10 * at] for at in range(5)] == [it.id for (it,) in landed]
        async with log.read_arrow(shards[0], until="now") as scanner:
            assert (await scanner.gathered(1 << 20, 1)).num_rows == 10  # enough bytes are enough


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (pa.schema([pa.field("n", pa.int8(), nullable=False)]), "must be nullable"),
        (pa.schema([("k", pa.int32())]), "'k' is int64 already"),
        (pa.schema([("_time_tick", pa.int64())]), "reserved"),
        (pa.schema([("d", pa.dictionary(pa.int8(), pa.string()))]), "dictionaries"),
    ],
)
async def test_a_schema_takes_only_new_columns_that_may_be_null(
    address: str, name: str, columns: Any, says: str
) -> None:
    async with connect(address) as log:
        await log.collections.create(name, schema=SCHEMA)
        with pytest.raises(InvalidArgument, match=says):
            await log.collections.add_columns(name, columns)
        assert await log.collections.schema(name) == SCHEMA


async def test_columns_need_a_collection_that_has_some(address: str, name: str) -> None:
    async with connect(address) as log:
        with pytest.raises(NoSuchCollection):
            await log.collections.add_columns(name, SCHEMA)
        await log.collections.create(name + "_plain")
        with pytest.raises(InvalidArgument, match="without a schema"):
            await log.collections.add_columns(name + "_plain", SCHEMA)
        with pytest.raises(InvalidArgument, match="no schema"):
            await log.append_arrow(name + "_plain", table(1))
        with pytest.raises(BadTarget, match="schema"):
            await read(log, name + "_plain")
        with pytest.raises(InvalidArgument, match="0 columns"):
            await log.collections.create(name + "_none", schema=pa.schema([]))
        with pytest.raises(BadTarget, match=r"not a pyarrow\.Schema"):
            await log.collections.create(name + "_none", schema={"a": "int"})


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (table(1).drop_columns(["t"]), "column 't' .string. is missing"),
        (table(1).append_column("z", [[1]]), "column 'z' .int64. is not in it; add_columns"),
        (table(1).select(["t", "k", "x"]), "the order"),
        (table(1).set_column(0, "k", pa.array([1], pa.int32())), "'k' is int32, not int64"),
    ],
)
async def test_rows_that_do_not_fit_are_refused_with_each_difference(
    address: str, name: str, rows: Any, says: str
) -> None:
    async with connect(address) as log:
        await log.collections.create(name, schema=SCHEMA)
        with pytest.raises(SchemaVersionMismatch, match=says):
            await log.append_arrow(name, rows)
        (landed,) = await log.append_arrow(name, table(1))
        assert landed.messages == 1
        assert (await read(log, name)).num_rows == 1


async def test_null_is_refused_where_it_may_not_be(address: str, name: str) -> None:
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False)])
    async with connect(address) as log:
        await log.collections.create(name, schema=schema)
        await log.append_arrow(name, pa.table({"k": [1, 2]}))
        with pytest.raises(SchemaVersionMismatch, match="may not be null, 1 of 2"):
            await log.append_arrow(name, pa.table({"k": [1, None]}))


async def test_a_reader_of_messages_gets_each_row_as_json_with_the_same_ids(
    address: str, name: str
) -> None:
    async with connect(address) as log:
        await log.collections.create(name, schema=SCHEMA)
        (landed,) = await log.append_arrow(name, table(3), properties={"own": "p"})
        collection = await log.collections.get(name)
        # As a client of Milvus's protocol does, for which a collection has no Arrow schema.
        header = bytes(messages.DeleteMessageHeader(collection_id=collection.id, rows=1))
        plain = Message(b"plain", barrier_time_tick=1, type=MessageType.DELETE, header=header)
        await log.raw_append(collection.vchannels[0], plain)
        singly = [it async for it in log.read(name, until="now").messages()]
        async with asyncio.timeout(60):
            batches = [it async for it in log.read_batches(name, until="now") if len(it)]
        together = [message for batch in batches for message in batch.messages]
        assert [json.loads(it.payload) for it in singly[:3]] == table(3).to_pylist()
        assert [it.payload for it in singly[3:]] == [b"plain"]
        assert [it[:6] for it in singly] == [it[:6] for it in together]
        assert [it.id for it in singly[:3]] == [landed.id + at for at in range(3)]
        assert singly[0].tags["tidemark.schema"] == "1"
        assert singly[0].properties["own"] == "p"
        assert [batch.has_rows for batch in batches] == [True, False]
        assert (await read(log, name)).num_rows == 3


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
async def test_packed_rows_stay_packed_until_they_are_read(
    address: str, name: str, compression: str
) -> None:
    async with connect(address, gathering=Gathering(compression=compression)) as log:
        await log.collections.create(name, schema=SCHEMA)
        await log.append_arrow(name, table(5000))
        found = await read(log, name, columns=["x", "k"])
        assert found.drop_columns(OURS).equals(table(5000).select(["x", "k"]))
        first = await anext(log.read(name, until="now").messages())
        assert json.loads(first.payload) == {"k": 0, "t": "t0", "x": 0.0}


async def test_a_large_table_goes_in_batches_that_fit(address: str, name: str) -> None:
    heavy = pa.table({"b": [bytes([it]) * 900_000 for it in range(20)] + [b""] * 20_000})
    async with connect(address) as log:
        await log.collections.create(name, schema=heavy.schema)
        landed = await log.append_arrow(name, heavy)
        assert sum(it.messages for it in landed) == heavy.num_rows
        assert (await read(log, name))["b"].equals(heavy["b"])


@pytest.mark.parametrize("key", [None, "same"])
async def test_many_small_rows_for_one_of_several_shards_go_in_batches_that_fit(
    address: str, name: str, key: str | None
) -> None:
    rows = pa.table({"n": pa.array(range(40_000), pa.int32()), "same": pa.array([7] * 40_000)})
    async with connect(address) as log:
        await log.collections.create(name, shards=3, schema=rows.schema)
        landed = await log.append_arrow(name, rows, key=key)
        assert sum(it.messages for it in landed) == 40_000
        assert len(landed) > 2
        found = await read(log, name)
        assert sorted(found["n"].to_pylist()) == list(range(40_000))
        for shard in {it.vchannel for it in landed}:
            own = [row["n"] for row in found.to_pylist() if row["_vchannel"] == shard]
            assert own == sorted(own), "the order of a shard is kept"


async def test_a_read_ends_inside_a_batch_and_the_next_one_begins_there(
    address: str, name: str
) -> None:
    async with connect(address) as log:
        await log.collections.create(name, schema=SCHEMA)
        (landed,) = await log.append_arrow(name, table(10))
        head = await read(log, name, until=landed.tick + 3)
        rest = await read(log, name, start=("tick", landed.tick + 4))
        assert head["k"].to_pylist() == [0, 1, 2, 3]
        assert rest["k"].to_pylist() == [4, 5, 6, 7, 8, 9]


async def test_invalid_rows_keys_and_columns_are_refused_at_once(address: str, name: str) -> None:
    async with connect(address) as log:
        await log.collections.create(name, shards=2, schema=SCHEMA)
        for rows, key, says in (
            ([1, 2], None, "must be a pyarrow RecordBatch or Table, not list"),
            (table(0), None, "no rows"),
            (table(1), "z", "no column 'z'"),
            (table(1), "x", "'x' is double"),
        ):
            with pytest.raises(BadTarget, match=says):
                await log.append_arrow(name, rows, key=key)
        for columns in (["z"], ["k", "k"]):
            with pytest.raises(BadTarget, match="cannot be read; there are"):
                await read(log, name, columns=columns)


async def test_categories_are_appended_as_what_they_stand_for(address: str, name: str) -> None:
    async with connect(address) as log:
        await log.collections.create(name, schema=SCHEMA)
        rows = table(50).set_column(1, "t", table(50)["t"].dictionary_encode())
        await log.append_arrow(name, rows, key="t")
        assert (await read(log, name))["t"].equals(table(50)["t"])
