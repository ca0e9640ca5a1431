"""The calls of an embedded queue, on a real folder."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.core.rocksmq.queue_rules import BATCH_BYTES_MAX
from broker.rocksmq import ConsumerMessage, ProducerMessage, RocksMQ
from tests.broker.rocksmq.open_queues import payloads, with_group


@pytest.fixture
async def mq(tmp_path: Path) -> AsyncIterator[RocksMQ]:
    async with await RocksMQ.open(tmp_path / "queues") as opened:
        yield await with_group(opened)


async def test_what_is_produced_is_consumed_in_order_with_the_ids_that_produce_gave(
    mq: RocksMQ,
) -> None:
    ids = await mq.produce("orders", [b"one", ProducerMessage(b"two"), b""])
    assert ids == list(range(ids[0], ids[0] + 3))
    first = await mq.consume("workers", "orders", 2)
    assert first == [ConsumerMessage(ids[0], b"one"), ConsumerMessage(ids[1], b"two")]
    assert await mq.consume("workers", "orders", 2) == [ConsumerMessage(ids[2], b"")]
    assert await mq.consume("workers", "orders", 2) == []


async def test_ids_are_contiguous_in_a_batch_and_grow_along_every_channel(mq: RocksMQ) -> None:
    await mq.create_channel("other")

    async def produce(channel: str, who: int) -> list[list[int]]:
        return [await mq.produce(channel, [b"%d" % who] * (1 + n % 5)) for n in range(30)]

    made = await asyncio.gather(*(produce(("orders", "other")[who % 2], who) for who in range(8)))
    batches = [ids for produced in made for ids in produced]
    assert all(ids == list(range(ids[0], ids[0] + len(ids))) for ids in batches)
    every = [msg_id for ids in batches for msg_id in ids]
    assert len(set(every)) == len(every)
    assert all(produced == sorted(produced) for produced in made)
    found = await mq.consume("workers", "orders", 1000)
    assert [it.msg_id for it in found] == sorted(
        msg_id for who in range(0, 8, 2) for ids in made[who] for msg_id in ids
    )


async def test_all_is_there_after_a_reopening_and_ids_go_on_above(tmp_path: Path) -> None:
    async with await RocksMQ.open(tmp_path) as mq:
        await with_group(mq)
        await mq.create_consumer_group("roamers")
        ids = await mq.produce("orders", [b"%d" % number for number in range(10)])
        await mq.consume("workers", "orders", 4)
    async with await RocksMQ.open(tmp_path) as mq:
        assert mq.channels() == ["orders"]
        assert mq.consumer_group_exists("roamers")
        view = mq.describe_channel("orders")
        assert (view.begin_id, view.end_id, view.open_bytes) == (ids[0], ids[-1] + 1, 10)
        assert view.positions == {"workers": ids[4]}
        more = await mq.produce("orders", [b"10"])
        assert more[0] > ids[-1]
        assert await payloads(mq) == [b"%d" % number for number in range(4, 11)]


async def test_an_id_allocator_of_the_program_gives_the_ids(tmp_path: Path) -> None:
    class Counter:
        def __init__(self) -> None:
            self.next_id = 1

        async def alloc(self, count: int) -> tuple[int, int]:
            start, self.next_id = self.next_id, self.next_id + count
            return start, self.next_id

        async def alloc_one(self) -> int:
            return (await self.alloc(1))[0]

        async def update_id(self) -> None:
            """A counter has no window."""

    counter = Counter()
    async with await RocksMQ.open(tmp_path, id_allocator=counter) as mq:
        await with_group(mq)
        assert await mq.produce("orders", [b"a", b"b"]) == [1, 2]
        assert await mq.ids.alloc_one() == 3
        for expected in range(4, 120):
            assert await mq.produce("orders", [b"%d" % expected]) == [expected]
        wanted = [b"a", b"b", *(b"%d" % number for number in range(4, 120))]
        assert await payloads(mq) == wanted, "order is that of numbers, not of their digits"


async def test_two_groups_get_all_and_consumers_of_one_group_share(mq: RocksMQ) -> None:
    await mq.create_consumer_group("audit", "orders")
    wanted = [b"%d" % number for number in range(200)]
    await mq.produce("orders", wanted)

    async def drain() -> list[bytes]:
        found: list[bytes] = []
        while batch := await mq.consume("workers", "orders", 7):
            found += [it.payload for it in batch]
        return found

    shares = await asyncio.gather(*(drain() for _ in range(4)))
    assert sorted(it for share in shares for it in share) == sorted(wanted)
    assert await payloads(mq, group="audit") == wanted


async def test_seek_goes_back_and_forward_and_the_message_itself_is_next(mq: RocksMQ) -> None:
    ids = await mq.produce("orders", [b"%d" % number for number in range(5)])
    await mq.seek("workers", "orders", ids[3])
    assert await payloads(mq) == [b"3", b"4"]
    await mq.seek("workers", "orders", ids[1])
    assert await payloads(mq) == [b"1", b"2", b"3", b"4"]
    await mq.seek("workers", "orders", ids[1], inclusive=False)
    assert await payloads(mq) == [b"2", b"3", b"4"]
    await mq.seek("workers", "orders", -1)
    assert len(await payloads(mq)) == 5


async def test_seek_to_latest_is_behind_the_newest_message(mq: RocksMQ) -> None:
    await mq.seek_to_latest("workers", "orders")
    await mq.produce("orders", [b"first"])
    assert await payloads(mq) == [b"first"]
    await mq.seek("workers", "orders", -1)
    await mq.seek_to_latest("workers", "orders")
    assert await payloads(mq) == []
    await mq.produce("orders", [b"second"])
    assert await payloads(mq) == [b"second"]


async def test_the_latest_message_is_shown_without_a_group(mq: RocksMQ) -> None:
    assert await mq.latest_message("orders") is None
    ids = await mq.produce("orders", [b"a", b"b"])
    assert await mq.latest_message("orders") == ConsumerMessage(ids[1], b"b")


async def test_what_exists_is_known_by_name(mq: RocksMQ) -> None:
    assert mq.channel_exists("orders")
    assert not mq.channel_exists("order")
    assert mq.consumer_group_exists("workers", "orders")
    assert not mq.consumer_group_exists("workers", "other")
    assert not mq.consumer_group_exists("workers")
    await mq.create_channel("orders", exist_ok=True)
    await mq.create_consumer_group("workers", "orders", exist_ok=True)


async def test_a_group_without_a_channel_joins_where_it_consumes_and_is_gone_everywhere(
    mq: RocksMQ,
) -> None:
    await mq.create_consumer_group("roamers")
    await mq.produce("orders", [b"a"])
    assert await payloads(mq, group="roamers") == [b"a"]
    assert mq.consumer_group_exists("roamers", "orders")
    await mq.destroy_consumer_group("roamers")
    assert not mq.consumer_group_exists("roamers", "orders")
    assert not mq.consumer_group_exists("roamers")


async def test_the_ids_of_the_folder_are_contiguous_unique_and_never_go_back(mq: RocksMQ) -> None:
    start, end = await mq.ids.alloc(65_536)
    assert end == start + 65_536
    assert await mq.ids.alloc_one() >= end
    await mq.ids.update_id()
    ids = [await mq.ids.alloc_one() for _ in range(10)]
    assert ids == sorted(set(ids))
    assert (await mq.produce("orders", [b"a"]))[0] > ids[-1]


async def test_one_consume_has_at_most_64_mib_unless_one_message_has_more(mq: RocksMQ) -> None:
    half = bytes(BATCH_BYTES_MAX // 2)
    for _ in range(3):
        await mq.produce("orders", [half])
    assert [len(await mq.consume("workers", "orders", 10)) for _ in range(3)] == [2, 1, 0]
