"""Retention on a real folder: space is given back, sweeps happen by themselves."""

import asyncio
import random
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from broker.core.rocksmq.page_retention import PageRules
from broker.rocksmq import RocksMQ
from tests.broker.rocksmq.faulty_store import FaultyStore
from tests.broker.rocksmq.open_queues import open_on, payloads, with_group

AT_ONCE = PageRules(page_bytes=100, age_ms_max=0, size_bytes_max=None)
MESSAGE = b"x" * 60


async def test_the_worked_example_leaves_message_3_as_the_first_for_a_new_group(
    tmp_path: Path,
) -> None:
    async with await RocksMQ.open(tmp_path, rules=AT_ONCE) as mq:
        await with_group(mq, "c", "g1")
        await mq.create_consumer_group("g2", "c")
        ids = await mq.produce("c", [MESSAGE] * 6)
        await mq.consume("g1", "c", 4)
        await mq.consume("g2", "c", 2)
        for group in ("g1", "g2"):
            await mq.commit(group, "c")
        assert mq.describe_channel("c").pages == 3
        await mq.sweep()
        view = mq.describe_channel("c")
        assert (view.begin_id, view.end_id, view.pages) == (ids[2], ids[5] + 1, 2)
        await mq.create_consumer_group("new", "c")
        assert [it.msg_id for it in await mq.consume("new", "c", 10)] == ids[2:]
        assert [it.msg_id for it in await mq.consume("g1", "c", 10)] == ids[4:]
        assert [it.msg_id for it in await mq.consume("g2", "c", 10)] == ids[2:]
    async with await RocksMQ.open(tmp_path) as mq:
        assert mq.describe_channel("c").begin_id == ids[2]


def used_bytes(folder: Path) -> int:
    return sum(it.stat().st_blocks * 512 for it in folder.rglob("*") if it.is_file())


async def test_removed_messages_give_their_space_back(tmp_path: Path) -> None:
    rules = PageRules(page_bytes=1 << 20, age_ms_max=0, size_bytes_max=None)
    random_bytes = random.Random(7).randbytes  # what is stored is compressed; this cannot be
    async with await RocksMQ.open(tmp_path, rules=rules) as mq:
        await with_group(mq)
        for _ in range(60):
            await mq.produce("orders", [random_bytes(100_000) for _ in range(10)])
        while await mq.consume("workers", "orders", 1000):
            pass
        await mq.commit("workers", "orders")
        before = await asyncio.to_thread(used_bytes, tmp_path)
        assert before > 60_000_000
        await mq.sweep()
        assert mq.describe_channel("orders").page_bytes == 0
        assert await asyncio.to_thread(used_bytes, tmp_path) < before - 55_000_000
        await mq.produce("orders", [b"on"])
        assert (await payloads(mq))[-1] == b"on"


async def test_sweeps_happen_by_themselves_and_a_failed_one_is_told(tmp_path: Path) -> None:
    store = FaultyStore()
    async with asyncio.timeout(60), open_on(store, tmp_path, rules=AT_ONCE) as mq:
        await with_group(mq)
        await mq.produce("orders", [MESSAGE] * 6)
        await payloads(mq)
        await mq.commit("workers", "orders")
        store.full = True
        with capture_logs() as logs:
            mq._sweeper.begin(0.001)
            while not logs:  # noqa: ASYNC110 - a timer fires
                await asyncio.sleep(0.001)
        assert logs[0]["event"] == "rocksmq.sweep_failed"
        assert "No space left" in logs[0]["error"]
        store.full = False
        while mq.describe_channel("orders").pages or not store.compacted:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert not any(key.startswith(b"data/") for key in store.entries)
    writes = store.writes
    await asyncio.sleep(0.01)
    assert store.writes == writes, "closed: no sweep begins any more"


@pytest.mark.parametrize("groups", [0, 1])
async def test_what_nobody_has_read_is_kept(tmp_path: Path, groups: int) -> None:
    async with await RocksMQ.open(tmp_path, rules=PageRules(100, 0, 0)) as mq:
        await mq.create_channel("orders")
        for number in range(groups):
            await mq.create_consumer_group(f"g{number}", "orders")
        await mq.produce("orders", [MESSAGE] * 6)
        await mq.sweep()
        await mq.create_consumer_group("late", "orders")
        assert len(await payloads(mq, group="late")) == 6
