"""Bad input: a typed error that names the value; nothing is stored of a refused call."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from broker.rocksmq import (
    BadQueueArgument,
    BadQueueName,
    ChannelExists,
    ConsumerGroupExists,
    RocksMQ,
    RocksMQClosed,
    RocksMQError,
    RocksMQFailed,
    SeekOutOfRange,
    UnknownChannel,
    UnknownConsumerGroup,
)
from tests.broker.rocksmq.faulty_store import FaultyStore
from tests.broker.rocksmq.open_queues import open_on, payloads, with_group

Call = Callable[[RocksMQ], Awaitable[object]]


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore()


@pytest.fixture
async def mq(store: FaultyStore, tmp_path: Path) -> AsyncIterator[RocksMQ]:
    async with open_on(store, tmp_path) as opened:
        yield await with_group(opened)


async def test_an_empty_batch_is_produced_at_once_and_stores_nothing(
    mq: RocksMQ, store: FaultyStore
) -> None:
    before = store.writes
    assert await mq.produce("orders", []) == []
    assert store.writes == before
    assert await mq.consume("workers", "orders", 0) == []


BAD: list[tuple[str, type[RocksMQError], str, Call]] = [
    ("twice", ChannelExists, "'orders' exists", lambda q: q.create_channel("orders")),
    ("group-twice", ConsumerGroupExists, "'workers' of channel 'orders' exists",
     lambda q: q.create_consumer_group("workers", "orders")),
    ("slash", BadQueueName, "'a/b' has '/'", lambda q: q.create_channel("a/b")),
    ("nul", BadQueueName, "NUL", lambda q: q.create_channel("a\0b")),
    ("long", BadQueueName, "256 bytes", lambda q: q.create_channel("x" * 256)),
    ("empty", BadQueueName, "empty", lambda q: q.create_channel("")),
    ("group-slash", BadQueueName, "'g/h'", lambda q: q.create_consumer_group("g/h", "orders")),
    ("group-nul", BadQueueName, "NUL", lambda q: q.create_consumer_group("g\0")),
    ("group-nowhere", UnknownChannel, "'no'", lambda q: q.create_consumer_group("g", "no")),
    ("destroy", UnknownChannel, "'no'", lambda q: q.destroy_channel("no")),
    ("destroy-group", UnknownConsumerGroup, "'no' on channel 'orders'",
     lambda q: q.destroy_consumer_group("no", "orders")),
    ("destroy-everywhere", UnknownConsumerGroup, "'no'", lambda q: q.destroy_consumer_group("no")),
    ("produce", UnknownChannel, "'no'", lambda q: q.produce("no", [b"a"])),
    ("produce-nothing", UnknownChannel, "'no'", lambda q: q.produce("no", [])),
    ("text", BadQueueArgument, "message 0 of the produce is a str",
     lambda q: q.produce("orders", ["a"])),  # type: ignore[list-item]
    ("too-many", BadQueueArgument, "65537", lambda q: q.produce("orders", [b""] * 65_537)),
    ("too-large", BadQueueArgument, str((64 << 20) + 1),
     lambda q: q.produce("orders", [bytes(64 << 20), b"x"])),
    ("consume-nowhere", UnknownChannel, "'no'", lambda q: q.consume("workers", "no", 1)),
    ("consume-by-nobody", UnknownConsumerGroup, "'no'", lambda q: q.consume("no", "orders", 1)),
    ("negative", BadQueueArgument, "-1 messages", lambda q: q.consume("workers", "orders", -1)),
    ("n-too-large", BadQueueArgument, "65537", lambda q: q.consume("workers", "orders", 65_537)),
    ("seek-nowhere", UnknownChannel, "'no'", lambda q: q.seek("workers", "no", -1)),
    ("seek-by-nobody", UnknownConsumerGroup, "'no'", lambda q: q.seek("no", "orders", -1)),
    ("seek-beyond", SeekOutOfRange, "seek to 99", lambda q: q.seek("workers", "orders", 99)),
    ("latest-by-nobody", UnknownConsumerGroup, "'no'", lambda q: q.seek_to_latest("no", "orders")),
    ("commit", SeekOutOfRange, "up to 7", lambda q: q.commit("workers", "orders", 7)),
    ("wait", UnknownConsumerGroup, "'no'", lambda q: q.wait("no", "orders")),
    ("iterate", UnknownChannel, "'no'", lambda q: anext(q.messages("workers", "no"))),
    ("latest", UnknownChannel, "'no'", lambda q: q.latest_message("no")),
    ("no-ids", BadQueueArgument, "0 ids", lambda q: q.ids.alloc(0)),
    ("fewer-ids", BadQueueArgument, "-5 ids", lambda q: q.ids.alloc(-5)),
]  # fmt: skip


@pytest.mark.parametrize(("error", "told", "call"), [it[1:] for it in BAD], ids=[i[0] for i in BAD])
async def test_a_bad_call_is_refused_by_its_value_and_changes_nothing(
    mq: RocksMQ, store: FaultyStore, error: type[RocksMQError], told: str, call: Call
) -> None:
    before = dict(store.entries)
    with pytest.raises(error, match=told.replace("(", r"\(")):
        await call(mq)
    assert store.entries == before


async def test_a_channel_that_is_not_there_has_no_description(mq: RocksMQ) -> None:
    with pytest.raises(UnknownChannel, match="'no'"):
        mq.describe_channel("no")


CALLS: dict[str, Call] = {
    "create_channel": lambda q: q.create_channel("a"),
    "destroy_channel": lambda q: q.destroy_channel("orders"),
    "create_consumer_group": lambda q: q.create_consumer_group("g", "orders"),
    "destroy_consumer_group": lambda q: q.destroy_consumer_group("workers", "orders"),
    "produce": lambda q: q.produce("orders", [b"a"]),
    "consume": lambda q: q.consume("workers", "orders", 1),
    "commit": lambda q: q.commit("workers", "orders"),
    "wait": lambda q: q.wait("workers", "orders"),
    "messages": lambda q: anext(q.messages("workers", "orders")),
    "seek": lambda q: q.seek("workers", "orders", -1),
    "seek_to_latest": lambda q: q.seek_to_latest("workers", "orders"),
    "latest_message": lambda q: q.latest_message("orders"),
    "sweep": lambda q: q.sweep(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
async def test_a_closed_queue_refuses_every_call_and_closes_again(
    mq: RocksMQ, store: FaultyStore, call: Call
) -> None:
    await mq.close()
    assert store.closed
    before = store.writes
    with pytest.raises(RocksMQClosed, match="closed"):
        await call(mq)
    await mq.close()
    assert store.writes == before


class WrongIds:
    """An allocator of a program that gives what it is told."""

    def __init__(self) -> None:
        self.given: list[tuple[int, int]] = []

    async def alloc(self, count: int) -> tuple[int, int]:
        return self.given.pop(0)

    async def alloc_one(self) -> int:
        return (await self.alloc(1))[0]

    async def update_id(self) -> None:
        """Nothing is reserved."""


async def test_an_allocator_that_goes_back_or_gives_too_few_ids_is_refused_and_nothing_hangs(
    tmp_path: Path,
) -> None:
    ids = WrongIds()
    async with open_on(FaultyStore(), tmp_path, ids=ids) as mq:
        await with_group(mq)
        ids.given = [(5, 7), (6, 8), (7, 8), (-1, 1), (7, 9)]
        assert await mq.produce("orders", [b"a", b"b"]) == [5, 6]
        with pytest.raises(BadQueueArgument, match="is at 7: the IDAllocator gave 6"):
            await mq.produce("orders", [b"c", b"d"])
        for told in (r"\[7, 8\) for 2 ids", r"\[-1, 1\) for 2 ids"):
            with pytest.raises(BadQueueArgument, match=told):
                await mq.produce("orders", [b"c", b"d"])
        assert await mq.produce("orders", [b"c", b"d"]) == [7, 8]
        assert await payloads(mq) == [b"a", b"b", b"c", b"d"]


async def test_an_error_while_a_batch_is_planned_fails_its_calls_and_no_others(
    mq: RocksMQ,
) -> None:
    def broken(_draft: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await mq._writer.submit(broken)
    assert len(await mq.produce("orders", [b"a"])) == 1


async def test_a_channel_whose_messages_are_lost_is_an_error_and_no_endless_loop(
    mq: RocksMQ, store: FaultyStore
) -> None:
    await mq.produce("orders", [b"a", b"b"])
    for key in [it for it in store.entries if it.startswith(b"data/")]:
        del store.entries[key]
    with pytest.raises(RocksMQFailed, match="'orders' lacks its messages"):
        await anext(mq.messages("workers", "orders"))


async def test_a_sweep_that_is_overtaken_by_a_close_ends(mq: RocksMQ) -> None:
    sweep = asyncio.get_running_loop().create_task(mq.sweep())
    await asyncio.sleep(0)
    await mq.close()
    await sweep
    assert sweep.exception() is None
