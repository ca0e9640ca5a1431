"""The channel of definitions: changes in one order, and time ticks that close windows of them."""

from base64 import b64decode
from pathlib import Path

import anyio
import pyarrow as pa

from broker.client import Client, Received, connect
from broker.model.message import MessageType
from schemas.generated.milvus.proto import messages, msg, schema
from tests.local_broker import local_broker

DEADLINE_S = 60.0
COLLECTIONS = 10


class Reader:
    """Reads the dd channel, and holds each window to its promise. `closed`: the last one seen."""

    def __init__(self, log: Client, channel: str) -> None:
        self._scanner = log.read(channel, start="all")
        self.found: list[Received] = []
        self.closed = 0

    async def read(self) -> None:
        async for batch in self._scanner:
            for it in batch.messages:
                assert it.tick > self.closed, "a change after its window was closed"
                self.found.append(it)

    async def until_closed(self, tick: int) -> None:
        """Look again and again, so that every window is seen."""
        with anyio.fail_after(DEADLINE_S):
            while self.closed < tick:
                assert self._scanner.closed_tick >= self.closed
                self.closed = self._scanner.closed_tick
                await anyio.lowlevel.checkpoint()


async def define(log: Client, number: int, ticks: dict[int, MessageType]) -> None:
    """Changes of one collection; `ticks`: of each change, with its type."""
    name, master = f"c{number}", log.master
    created = await master.create_collection(name)
    ticks[created.created_tick] = MessageType.CREATE_COLLECTION
    ticks[(await master.create_partition(name, "p")).tick] = MessageType.CREATE_PARTITION
    ticks[(await master.drop_partition(name, "p")).tick] = MessageType.DROP_PARTITION
    ticks[(await master.drop_collection(name)).tick] = MessageType.DROP_COLLECTION


async def test_a_reader_of_the_dd_channel_knows_when_every_change_up_to_a_tick_has_arrived(
    tmp_path: Path,
) -> None:
    async with local_broker(tmp_path, pchannels=2) as broker, connect(broker.address) as log:
        ticks: dict[int, MessageType] = {}
        reader = Reader(log, await log.master.get_dd_channel())
        async with anyio.create_task_group() as reading:
            reading.start_soon(reader.read)
            async with anyio.create_task_group() as tasks:
                for number in range(COLLECTIONS):
                    tasks.start_soon(define, log, number, ticks)
                # Windows close while changes come, too.
                await reader.until_closed(await log.master.alloc_timestamp())
            # Every change so far is below it; no later one is needed to close the window.
            await reader.until_closed(await log.master.alloc_timestamp())
            assert [(it.tick, it.type) for it in reader.found] == sorted(ticks.items())
            assert len(ticks) == 4 * COLLECTIONS
            reading.cancel_scope.cancel()


async def test_windows_of_the_dd_channel_go_on_over_a_restart(tmp_path: Path) -> None:
    ticks: dict[int, MessageType] = {}
    for number in range(2):
        async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
            await define(log, number, ticks)
            reader = Reader(log, await log.master.get_dd_channel())
            async with anyio.create_task_group() as reading:
                reading.start_soon(reader.read)
                await reader.until_closed(await log.master.alloc_timestamp())
                assert [it.tick for it in reader.found] == sorted(ticks)
                reading.cancel_scope.cancel()


def header_of(found: Received) -> bytes:
    return b64decode(found.tags["_h"])


async def test_a_change_on_the_dd_channel_carries_what_readers_need_of_it(tmp_path: Path) -> None:
    vector = pa.field("vector", pa.list_(pa.float32(), 8))
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), vector])
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        master = log.master
        await master.create_database("sales")
        made = await master.create_collection("items", schema=columns, database="sales")
        part = await master.create_partition("items", "p", database="sales")
        params = {"index_type": "HNSW", "metric_type": "L2"}
        index = await master.create_index("items", "vector", params, database="sales")
        await master.drop_partition("items", "p", database="sales")
        await master.drop_collection("items", database="sales")
        channel = await master.get_dd_channel()
        read = [it async for it in log.read(channel, until="now").messages()]
    _, created, added, indexed, removed, dropped = read

    named = ("sales", "items", made.id)
    body = msg.CreateCollectionRequest.parse(created.payload)
    assert (body.db_name, body.collection_name, body.collection_id) == named
    assert body.partition_names == ["_default"]
    assert body.partition_i_ds == [made.default_partition_id]
    assert body.base is not None
    assert int(body.base.msg_type) == 100
    whole = body.collection_schema
    assert whole is not None
    fields = [(it.name, it.field_id) for it in whole.fields]
    # The system fields among them, as readers of rows have them.
    assert fields == [("id", 100), ("vector", 101), ("RowID", 0), ("Timestamp", 1)]
    user = schema.CollectionSchema.parse(made.milvus_schema)
    assert [it.field_id for it in user.fields] == [100, 101]

    one = msg.CreatePartitionRequest.parse(added.payload)
    assert (one.db_name, one.collection_name, one.collection_id) == named
    assert (one.partition_name, one.partition_id) == ("p", part.id)
    head = messages.CreateIndexMessageHeader.parse(header_of(indexed))
    assert (head.collection_id, head.field_id, head.index_id) == (made.id, 101, index.id)
    info = messages.CreateIndexMessageBody.parse(indexed.payload).field_index
    assert info is not None
    assert info.index_info is not None
    assert {it.key: it.value for it in info.index_info.index_params} == params
    gone = msg.DropPartitionRequest.parse(removed.payload)
    assert (gone.collection_id, gone.partition_name, gone.partition_id) == (made.id, "p", part.id)
    last = msg.DropCollectionRequest.parse(dropped.payload)
    assert (last.db_name, last.collection_name, last.collection_id) == named
