"""Retention of collections in a real broker: in force at once, over kill -9, its space is back."""

from pathlib import Path

import anyio
import pytest

from broker.client import Client, InvalidArgument, Unrecoverable, connect
from tests.broker_process import BrokerProcess
from tests.chaos.test_space import SETTINGS, fill, numbers_of, stored_bytes, until_below

FORCE_S_MAX = 180.0  # a guard against hanging; some seconds where nothing else runs


async def until_only(log: Client, name: str, numbers: set[int]) -> None:
    """Until a collection holds nothing but these; else tell what it holds, and what keeps it."""
    held = None
    with anyio.move_on_after(FORCE_S_MAX):
        while True:
            held = set(await numbers_of(log, name))
            if held <= numbers:
                return
            await anyio.sleep(0.5)  # a reader holds what it reads: most looks must find none
    found = await log.collections.get(name)
    actors = [it for it in await log.admin.actors() if it.path.endswith("/retention_keeper")]
    raise AssertionError(f"{name} still holds {held}, or cannot be read: {found}, {actors}")


async def test_messages_that_are_too_old_go_and_their_bytes_come_back(tmp_path: Path) -> None:
    data = tmp_path / "data"
    broker = BrokerProcess(data, **SETTINGS)
    try:
        async with connect(broker.address) as log:
            await log.collections.create("short", shards=2)
            await log.collections.create("kept", shards=2)
            for turn in range(10):
                await fill(log, "short", turn)
            await fill(log, "kept", 0)
            before = stored_bytes(data)
            altered = await log.collections.alter("short", retention_ms=1000)
            assert altered.retention.age_ms_max == 1000
            await until_only(log, "short", set())
            vchannel = altered.vchannels[0]
            with pytest.raises(Unrecoverable, match="removed by a purge"):
                async for _ in log.read(vchannel, start=("tick", 2), until="now"):
                    pass
        broker.kill()
        broker = BrokerProcess(data, **SETTINGS)
        async with connect(broker.address) as log:
            found = await log.collections.get("short")
            assert found.retention.age_ms_max == 1000
            await until_below(data, 0.3 * before)
            await fill(log, "short", 11)
            await until_only(log, "short", set())
            await log.collections.alter("short", retention_ms=-1)
            await fill(log, "short", 12)
            await log.collections.create("later", shards=2, retention_ms=1000)
            await fill(log, "later", 13)
            await until_only(log, "later", set())
            assert set(await numbers_of(log, "short")) == {12}
            assert await numbers_of(log, "kept") == [0] * 40
            with pytest.raises(InvalidArgument, match="retention_ms is 0"):
                await log.collections.alter("short", retention_ms=0)
    finally:
        broker.kill()
