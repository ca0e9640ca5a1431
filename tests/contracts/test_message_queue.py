"""What every driver of `broker/ports/queues/message_queue.py` promises, run on each of them."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from broker.client.errors import TidemarkError
from broker.ports.queues.message_queue import MessageQueue, QueueConsumer
from broker.rocksmq import RocksMQError
from tests.contracts.queue_drivers import DRIVERS, Opened

DEADLINE_S = 120
ERRORS = (RocksMQError, TidemarkError)

Opener = Callable[[], Opened]


@pytest.fixture(params=DRIVERS)
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Opens the queue, whose messages stay when it is closed."""
    return lambda: DRIVERS[request.param](tmp_path)


def with_queue(test: Callable[[MessageQueue], Awaitable[None]]) -> Callable[[Opener], object]:
    """Give a test an open queue, of which each part begins and ends in the task of the test."""

    async def run(opener: Opener) -> None:
        async with asyncio.timeout(DEADLINE_S), opener() as queue:
            await test(queue)

    return run


async def received(consumer: QueueConsumer, count: int, *, ack: bool = True) -> list[bytes]:
    """At least so many messages."""
    found: list[bytes] = []
    while len(found) < count:
        delivery = await consumer.receive()
        found += delivery.payloads
        if ack:
            await delivery.ack()
    return found


async def nothing_more(queue: MessageQueue, consumer: QueueConsumer) -> None:
    """The next message is one that is sent now."""
    await queue.send([b"the last one"])
    assert await received(consumer, 1) == [b"the last one"]


@with_queue
async def test_messages_come_in_the_order_in_which_they_were_sent(queue: MessageQueue) -> None:
    await queue.create_group("workers")
    wanted = [b"%d" % number for number in range(500)]
    for begin in range(0, 500, 50):
        await queue.send(wanted[begin : begin + 50])
    async with queue.consumer("workers") as consumer:
        assert await received(consumer, 500) == wanted
        await nothing_more(queue, consumer)


@with_queue
async def test_empty_and_large_messages_come_as_they_are(queue: MessageQueue) -> None:
    await queue.create_group("workers")
    wanted = [b"", bytes(range(256)), b"x" * (1 << 20), b""]
    await queue.send(wanted)
    async with queue.consumer("workers") as consumer:
        assert await received(consumer, len(wanted)) == wanted


@with_queue
async def test_an_empty_batch_sends_nothing(queue: MessageQueue) -> None:
    await queue.create_group("workers")
    await queue.send([])
    async with queue.consumer("workers") as consumer:
        await nothing_more(queue, consumer)


@with_queue
async def test_every_group_gets_every_message_also_those_before_it(queue: MessageQueue) -> None:
    wanted = [b"%d" % number for number in range(20)]
    await queue.send(wanted)
    for group in ("workers", "audit"):
        await queue.create_group(group)
    for group in ("workers", "audit"):
        async with queue.consumer(group) as consumer:
            assert await received(consumer, 20) == wanted


@with_queue
async def test_a_consumer_waits_for_the_next_message_and_no_wake_up_is_lost(
    queue: MessageQueue,
) -> None:
    await queue.create_group("workers")
    wanted = [b"%d" % number for number in range(60)]

    async def send() -> None:
        for payload in wanted:
            await queue.send([payload])

    async with queue.consumer("workers") as consumer, asyncio.TaskGroup() as tasks:
        taking = tasks.create_task(received(consumer, 60))
        tasks.create_task(send())
        assert await taking == wanted


@with_queue
async def test_what_was_not_acknowledged_comes_again_to_the_next_consumer(
    queue: MessageQueue,
) -> None:
    await queue.create_group("workers")
    await queue.send([b"a", b"b"])
    async with queue.consumer("workers") as consumer:
        assert await received(consumer, 2) == [b"a", b"b"]
        await queue.send([b"c", b"d"])
        assert await received(consumer, 2, ack=False) == [b"c", b"d"]
    async with queue.consumer("workers") as consumer:
        assert await received(consumer, 2) == [b"c", b"d"]
        await nothing_more(queue, consumer)


@with_queue
async def test_deliveries_are_acknowledged_one_by_one(queue: MessageQueue) -> None:
    await queue.create_group("workers")
    async with queue.consumer("workers") as consumer:
        await queue.send([b"a"])
        first = await consumer.receive()
        await queue.send([b"b"])
        second = await consumer.receive()
        assert [*first.payloads, *second.payloads] == [b"a", b"b"]
        await first.ack()
    async with queue.consumer("workers") as consumer:
        assert await received(consumer, 1) == [b"b"]


@with_queue
async def test_a_cancelled_receive_loses_no_message(queue: MessageQueue) -> None:
    await queue.create_group("workers")
    async with queue.consumer("workers") as consumer:
        for number in range(10):
            waiting = asyncio.get_running_loop().create_task(consumer.receive())
            for _ in range(number):
                await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            assert waiting.cancelled()
        await queue.send([b"a"])
        assert await received(consumer, 1) == [b"a"]


async def test_a_reopened_queue_has_all_messages_and_knows_what_was_acknowledged(
    opener: Opener,
) -> None:
    async with asyncio.timeout(DEADLINE_S):
        async with opener() as queue:
            await queue.create_group("workers")
            await queue.send([b"a", b"b"])
            async with queue.consumer("workers") as consumer:
                assert await received(consumer, 2) == [b"a", b"b"]
                await queue.send([b"c"])
                assert await received(consumer, 1, ack=False) == [b"c"]
        async with opener() as queue:
            await queue.send([b"d"])
            async with queue.consumer("workers") as consumer:
                assert await received(consumer, 2) == [b"c", b"d"]
                await nothing_more(queue, consumer)


@with_queue
async def test_groups_are_made_once_and_dropped_once(queue: MessageQueue) -> None:
    await queue.create_group("workers")
    with pytest.raises(ERRORS, match="workers"):
        await queue.create_group("workers")
    await queue.drop_group("workers")
    with pytest.raises(ERRORS, match="workers"):
        await queue.drop_group("workers")


@with_queue
async def test_an_unknown_group_has_no_consumer(queue: MessageQueue) -> None:
    with pytest.raises(ERRORS, match="'nobody'"):
        async with queue.consumer("nobody"):
            pass


@with_queue
async def test_a_group_that_is_made_again_begins_at_the_first_message(queue: MessageQueue) -> None:
    await queue.create_group("workers")
    await queue.send([b"a"])
    async with queue.consumer("workers") as consumer:
        assert await received(consumer, 1) == [b"a"]
    await queue.drop_group("workers")
    await queue.create_group("workers")
    async with queue.consumer("workers") as consumer:
        assert await received(consumer, 1) == [b"a"]
