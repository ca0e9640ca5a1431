"""Bodies of transactions in native batches, against a real broker: in, out, refused, sent again."""

import json
from collections import deque
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from anyio.from_thread import start_blocking_portal

from broker.client import (
    Client,
    Gathering,
    InvalidArgument,
    Message,
    SchemaVersionMismatch,
    Unrecoverable,
    connect,
)
from broker.client.batch import MessageBatch
from broker.client.cluster.targets import NewVChannel
from broker.client.errors import BadTransaction, InvalidTransactionState
from broker.model.failure import StreamingCode
from broker.model.message import MessageType
from tests.broker.client.scripted import VCHANNEL, ScriptedBroker, scripted_broker
from tests.local_broker import local_broker

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.string())])
NUMBERS = count()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a broker that runs in a thread and a loop of its own, for all tests together."""
    folder = tmp_path_factory.mktemp("broker")
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(local_broker(folder, pchannels=2)) as broker,
    ):
        yield broker.address


@pytest.fixture
def shard() -> str:
    """A vchannel that no other test has."""
    return NewVChannel(f"by-dev-rootcoord-dml_1_{next(NUMBERS) + 700}v0")


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedBroker]:
    async with scripted_broker() as started:
        yield started


async def batches(log: Client, target: str) -> list[MessageBatch]:
    return [it async for it in log.read_batches(target, until="now") if len(it)]


async def test_both_kinds_of_readers_get_it_whole_at_the_tick_of_the_commit(
    address: str, shard: str
) -> None:
    async with connect(address) as log:
        async with log.txn(shard) as txn:
            first = await txn.append_batch([b"a", b"b"], keys=["k", None], properties={"p": "q"})
            await txn.append(b"", type=MessageType.DELETE, version=2)
            await txn.append_messages([Message(b"c"), Message(b"d"), Message(b"e", key="l")])
            assert await batches(log, shard) == []
            commit = await txn.commit()
        singly = [it async for it in log.read(shard, until="now").messages()]
        together = [each for it in await batches(log, shard) for each in it.messages]
        for found in (singly, together):
            assert [it.payload for it in found] == [b"a", b"b", b"", b"c", b"d", b"e"]
            assert {it.tick for it in found} == {commit.tick}
            assert [it.key for it in found] == [b"k", None, None, None, None, b"l"]
            assert [it.properties for it in found[:2]] == [{"p": "q"}] * 2
            assert {it.vchannel for it in found} == {shard}
            assert [it.id for it in found[:2]] == [first.id, first.id + 1]
        assert [it.id for it in singly] == [it.id for it in together]
        assert [it.tags.get("_tx") is None for it in singly] == [False] * 6


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
async def test_rows_of_a_transaction_are_read_as_rows_and_as_text(
    address: str, compression: str | None
) -> None:
    name = f"rows_{next(NUMBERS)}"
    gathering = Gathering(compression=compression, pack_bytes_min=1)
    table = pa.table({"k": list(range(50)), "t": ["x" * 20] * 50}, schema=SCHEMA)
    async with connect(address, gathering=gathering) as log:
        (vchannel,) = (await log.collections.create(name, schema=SCHEMA)).vchannels
        async with log.txn(vchannel) as txn:
            (landed,) = await txn.append_arrow(table)
            with pytest.raises(SchemaVersionMismatch):
                await txn.append_arrow(pa.table({"k": ["no"]}))
            with pytest.raises(
                SchemaVersionMismatch, match=f"'{name}' .* takes rows, not messages"
            ):
                await txn.append_batch([b"no row"])
            commit = await txn.commit()
        (rows,) = [it async for it in log.read_arrow(name, until="now")]
        assert rows.select(["k", "t"]).to_pylist() == table.to_pylist()
        assert rows.column("_time_tick").to_pylist() == [commit.tick] * 50
        assert rows.column("_message_id").to_pylist() == list(range(landed.id, landed.id + 50))
        singly = [it.payload async for it in log.read(name, until="now").messages()]
        assert [json.loads(it)["k"] for it in singly[:50]] == list(range(50))
        assert len(singly) == 50


async def test_what_was_rolled_back_is_in_no_reader(address: str, shard: str) -> None:
    async with connect(address) as log:
        txn = log.txn(shard)
        await txn.begin()
        await txn.append_batch([b"never"] * 3)
        await txn.rollback()
        with pytest.raises(BadTransaction):
            await txn.append_batch([b"late"])
        await log.append(shard, b"after")
        assert [it.payload async for it in log.read(shard, until="now").messages()] == [b"after"]
        assert [each.payloads for each in await batches(log, shard)] == [[b"after"]]


async def test_the_limit_of_a_transaction_holds_for_batches(address: str, shard: str) -> None:
    async with connect(address) as log, log.txn(shard) as txn:
        for _ in range(4):
            await txn.append_batch([bytes(1024)] * 7 * 1024)
        with pytest.raises(Unrecoverable, match="commit earlier"):
            await txn.append_batch([bytes(1024)] * 5 * 1024)
        await txn.append_batch([b"a little more"])


async def test_a_batch_of_a_transaction_that_ended_is_refused_and_the_stream_goes_on(
    address: str, shard: str
) -> None:
    async with connect(address) as log:
        txn, same = log.txn(shard), log.txn(shard)
        await txn.begin()
        same._context, same._name, same._vchannel = txn._context, txn._name, txn._vchannel
        await txn.append_batch([b"a"])
        await txn.commit()
        with pytest.raises(InvalidTransactionState):
            await same.append_batch([b"late"])
        with pytest.raises(ValueError, match="reserved"):
            await log.append_batch(shard, [b"b"], properties={"_tx": "CAE="})
        await log.append_batch(shard, [b"c"])
        assert [it.payload async for it in log.read(shard, until="now").messages()] == [b"a", b"c"]


async def test_a_batch_whose_answer_was_lost_is_sent_again_and_stored_once(
    scripted: ScriptedBroker,
) -> None:
    async with connect(scripted.address) as log, log.txn(VCHANNEL) as txn:
        await txn.append_batch([b"a", b"b"])
        scripted.lose_replies = 1
        landed = await txn.append_messages([Message(b"c"), Message(b"d")])
        assert [it.id for it in landed] == [4, 5]
        scripted.refusals = deque([StreamingCode.INNER])
        await txn.append(b"e")
    assert len(scripted.log) == 1 + 5 + 1


async def test_a_server_that_knows_no_batches_of_transactions_refuses_the_name_of_one(
    scripted: ScriptedBroker,
) -> None:
    async with connect(scripted.address) as log:
        txn = log.txn(VCHANNEL)
        await txn.begin()
        scripted.refusals = deque([StreamingCode.INVALID_ARGUMENT])
        with pytest.raises(InvalidArgument):
            await txn.append_batch([b"a"])
        await txn.append_batch([b"b"])
        assert b"_tx" in scripted.log[-1].body
        await txn.rollback()


async def test_transactions_survive_a_restart_with_their_batches(tmp_path: Path) -> None:
    shard = NewVChannel("by-dev-rootcoord-dml_1_9v0")
    async with local_broker(tmp_path, pchannels=2) as broker, connect(broker.address) as log:
        txn = log.txn(shard, keepalive_s=60)
        await txn.begin()
        await txn.append_batch([b"a"] * 100, keys=["k"] * 100)
    async with local_broker(tmp_path, pchannels=2) as broker, connect(broker.address) as log:
        again = log.txn(shard)
        again._context, again._name, again._vchannel = txn._context, txn._name, txn._vchannel
        await again.append_batch([b"b"])
        commit = await again.commit()
        found = [each for it in await batches(log, shard) for each in it.messages]
        assert [it.payload for it in found] == [b"a"] * 100 + [b"b"]
        assert {it.tick for it in found} == {commit.tick}
