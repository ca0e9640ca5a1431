"""Collections of Arrow rows, announced on their vchannels, while their definitions change."""

from typing import Any

import anyio
import pyarrow as pa
import pytest

from broker.client import Client, Message, TidemarkError, connect
from broker.model.message import MessageType
from tests.broker.client import test_arrow

SCHEMA = pa.schema([("k", pa.int64())])
address, name = test_arrow.address, test_arrow.name


def rows(count: int, first: int = 0) -> Any:
    return pa.table({"k": list(range(first, first + count))}, schema=SCHEMA)


async def numbers(log: Client, name: str) -> list[int]:
    found = [batch async for batch in log.read_arrow(name, until="now")]
    return [k for batch in found for k in batch.column("k").to_pylist()]


async def changed(log: Client, name: str) -> None:
    """A partition comes, and another one goes."""
    await log.master.create_partition(name, "p")
    await log.master.drop_partition(name, "p")


async def test_rows_are_counted_in_segments_of_their_default_partition(
    address: str, name: str
) -> None:
    async with connect(address) as log:
        collection = await log.collections.create(name, schema=SCHEMA)
        await log.append_arrow(name, rows(10))
        async with log.txn(collection.vchannels[0]) as txn:
            await txn.append_arrow(rows(5))
        (parts,) = [await log.master.show_partitions(name)]
        with anyio.fail_after(60):
            while True:
                found = await log.master.show_segments(collection.id)
                if sum(it.rows for it in found) == 15:
                    break
                await anyio.sleep(0.1)
        (segment,) = found
        assert segment.partition_id == parts["_default"]


async def test_a_plain_log_has_no_segments_and_no_message_of_its_definition(
    address: str, name: str
) -> None:
    async with connect(address) as log:
        collection = await log.collections.create(name)
        (vchannel,) = collection.vchannels
        await log.append(name, b"one")
        await log.master.create_partition(name, "p")
        every = [MessageType.INSERT, MessageType.CREATE_SEGMENT, MessageType.CREATE_COLLECTION]
        found = [it async for it in log.read(vchannel, until="now", types=every).messages()]
        assert [it.payload for it in found] == [b"one"]
        assert await log.master.show_segments(collection.id) == []


async def test_readers_see_rows_and_nothing_else_but_who_names_the_types_does(
    address: str,
    name: str,
) -> None:
    async with connect(address) as log:
        (vchannel,) = (await log.collections.create(name, schema=SCHEMA)).vchannels
        await log.append_arrow(name, rows(2))
        await changed(log, name)
        await log.append_arrow(name, rows(2, 2))
        assert await numbers(log, name) == [0, 1, 2, 3]
        singly = [it.type async for it in log.read(name, until="now").messages()]
        assert singly == [MessageType.INSERT] * 4
        batches = [it async for it in log.read_batches(name, until="now")]
        assert sum(map(len, batches)) == 4
        kinds = [
            MessageType.CREATE_COLLECTION,
            MessageType.CREATE_PARTITION,
            MessageType.DROP_PARTITION,
            MessageType.CREATE_SEGMENT,
        ]
        named = [it.type async for it in log.read(vchannel, until="now", types=kinds).messages()]
        assert sorted(named) == sorted(kinds)


async def test_rows_are_measured_exactly_whatever_is_announced_between_them(
    address: str, name: str
) -> None:
    async with connect(address) as log:
        vchannels = (await log.collections.create(name, shards=2, schema=SCHEMA)).vchannels
        await changed(log, name)
        for number in range(10):
            await log.append_arrow(name, rows(3, 3 * number))
            await changed(log, name)
        cut = await log.cut(vchannels)
        whole = await log.measure(vchannels, after=0, until=cut.tick)
        assert whole.choice.rows == 30
        after = 0
        sizes = []
        while after < cut.tick:
            found = await log.measure(vchannels, after=after, until=cut.tick, rows_max=6)
            sizes.append(found.choice.rows)
            after = found.choice.tick
        # Each appended three rows at ticks of their own; announcements part none of them.
        assert sizes[:5] == [6] * 5
        assert sum(sizes) == 30


async def test_the_lag_of_a_cursor_is_that_of_rows(address: str, name: str) -> None:
    async with connect(address) as log:
        vchannels = (await log.collections.create(name, shards=2, schema=SCHEMA)).vchannels
        cursor = log.cursor(name)
        await cursor.move((await log.cut(vchannels)).tick, vchannels)
        await log.append_arrow(name, rows(7))
        await changed(log, name)
        view = await cursor.get()
        assert sum(it.rows for it in view.lags.values()) == 7
        await cursor.move((await log.cut(vchannels)).tick, vchannels)
        await changed(log, name)
        view = await cursor.get()
        assert {(it.rows, it.bytes) for it in view.lags.values()} == {(0, 0)}


async def test_open_transactions_and_staged_batches_outlive_partitions_that_come_and_go(
    address: str,
    name: str,
) -> None:
    async with connect(address) as log:
        (shard,) = (await log.collections.create(name, schema=SCHEMA)).vchannels
        async with log.txn(shard) as txn, log.stage(name, 1, 0) as stage:
            await txn.append_arrow(rows(1))
            await stage.append_arrow(shard, rows(1, 1))
            await changed(log, name)
            await txn.append_arrow(rows(1, 2))
            await stage.append_arrow(shard, rows(1, 3))
            part = await stage.seal()
        await changed(log, name)
        await log.commit_batch(name, 1, [part])
        assert sorted(await numbers(log, name)) == [0, 1, 2, 3]


async def test_a_dropped_collection_ends_what_is_open_on_it(address: str, name: str) -> None:
    async with connect(address) as log:
        (shard,) = (await log.collections.create(name, schema=SCHEMA)).vchannels
        txn = log.txn(shard)
        await txn.__aenter__()
        await txn.append_arrow(rows(1))
        await log.collections.drop(name)
        with pytest.raises(TidemarkError):
            await txn.__aexit__(None, None, None)


async def test_the_message_of_a_program_is_shown_and_counted_whatever_its_names_say(
    address: str,
    name: str,
) -> None:
    """A message that only looks like an announcement, by a name in it, is none."""
    async with connect(address) as log:
        (shard,) = (await log.collections.create(name)).vchannels
        loud = Message(b"tidemark.ddl", type=MessageType.CREATE_PARTITION, barrier_time_tick=1)
        await log.raw_append(shard, loud)
        found = [it.payload async for it in log.read(shard, until="now").messages()]
        assert found == [b"tidemark.ddl"]
        cut = await log.cut([shard])
        assert (await log.measure([shard], after=0, until=cut.tick)).choice.rows == 1
