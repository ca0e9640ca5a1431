"""A consumer that saves a reader's closed tick and resumes behind it misses no message."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pyarrow as pa
import pytest

from broker.client import Client, connect
from broker.client.read.row_scanner import MESSAGE_ID
from tests.local_broker import local_broker

GUARD_S = 60.0
TABLES, ROWS_EACH, BEYOND = 6, 3, 2
SCHEMA = pa.schema([("k", pa.int64())])


def reader_of(log: Client, form: str, vchannel: str, **bounds: Any) -> Any:
    match form:
        case "messages" | "single":
            return log.read(vchannel, **bounds)
        case "batches":
            return log.read_batches(vchannel, **bounds)
        case _:
            return log.read_arrow(vchannel, schema=SCHEMA, **bounds)


def ids_of(form: str, came: Any) -> list[int]:
    if form == "rows":
        return came[MESSAGE_ID].to_pylist()  # type: ignore[no-any-return]
    return [came.id] if form == "single" else [it.id for it in came.messages]


async def ids(form: str, steps: AsyncIterator[Any], count: int = 1000) -> list[int]:
    found = list[int]()
    for _ in range(count):
        try:
            found += ids_of(form, await anext(steps))
        except StopAsyncIteration:
            break
    return found


@pytest.mark.parametrize("form", ["messages", "single", "batches", "rows"])
async def test_resuming_behind_the_closed_tick_misses_nothing(form: str, tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        collection = await log.collections.create("rows", shards=1, schema=SCHEMA)
        (vchannel,) = collection.vchannels
        landed = list[int]()

        async def append() -> None:
            rows = pa.table({"k": range(ROWS_EACH)}, schema=SCHEMA)
            (it,) = await log.append_arrow(vchannel, rows)
            landed.extend(range(it.id, it.id + ROWS_EACH))

        for _ in range(TABLES):
            await append()
        cut = await log.cut(vchannel)
        for _ in range(BEYOND):
            await append()
        for until in (cut, "now"):
            for count in range(TABLES * ROWS_EACH + BEYOND):
                async with reader_of(log, form, vchannel, until=until) as reader:
                    steps = reader.messages() if form == "single" else reader
                    with anyio.fail_after(GUARD_S):
                        before = await ids(form, steps, count)
                        await anyio.wait_all_tasks_blocked()
                    start = ("tick", reader.closed_tick + 1)
                rest = reader_of(log, form, vchannel, until="now", start=start)
                with anyio.fail_after(GUARD_S):
                    after = await ids(form, rest.messages() if form == "single" else rest)
                found = {*before, *after}
                assert found >= {*landed}, (count, start, sorted({*landed} - found))
