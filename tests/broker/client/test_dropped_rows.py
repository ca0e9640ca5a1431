"""Appends of rows by a client that knows a collection which another one has dropped."""

from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from broker.client import Client, Message, NoSuchCollection, connect
from broker.client.errors import OutdatedTarget
from broker.model.message import MessageType
from schemas.generated.milvus.proto import messages
from tests.broker.client import test_arrow
from tests.local_broker import local_broker

SCHEMA = pa.schema([("k", pa.int64())])
BATCHES = count(1)
address, name = test_arrow.address, test_arrow.name


def rows(first: int) -> Any:
    return pa.table({"k": [first]}, schema=SCHEMA)


async def numbers(log: Client, target: str) -> list[int]:
    found = [batch async for batch in log.read_arrow(target, until="now")]
    return [k for batch in found for k in batch.column("k").to_pylist()]


async def in_txn(log: Client, target: str, given: Any) -> None:
    async with log.txn(target) as txn:
        await txn.append_arrow(given)


async def staged(log: Client, target: str, given: Any) -> None:
    batch = next(BATCHES)
    async with log.stage("nightly", batch, 0) as stage:
        await stage.append_arrow(target, given)
        part = await stage.seal()
    await log.commit_batch("nightly", batch, [part])


Use = Callable[[Client, str, Any], Awaitable[object]]
APPENDS: dict[str, Use] = {
    "append_arrow": lambda log, to, given: log.append_arrow(to, given),
    "into a partition": lambda log, to, given: log.append_arrow(to, given, partition="_default"),
    "in a transaction": in_txn,
    "staged": staged,
}


@pytest.mark.parametrize("how", APPENDS)
async def test_the_call_after_the_refusal_finds_the_collection_that_was_made_anew(
    address: str, name: str, how: str
) -> None:
    async with connect(address) as log, connect(address) as other:
        (old,) = (await log.collections.create(name, schema=SCHEMA)).vchannels
        await APPENDS[how](log, name, rows(1))
        await other.collections.drop(name)
        (new,) = (await other.collections.create(name, schema=SCHEMA)).vchannels
        with pytest.raises(OutdatedTarget, match=f"of vchannel '{old}' was dropped; look up"):
            await APPENDS[how](log, name, rows(2))
        await APPENDS[how](log, name, rows(3))
        assert await numbers(log, new) == [3]


@pytest.mark.parametrize("how", ["append", "append_batch"])
async def test_so_do_messages_for_a_plain_log_beside_rows(
    address: str, name: str, how: str
) -> None:
    uses: dict[str, Callable[[Client], Awaitable[object]]] = {
        "append": lambda log: log.append(name, b"x"),
        "append_batch": lambda log: log.append_batch(name, [b"x"]),
    }
    async with connect(address) as log, connect(address) as other:
        await log.collections.create(name)
        await uses[how](log)
        await other.collections.drop(name)
        (new,) = (await other.collections.create(name)).vchannels
        with pytest.raises(OutdatedTarget, match="was dropped"):
            await uses[how](log)
        await uses[how](log)
        found = [it.payload async for it in log.read(new, until="now").messages()]
        assert found == [b"x"]


@pytest.mark.parametrize("how", APPENDS)
async def test_the_log_names_the_drop_before_the_catalog_knows_of_it(
    address: str, name: str, how: str
) -> None:
    async with connect(address) as log:
        made = await log.collections.create(name, schema=SCHEMA)
        (shard,) = made.vchannels
        await APPENDS[how](log, name, rows(1))
        # The copy of the drop alone: what a crash before its effect on the catalog leaves.
        header = bytes(messages.DropCollectionMessageHeader(collection_id=made.id))
        drop = Message(b"", type=MessageType.DROP_COLLECTION, version=1, header=header)
        await log.raw_append(shard, drop)
        for _ in range(2):
            with pytest.raises(OutdatedTarget, match=f"of vchannel '{shard}' was dropped; look up"):
                await APPENDS[how](log, name, rows(2))
        assert await numbers(log, name) == [1]


async def test_a_restarted_broker_names_the_drop(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=2) as broker, connect(broker.address) as log:
        (shard,) = (await log.collections.create("c", schema=SCHEMA)).vchannels
        await log.append_arrow("c", rows(1))
        await log.collections.drop("c")
    async with local_broker(tmp_path, pchannels=2) as broker, connect(broker.address) as log:
        for _ in range(2):
            with pytest.raises(OutdatedTarget, match=f"of vchannel '{shard}' was dropped"):
                await log.append_arrow(shard, rows(2))
        with pytest.raises(NoSuchCollection):
            await log.append_arrow("c", rows(2))
