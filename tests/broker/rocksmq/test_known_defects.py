"""The defects of earlier RocksMQs, each absent; the README beside this file has their table."""

import asyncio
from pathlib import Path

import pytest

from broker.core.rocksmq.page_retention import PageRules
from broker.core.rocksmq.queue_keys import data_key
from broker.model.rocksmq.ordered_writes import Put, RemoveRange
from broker.rocksmq import RocksMQ, RocksMQFailed, SeekOutOfRange, UnknownChannel
from tests.broker.rocksmq.faulty_store import FaultyStore
from tests.broker.rocksmq.open_queues import open_on, payloads, with_group

AT_ONCE = PageRules(page_bytes=100, age_ms_max=0, size_bytes_max=None)
MESSAGE = b"x" * 60


async def test_1_a_first_channel_is_made_and_a_new_group_begins_in_its_own_channel(
    tmp_path: Path,
) -> None:
    async with await RocksMQ.open(tmp_path) as mq:
        await mq.create_channel("a")
        await mq.produce("a", [b"of a"])
        await with_group(mq, "b")
        assert await payloads(mq, "b") == []
        await mq.produce("b", [b"of b"])
        assert await payloads(mq, "b") == [b"of b"]


async def test_2_a_position_whose_message_was_removed_loses_and_repeats_nothing(
    tmp_path: Path,
) -> None:
    async with await RocksMQ.open(tmp_path, rules=AT_ONCE) as mq:
        await with_group(mq)
        ids = await mq.produce("orders", [MESSAGE] * 6)
        await mq.consume("workers", "orders", 2)
        await mq.commit("workers", "orders")
        await mq.sweep()  # the last message that was consumed is gone
        assert mq.describe_channel("orders").begin_id == ids[2]
        assert [it.msg_id for it in await mq.consume("workers", "orders", 10)] == ids[2:]
        await mq.commit("workers", "orders")
        await mq.sweep()  # and now all of them
        assert await mq.consume("workers", "orders", 10) == []
        later = await mq.produce("orders", [b"later"])
        assert [it.msg_id for it in await mq.consume("workers", "orders", 10)] == later


async def test_3_a_seek_beyond_the_end_or_below_what_is_left_is_refused(tmp_path: Path) -> None:
    async with await RocksMQ.open(tmp_path, rules=AT_ONCE) as mq:
        await with_group(mq)
        ids = await mq.produce("orders", [MESSAGE] * 4)
        with pytest.raises(SeekOutOfRange, match=str(ids[-1] + 2)):
            await mq.seek("workers", "orders", ids[-1] + 2)
        await mq.seek("workers", "orders", ids[2])
        await mq.sweep()
        with pytest.raises(SeekOutOfRange, match="are removed"):
            await mq.seek("workers", "orders", ids[1])
        assert len(await payloads(mq)) == 2


async def test_4_nothing_is_removed_before_the_slowest_group_has_read_it(tmp_path: Path) -> None:
    async with await RocksMQ.open(tmp_path, rules=AT_ONCE) as mq:
        await with_group(mq)
        await mq.create_consumer_group("slow", "orders")
        await mq.produce("orders", [MESSAGE] * 6)
        await payloads(mq)
        await mq.commit("workers", "orders")
        await mq.sweep()
        assert len(await payloads(mq, group="slow")) == 6


async def test_5_size_counts_every_message_and_a_failed_sweep_is_raised(tmp_path: Path) -> None:
    store = FaultyStore()
    rules = PageRules(page_bytes=100, age_ms_max=None, size_bytes_max=200)
    async with open_on(store, tmp_path, rules=rules) as mq:
        await with_group(mq)
        ids = await mq.produce("orders", [MESSAGE] * 6)  # pages of 120 bytes
        await payloads(mq)
        await mq.commit("workers", "orders")
        store.fail_writes = {store.writes + 1}
        with pytest.raises(RocksMQFailed, match="I/O error"):
            await mq.sweep()
        assert mq.describe_channel("orders").page_bytes == 360
        await mq.sweep()
        view = mq.describe_channel("orders")
        assert (view.page_bytes, view.begin_id) == (120, ids[4])
        assert [data_key("orders", it) in store.entries for it in ids] == [False] * 4 + [True] * 2


def test_6_a_megabyte_of_the_rules_is_2_to_the_20() -> None:
    assert PageRules().page_bytes == 64 * 1024 * 1024
    assert PageRules().size_bytes_max == 8192 * 1024 * 1024


