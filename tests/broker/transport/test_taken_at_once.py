"""Messages that are taken when they arrive, before the task that reads the stream wakes."""

import asyncio

import pytest

from broker.client.errors import DeadlineExceeded
from broker.client.lifetime import ClientLifetime
from broker.client.net.connection import Connection, Conversation
from broker.transport import ServerBatchStream, open_call
from schemas.encoding.oversize import FrameTooLarge
from tests.broker.transport.echo import CALL, HOST, call, serving

DEADLINE_S = 60
SILENCE_S = 2.0
"""Longer than the loop waits on most machines."""


async def answered_one_by_one(stream: ServerBatchStream) -> None:
    """Send back each message in a frame of its own."""
    while messages := await stream.read_batch():
        for each in messages:
            await stream.write_batch([each])


class Taken:
    """Takes what begins with `t`."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.more = asyncio.Event()
        self.at_s = 0.0
        """When the last one came."""

    def take(self, message: bytes) -> bool:
        if message.startswith(b"t"):
            self.messages.append(message)
            self.more.set()
            self.at_s = asyncio.get_running_loop().time()
        return message.startswith(b"t")


async def refused(stream: Conversation, taken: Taken) -> float:
    """Read until nothing has come for so long; the time since the last one was taken."""
    with pytest.raises(DeadlineExceeded, match="sent nothing"):
        await stream.read(SILENCE_S)
    return asyncio.get_running_loop().time() - taken.at_s


async def test_a_lone_message_is_taken_and_the_reader_goes_on_waiting() -> None:
    async with (
        asyncio.timeout(DEADLINE_S),
        serving() as (_, channel),
        call(channel) as stream,
        asyncio.TaskGroup() as tasks,
    ):
        taken = Taken()
        stream.take_at_once(taken.take)
        reading = tasks.create_task(stream.read_batch())
        await stream.write_batch([b"t1"])
        await taken.more.wait()
        assert taken.messages == [b"t1"]
        assert not reading.done()
        await stream.write_batch([b"r"])
        assert await reading == [b"r"]


async def test_messages_that_come_together_are_left_to_the_reader() -> None:
    async with asyncio.timeout(DEADLINE_S), serving() as (_, channel), call(channel) as stream:
        taken = Taken()
        stream.take_at_once(taken.take)
        await stream.write_batch([b"t1", b"t2"])
        assert await stream.read_batch() == [b"t1", b"t2"]
        assert taken.messages == []


async def test_taken_or_read_messages_keep_their_order_and_none_is_lost() -> None:
    async with (
        asyncio.timeout(DEADLINE_S),
        serving(answered_one_by_one) as (_, channel),
        call(channel) as stream,
        asyncio.TaskGroup() as tasks,
    ):
        seen: list[bytes] = []

        def take(message: bytes) -> bool:
            if message.startswith(b"t"):
                seen.append(message)
            return message.startswith(b"t")

        stream.take_at_once(take)
        # Also longer than a frame of HTTP/2, so that they arrive in parts.
        sent = [(b"r", b"t")[at % 3 > 0] + b"%d," % at + bytes(at * 500) for at in range(200)]
        tasks.create_task(stream.write_batch(sent))
        while len(seen) < len(sent):
            seen += await stream.read_batch()
        assert seen == sent


async def test_windows_are_given_back_for_what_is_taken() -> None:
    taken = Taken()
    read: list[bytes] = []

    async def serve(stream: ServerBatchStream) -> None:
        stream.take_at_once(taken.take)
        while b"r" not in read:
            read.extend(await stream.read_batch())
            taken.more.set()
        await stream.write_batch([b"done"])

    async with asyncio.timeout(DEADLINE_S), serving(serve) as (_, channel), call(channel) as stream:
        # Three times what the server's window of the stream holds.
        for _ in range(100):
            taken.more.clear()
            await stream.write_batch([b"t" + bytes(60_000)])
            await taken.more.wait()  # alone, else a slow machine takes none
        await stream.write_batch([b"r"])
        assert await stream.read_batch() == [b"done"]
        assert taken.messages
        assert len(taken.messages) + len(read) == 101


async def test_a_message_over_the_limit_is_refused_by_the_reader() -> None:
    taken = Taken()
    async with (
        asyncio.timeout(DEADLINE_S),
        serving() as (_, channel),
        open_call(channel, CALL, {}, limit_bytes=3, stall_s=5.0) as stream,
    ):
        stream.take_at_once(taken.take)
        await stream.write_batch([b"t234"])
        with pytest.raises(FrameTooLarge):
            await stream.read_batch()
        assert taken.messages == []


async def test_what_is_taken_counts_for_the_deadline_of_the_reader() -> None:
    async with asyncio.timeout(DEADLINE_S), serving() as (listener, _):
        connection = Connection(f"{HOST}:{listener.port}", cluster="c", lifetime=ClientLifetime())
        while not await outlasts_its_deadline(connection):
            pass
        connection.close()


async def outlasts_its_deadline(connection: Connection) -> bool:
    """False when the loop stood still for so long that nothing was taken within the deadline."""
    loop, taken = asyncio.get_running_loop(), Taken()
    async with (
        connection.converse(CALL, deadline_s=10.0) as stream,
        asyncio.TaskGroup() as tasks,
    ):
        stream.take_at_once(taken.take)
        reading = tasks.create_task(refused(stream, taken))
        until_s = loop.time() + 1.5 * SILENCE_S
        while loop.time() < until_s and not reading.done():
            taken.more.clear()
            await stream.write(b"\0\0\0\0\1t", DEADLINE_S)
            await taken.more.wait()
            if not reading.done():
                since_s = loop.time() - stream.silent_s()
                assert since_s == pytest.approx(taken.at_s, abs=SILENCE_S / 4)
        outlasted = not reading.done()
        # Clocks of loops are rounded.
        assert await reading >= 0.99 * SILENCE_S
        return outlasted
