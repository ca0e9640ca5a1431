"""A broker whose memory is short: who appends waits or is told why; who reads is served.

A process that may use one byte is above every mark, whatever machine runs the test.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

from broker.client import Client, connect
from broker.client.errors import RateLimited
from tests.limits.refusals import refused
from tests.local_broker import local_broker

GUARD_S = 60.0


async def until(found: Callable[[], Awaitable[bool]]) -> None:
    with anyio.fail_after(GUARD_S):
        while not await found():  # noqa: ASYNC110 - a live broker is looked at from outside
            await anyio.sleep(0.01)


async def make_short(log: Client) -> None:
    await log.config.set("memory_bytes_max", "1")

    async def warned() -> bool:
        return any("memory watermark REFUSE" in it for it in (await log.admin.health()).warnings)

    await until(warned)


async def test_an_append_waits_until_there_is_room_and_is_stored_then(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker, connect(broker.address) as log:
        await log.collections.create("trains", shards=1)
        await make_short(log)
        landed: list[int] = []

        async def append() -> None:
            landed.append((await log.append("trains", b"during", deadline_s=GUARD_S)).id)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(append)
            with anyio.move_on_after(0.3):
                await anyio.sleep_forever()
            assert landed == []
            await log.config.set("memory_bytes_max", "0")
        assert len(landed) == 1
        assert not any("watermark" in it for it in (await log.admin.health()).warnings)


async def test_a_deadline_names_the_limit_and_reads_and_drops_go_on(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker, connect(broker.address) as log:
        await log.collections.create("trains", shards=1)
        await log.append("trains", b"before")
        await make_short(log)
        error = await refused(
            lambda within_s: log.append("trains", b"never", deadline_s=within_s),
            "memory watermark REFUSE",
        )
        assert isinstance(error.__cause__, RateLimited)
        read = [
            message.payload
            async for batch in log.read("trains", start="all", until="now")
            for message in batch.messages
        ]
        assert read == [b"before"]
        await log.collections.drop("trains")