async def test_7_a_channel_that_is_made_again_shows_no_old_messages(tmp_path: Path) -> None:
    async with await RocksMQ.open(tmp_path) as mq:
        await with_group(mq)
        await mq.produce("orders", [b"old"] * 3)
        await mq.destroy_channel("orders")
        await with_group(mq)
        assert await payloads(mq) == []
        await mq.produce("orders", [b"new"])
    async with await RocksMQ.open(tmp_path) as mq:
        assert await payloads(mq) == [b"new"]


async def test_8_closing_keeps_channels_groups_and_messages(tmp_path: Path) -> None:
    async with await RocksMQ.open(tmp_path) as mq:
        await with_group(mq)
        await mq.produce("orders", [b"kept"])
    async with await RocksMQ.open(tmp_path) as mq:
        assert mq.consumer_group_exists("workers", "orders")
        assert await payloads(mq) == [b"kept"]


async def test_9_after_a_restart_produce_and_consume_work_at_once(tmp_path: Path) -> None:
    async with await RocksMQ.open(tmp_path) as mq:
        await with_group(mq)
    async with await RocksMQ.open(tmp_path) as mq:
        await mq.produce("orders", [b"a"])
        assert await payloads(mq) == [b"a"]
        with pytest.raises(UnknownChannel, match="'other'"):
            await mq.produce("other", [b"a"])


async def test_10_messages_and_metadata_are_one_batch(tmp_path: Path) -> None:
    store = FaultyStore()
    async with open_on(store, tmp_path, rules=AT_ONCE) as mq:
        await with_group(mq)
        store.batches.clear()
        ids = await mq.produce("orders", [MESSAGE] * 2)
        (batch,) = store.batches
        keys = {it.key for it in batch if isinstance(it, Put)}
        assert {data_key("orders", it) for it in ids} < keys
        assert {b"meta/orders/begin_id", b"meta/orders/end_id"} < keys
        await payloads(mq)
        await mq.commit("workers", "orders")
        store.batches.clear()
        await mq.sweep()
        (batch,) = store.batches
        assert any(isinstance(it, RemoveRange) for it in batch)
        assert any(isinstance(it, Put) and it.key == b"meta/orders/begin_id" for it in batch)


async def test_11_the_position_of_a_group_survives(tmp_path: Path) -> None:
    async with await RocksMQ.open(tmp_path) as mq:
        await with_group(mq)
        await mq.produce("orders", [b"a", b"b", b"c"])
        await mq.consume("workers", "orders", 2)
    async with await RocksMQ.open(tmp_path) as mq:
        assert await payloads(mq) == [b"c"]


async def test_12_no_wake_up_is_lost_and_one_consumer_closes_no_other(tmp_path: Path) -> None:
    async with asyncio.timeout(60), await RocksMQ.open(tmp_path) as mq:
        await with_group(mq)
        await mq.create_consumer_group("audit", "orders")
        wanted = [b"%d" % number for number in range(300)]

        async def follow(group: str, count: int) -> list[bytes]:
            found: list[bytes] = []
            async for message in mq.messages(group, "orders"):
                found.append(message.payload)
                if len(found) == count:
                    break
            return found

        async def produce() -> None:
            for payload in wanted:
                await mq.produce("orders", [payload])
                await asyncio.sleep(0)

        followed, stopped, _ = await asyncio.gather(
            follow("workers", 300), follow("audit", 10), produce()
        )
        assert followed == wanted
        assert stopped == wanted[:10]
        assert await payloads(mq, group="audit") == wanted[10:]


async def test_13_what_is_done_to_a_channel_leaves_those_with_longer_names_alone(
    tmp_path: Path,
) -> None:
    async with await RocksMQ.open(tmp_path, rules=AT_ONCE) as mq:
        for name in ("a", "ab", "a0", "a!"):
            await with_group(mq, name)
            await mq.produce(name, [MESSAGE] * 3)
        await payloads(mq, "a")
        await mq.commit("workers", "a")
        await mq.sweep()
        await mq.destroy_channel("a")
    async with await RocksMQ.open(tmp_path) as mq:
        assert mq.channels() == ["a!", "a0", "ab"]
        for name in mq.channels():
            assert mq.describe_channel(name).pages == 1
            assert await payloads(mq, name) == [MESSAGE] * 3
