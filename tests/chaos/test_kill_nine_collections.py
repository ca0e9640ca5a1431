"""Native batches on collections that Milvus announced, over kill -9 of a real broker.

What a program appends is read back by native readers and, message by message, as Milvus reads it.
"""

from collections import Counter
from pathlib import Path

import anyio
import pyarrow as pa

from broker.client import Client, Message, connect
from broker.core.naming import collection_id_of
from broker.model.ids import VChannelName
from broker.model.message import MessageType
from schemas.generated.milvus.proto import messages
from schemas.properties.keys import HEADER
from tests.broker_process import BrokerProcess, free_port

COLLECTION, DEFAULT, OTHER = 4000, 4001, 4002
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("text", pa.string())])
KILLS = 2
TEST_S_MAX = 240.0


async def test_batches_of_announced_collections_are_placed_and_read_back_over_kills(
    tmp_path: Path,
) -> None:
    address = f"127.0.0.1:{free_port()}"
    broker = BrokerProcess(tmp_path / "data", address, pchannels="2")
    try:
        with anyio.fail_after(TEST_S_MAX):
            async with connect(address) as log:
                await log.collections.create("plain", shards=2)
                await log.collections.create("rows", shards=1, schema=SCHEMA)
                plain = (await log.collections.get("plain")).vchannels
                (of_rows,) = (await log.collections.get("rows")).vchannels
                for vchannel in (*plain, of_rows):
                    await announce(log, vchannel)
                for life in range(KILLS + 1):
                    for vchannel in plain:
                        await append(log, vchannel, life)
                    await log.append_arrow("rows", rows_of(life))
                    if life < KILLS:
                        broker.kill()
                        broker = BrokerProcess(tmp_path / "data", address, pchannels="2")
                for vchannel in plain:
                    await check_plain(log, vchannel)
                await check_rows(log, of_rows)
    finally:
        broker.kill()


async def announce(log: Client, vchannel: VChannelName) -> None:
    header = messages.CreateCollectionMessageHeader(
        collection_id=COLLECTION, partition_ids=[DEFAULT, OTHER]
    )
    created = Message(b"", type=MessageType.CREATE_COLLECTION, header=bytes(header))
    await log.raw_append(vchannel, created)


async def append(log: Client, vchannel: VChannelName, life: int) -> None:
    """Ten messages: a batch, one with keys, one of a transaction, one staged and committed."""
    await log.append_batch(vchannel, [b"batch %d" % life] * 4)
    await log.append_batch(vchannel, [b"keyed %d" % life] * 3, keys=[b"k", None, b"l"])
    async with log.txn(vchannel) as txn:
        await txn.append_batch([b"txn %d" % life] * 2)
    async with log.stage(f"app {vchannel}", life, 0, 0) as stage:
        await stage.append_batch(vchannel, [b"staged %d" % life])
        part = await stage.seal()
    await log.commit_batch(f"app {vchannel}", life, [part])
    # Left behind and rolled back: it must not count in a segment.
    async with log.stage(f"app {vchannel}", life + 1, 0, 0) as stage:
        await stage.append_batch(vchannel, [b"never"])


def rows_of(life: int) -> pa.RecordBatch:
    return pa.record_batch([[life * 10 + it for it in range(5)], ["text"] * 5], schema=SCHEMA)


def expected() -> Counter[bytes]:
    counts: Counter[bytes] = Counter()
    for life in range(KILLS + 1):
        for name, count in ((b"batch", 4), (b"keyed", 3), (b"txn", 2), (b"staged", 1)):
            counts[b"%s %d" % (name, life)] = count
    return counts


async def check_plain(log: Client, vchannel: VChannelName) -> None:
    native: Counter[bytes] = Counter()
    async for batch in log.read_batches(vchannel, until="now", types=[MessageType.INSERT]):
        native.update(batch.payloads)
    assert native == expected()
    assert Counter(await milvus_reads(log, vchannel)) == expected()


async def check_rows(log: Client, vchannel: VChannelName) -> None:
    found = [it["id"].to_pylist() async for it in log.read_arrow("rows", until="now")]
    assert sorted(id for ids in found for id in ids) == [
        life * 10 + it for life in range(KILLS + 1) for it in range(5)
    ]
    assert len(await milvus_reads(log, vchannel)) == sum(map(len, found))


async def milvus_reads(log: Client, vchannel: VChannelName) -> list[bytes]:
    """The payloads as a consumer of Milvus gets them: each one row of a segment that is open."""
    found: list[bytes] = []
    placed = 0, 0
    open_segments: set[int] = set()
    kinds = [MessageType.INSERT, MessageType.CREATE_SEGMENT, MessageType.FLUSH]
    async for it in log.read(vchannel, until="now", types=kinds).messages():
        encoded = HEADER.need(it.tags)
        if it.type == MessageType.CREATE_SEGMENT:
            created = messages.CreateSegmentMessageHeader.parse(encoded)
            placed = created.collection_id, created.partition_id
            # The master has announced the collection of rows under its own ids before.
            own = collection_id_of(vchannel)
            assert placed == (COLLECTION, DEFAULT) or placed[0] == own
            open_segments.add(created.segment_id)
        elif it.type == MessageType.FLUSH:
            open_segments.remove(messages.FlushMessageHeader.parse(encoded).segment_id)
        else:
            header = messages.InsertMessageHeader.parse(encoded)
            (part,) = header.partitions
            assert (header.collection_id, part.partition_id, part.rows) == (*placed, 1)
            assert part.segment_assignment is not None
            assert part.segment_assignment.segment_id in open_segments
            assert part.binary_size > 0
            found.append(it.payload)
    return found
