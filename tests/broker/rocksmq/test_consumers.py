"""Consumers: woken by every produce, ended by what is destroyed, never given a message twice."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.rocksmq import (
    ConsumerMessage,
    RocksMQ,
    RocksMQClosed,
    UnknownChannel,
    UnknownConsumerGroup,
)
from tests.broker.rocksmq.faulty_store import FaultyStore
from tests.broker.rocksmq.open_queues import open_on, payloads, with_group


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore()


@pytest.fixture
async def mq(store: FaultyStore, tmp_path: Path) -> AsyncIterator[RocksMQ]:
    async with open_on(store, tmp_path) as opened:
        yield await with_group(opened)


async def waiting(mq: RocksMQ) -> "asyncio.Task[ConsumerMessage]":
    """An iterator that waits for its first message."""
    task = asyncio.get_running_loop().create_task(anext(mq.messages("workers", "orders")))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()
    return task


async def test_every_waiting_consumer_of_a_channel_wakes(mq: RocksMQ) -> None:
    await mq.create_consumer_group("audit", "orders")
    tasks = [await waiting(mq)]
    tasks.append(asyncio.get_running_loop().create_task(anext(mq.messages("audit", "orders"))))
    await mq.produce("orders", [b"a"])
    assert [it.payload for it in await asyncio.gather(*tasks)] == [b"a", b"a"]


async def test_a_produce_on_another_channel_wakes_nobody(mq: RocksMQ) -> None:
    task = await waiting(mq)
    await mq.create_channel("other")
    await mq.produce("other", [b"x"])
    assert not task.done()
    await mq.produce("orders", [b"a"])
    assert (await task).payload == b"a"


@pytest.mark.parametrize("what", ["channel", "group", "queue"])
async def test_waiting_consumers_end_when_what_they_wait_for_is_gone(
    mq: RocksMQ, what: str
) -> None:
    task = await waiting(mq)
    waiter = asyncio.get_running_loop().create_task(mq.wait("workers", "orders"))
    await asyncio.sleep(0)
    if what == "channel":
        await mq.destroy_channel("orders")
        error: type[Exception] = UnknownChannel
    elif what == "group":
        await mq.destroy_consumer_group("workers", "orders")
        error = UnknownConsumerGroup
    else:
        await mq.close()
        error = RocksMQClosed
    for ended in await asyncio.gather(task, waiter, return_exceptions=True):
        assert isinstance(ended, error)


async def test_a_group_that_is_made_again_begins_at_the_first_message_for_its_old_consumers(
    mq: RocksMQ,
) -> None:
    await mq.produce("orders", [b"a", b"b"])
    follower = mq.messages("workers", "orders")
    assert (await anext(follower)).payload == b"a"
    await mq.destroy_consumer_group("workers", "orders")
    with pytest.raises(UnknownConsumerGroup):
        await anext(follower)
    await mq.create_consumer_group("workers", "orders")
    assert [(await anext(follower)).payload for _ in range(2)] == [b"a", b"b"]


async def test_iterators_and_consumers_of_a_group_share_its_messages(mq: RocksMQ) -> None:
    wanted = [b"%d" % number for number in range(1000)]
    await mq.produce("orders", wanted)
    found: list[bytes] = []

    async def iterate() -> None:
        async for message in mq.messages("workers", "orders"):
            found.append(message.payload)
            await asyncio.sleep(0)

    async def consume() -> None:
        while len(found) < len(wanted):
            found.extend(it.payload for it in await mq.consume("workers", "orders", 3))
            await asyncio.sleep(0)

    tasks = [asyncio.get_running_loop().create_task(it) for it in (iterate(), iterate())]
    await asyncio.gather(consume(), consume())
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert sorted(found) == sorted(wanted)


async def test_an_iterator_follows_a_seek_of_its_group(mq: RocksMQ) -> None:
    ids = await mq.produce("orders", [b"%d" % number for number in range(5)])
    follower = mq.messages("workers", "orders")
    assert [(await anext(follower)).payload for _ in range(3)] == [b"0", b"1", b"2"]
    await mq.seek("workers", "orders", ids[1])
    assert [(await anext(follower)).payload for _ in range(3)] == [b"1", b"2", b"3"]
    await mq.seek_to_latest("workers", "orders")
    await mq.produce("orders", [b"new"])
    assert (await anext(follower)).payload == b"new"


async def test_a_message_of_an_iterator_is_processed_when_the_next_one_is_asked_for(
    mq: RocksMQ, store: FaultyStore, tmp_path: Path
) -> None:
    ids = await mq.produce("orders", [b"a", b"b", b"c"])
    follower = mq.messages("workers", "orders")
    await anext(follower)
    await anext(follower)
    await mq.produce("orders", [b"d"])  # positions go with any write
    assert store.entries[b"meta/workers/orders/current_id"] == b"%d" % ids[1]


async def test_a_cancelled_consumer_has_taken_nothing(mq: RocksMQ) -> None:
    wanted = [b"%d" % number for number in range(50)]
    await mq.produce("orders", wanted)
    for turns in range(6):
        task = asyncio.get_running_loop().create_task(mq.consume("workers", "orders", 5))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            wanted = wanted[len(task.result()) :]
    assert await payloads(mq) == wanted


async def test_a_cancelled_wait_leaves_the_message_for_the_next_one(mq: RocksMQ) -> None:
    task = await waiting(mq)
    task.cancel()
    await asyncio.wait([task])
    await mq.produce("orders", [b"a"])
    assert await payloads(mq) == [b"a"]


async def test_a_consume_that_reads_while_its_channel_is_destroyed_ends_with_the_error(
    mq: RocksMQ,
) -> None:
    await mq.produce("orders", [b"a"] * 100)
    consumes = [
        asyncio.get_running_loop().create_task(mq.consume("workers", "orders", 1))
        for _ in range(20)
    ]
    await asyncio.sleep(0)
    await mq.destroy_channel("orders")
    for outcome in await asyncio.gather(*consumes, return_exceptions=True):
        if isinstance(outcome, BaseException):
            assert isinstance(outcome, UnknownChannel | UnknownConsumerGroup)
        else:
            assert len(outcome) == 1
