"""Rows of three partitions over kill -9: the master counts of each what was appended to it."""

from collections import Counter
from pathlib import Path

import anyio
import pyarrow as pa

from broker.client import Client, Message, connect
from broker.model.master.segment_meta import SegmentMetaState
from broker.model.message import MessageType
from schemas.generated.milvus.proto import messages
from schemas.generated.milvus.proto import schema as milvus
from tests.broker_process import BrokerProcess, free_port

ARROW = pa.schema([pa.field("id", pa.int64(), nullable=False)])
PARTITIONS = ("_default", "early", "late")
KILLS = 2
TEST_S_MAX = 240.0


async def test_three_partitions_have_the_rows_that_were_appended_to_them(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    broker = BrokerProcess(tmp_path / "data", address, pchannels="2")
    try:
        with anyio.fail_after(TEST_S_MAX):
            async with connect(address) as log:
                field = milvus.FieldSchema(
                    name="id", data_type=milvus.DataType(5), is_primary_key=True
                )
                schema = bytes(milvus.CollectionSchema(name="plain", fields=[field]))
                await log.master.create_collection("plain", shards=2, milvus_schema=schema)
                await log.master.create_collection("rows", shards=2, schema=ARROW)
                for name in PARTITIONS[1:]:
                    await log.master.create_partition("plain", name)
                    await log.master.create_partition("rows", name)
                await announce(log, "rows")
                for life in range(KILLS + 1):
                    await append(log, life)
                    if life < KILLS:
                        broker.kill()
                        broker = BrokerProcess(tmp_path / "data", address, pchannels="2")
                expected = {name: 16 * (KILLS + 1) + at for at, name in enumerate(PARTITIONS)}
                assert await read(log, "plain") == expected
                assert await counted(log, "plain", sum(expected.values())) == expected
                rows = dict.fromkeys(PARTITIONS, 10 * (KILLS + 1))
                assert await read(log, "rows") == rows
                assert await counted(log, "rows", sum(rows.values())) == rows
    finally:
        broker.kill()


async def announce(log: Client, collection: str) -> None:
    """Tell the logs of the collection, as its creation does for those of Milvus's form."""
    partitions = [*(await log.master.show_partitions(collection)).values()]
    known = await log.collections.get(collection)
    header = messages.CreateCollectionMessageHeader(
        collection_id=known.id, partition_ids=sorted(partitions)
    )
    created = Message(b"", type=MessageType.CREATE_COLLECTION, header=bytes(header))
    for vchannel in known.vchannels:
        await log.raw_append(vchannel, created)


async def append(log: Client, life: int) -> None:
    """Of each partition 16 rows of messages, and 10 Arrow rows; a few more in the first life."""
    for at, name in enumerate(PARTITIONS):
        named = None if name == "_default" and life else name
        await log.append_batch("plain", [b"row"] * (7 + (0 if life else at)), partition=named)
        await log.append_messages("plain", [Message(b"row", key=it) for it in range(3)],
                                  partition=named)  # fmt: skip
        shard = (await log.collections.get("plain")).vchannels[life % 2]
        async with log.txn(shard) as txn:
            await txn.append_batch([b"row"] * 3, partition=named)
        async with log.stage(name, life, 0) as stage:
            await stage.append_batch("plain", [b"row"] * 2, partition=named)
            await stage.append("plain", b"row", partition=named)
            part = await stage.seal()
        await log.commit_batch(name, life, [part])
        # Left behind and rolled back: it must not count in a segment.
        async with log.stage(name, life + 1, 0) as stage:
            await stage.append_batch("plain", [b"never"], partition=named)
        ids = pa.table([list(range(10))], schema=ARROW)
        await log.append_arrow("rows", ids, key="id", partition=named)


async def read(log: Client, collection: str) -> dict[str, int]:
    names = await names_of(log, collection)
    found = Counter[str]()
    async for batch in log.read_batches(collection, until="now", types=[MessageType.INSERT]):
        assert b"never" not in batch.payloads
        found.update(names[id or 0] for id in batch.partition_ids)
    return dict(found)


async def counted(log: Client, collection: str, rows: int) -> dict[str, int]:
    """The rows of the flushed segments of each partition, once there are so many."""
    names, id = await names_of(log, collection), (await log.collections.get(collection)).id
    found = Counter[str]()
    while found.total() < rows:
        await log.master.seal_collection(id)
        await anyio.sleep(0.1)
        found = Counter[str]()
        for it in await log.master.show_segments(id):
            if it.state is SegmentMetaState.FLUSHED:
                found[names[it.partition_id]] += it.rows
    return dict(found)


async def names_of(log: Client, collection: str) -> dict[int, str]:
    """By id; rows without an id count as those of "none"."""
    found = await log.master.show_partitions(collection)
    return {0: "none", **{int(id): name for name, id in found.items()}}
