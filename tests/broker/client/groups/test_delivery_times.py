"""Every way to append takes `deliver_at` and `ttl_s`, and groups keep to them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from broker.client import Client, Message
from broker.client.errors import BadTarget, InvalidArgument
from broker.model.ids import TICK_LOGICAL_BITS
from tests.broker.client.groups.test_delayed_messages import DAY_MS, now_ms
from tests.broker.client.groups.test_groups import running

Append = Callable[..., Awaitable[object]]

MESSAGE_WAYS = ("append", "append_batch", "append_messages")
ROWS = pa.schema([("id", pa.int64())])


@asynccontextmanager
async def unit(log: Client, kind: str) -> AsyncIterator[Any]:
    """What appends: the client itself, a transaction, a staged batch, or a stage."""
    if kind == "client":
        yield log
    elif kind == "txn":
        async with log.txn("trains") as txn:
            yield txn
    elif kind == "staged":
        async with log.staged() as staged:
            yield staged
    else:
        async with log.stage("nightly", batch=1, part=0) as stage:
            yield stage
            part = await stage.seal()
        await log.commit_batch("nightly", 1, [part])


def messages_of(way: str, payload: bytes) -> list[Any]:
    """The argument of the way that has the payload."""
    return [{"append": payload, "append_batch": [payload]}.get(way, [Message(payload)])]


async def until_ms_later(log: Client, tick: int) -> None:
    """Append until a message lies two milliseconds behind the tick."""
    while True:
        landed = await log.append("marks", b"")
        if (landed.tick >> TICK_LOGICAL_BITS) > (tick >> TICK_LOGICAL_BITS) + 2:
            return


async def came(log: Client, last: bytes) -> list[bytes]:
    """What a new group gets, up to a last message."""
    found: list[bytes] = []
    async with log.group("workers").join("trains") as member:
        while last not in found:
            batch = await member.__anext__()
            found += batch.payloads
            await batch.ack()
    return found


@pytest.mark.parametrize("kind", ["client", "txn", "staged", "stage"])
async def test_every_append_of_messages_takes_a_time_and_a_time_to_live(
    tmp_path: Path, kind: str
) -> None:
    async with running(tmp_path) as (_, log):
        for name in ("trains", "marks"):
            await log.collections.create(name, shards=1)
        where = [] if kind == "txn" else ["trains"]
        async with unit(log, kind) as out:
            for way in MESSAGE_WAYS:
                append: Append = getattr(out, way)
                await append(*where, *messages_of(way, b"short"), ttl_s=0.001)
                await append(*where, *messages_of(way, b"long"), ttl_s=600)
                later = {"deliver_at": now_ms() + DAY_MS}
                await append(*where, *messages_of(way, b"tomorrow"), **later)
                with pytest.raises(InvalidArgument, match="ttl_s is -1"):
                    await append(*where, *messages_of(way, b""), ttl_s=-1)
        if kind == "client":
            soon = [log.append_soon("trains", Message(b"short"), ttl_s=0.001)]
            soon += [log.append_soon("trains", Message(b"tomorrow"), deliver_at=now_ms() + DAY_MS)]
            for each in soon:
                await (await each)
            with pytest.raises(BadTarget, match="are for plain messages"):
                await log.append_soon("trains", Message(b"", version=2), ttl_s=1)
        last = await log.append("trains", b"end")
        await until_ms_later(log, last.tick)
        assert await came(log, b"end") == [*[b"long"] * len(MESSAGE_WAYS), b"end"]
        stored = [it async for it in log.read("trains", until="now")]
        found = [message.payload for batch in stored for message in batch.messages]
        every = len(MESSAGE_WAYS) + (kind == "client")
        assert [found.count(it) for it in (b"short", b"tomorrow")] == [every, every]


@pytest.mark.parametrize("kind", ["client", "txn", "staged", "stage"])
async def test_rows_have_a_time_to_live_as_well(tmp_path: Path, kind: str) -> None:
    async with running(tmp_path) as (_, log):
        await log.collections.create("trains", shards=1, schema=ROWS)
        await log.collections.create("marks")
        where = [] if kind == "txn" else ["trains"]
        async with unit(log, kind) as out:
            for id, ttl_s in ((1, 0.001), (2, 600), (3, None)):
                table = pa.table({"id": [id]}, schema=ROWS)
                await out.append_arrow(*where, table, ttl_s=ttl_s)
            with pytest.raises(InvalidArgument, match="ttl_s is 0"):
                await out.append_arrow(*where, table, ttl_s=0)
        last = await log.append_arrow("trains", pa.table({"id": [4]}, schema=ROWS))
        await until_ms_later(log, last[0].tick)
        found: list[int] = []
        async with log.group("workers").join("trains") as member:
            while 4 not in found:
                batch = await member.__anext__()
                for each in batch.batches:
                    found += each.rows().column("id").to_pylist()
                await batch.ack()
        assert found == [2, 3, 4]
