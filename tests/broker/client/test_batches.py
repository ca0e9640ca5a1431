"""Batches against a whole broker: what goes in comes out, whichever way it is read."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal

from broker.client import (
    Client,
    Durability,
    Gathering,
    InvalidArgument,
    Message,
    MessageBatch,
    OutOfRange,
    Unrecoverable,
    connect,
)
from broker.client.cluster.targets import NewVChannel
from broker.client.errors import BadTarget, MessageTooLarge
from broker.model.cut import Cut
from broker.model.ids import TimeTick
from tests.local_broker import local_broker

P = "by-dev-rootcoord-dml_0"
V = NewVChannel(f"{P}_1v0")
OTHER = NewVChannel(f"{P}_2v0")


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Of a broker that runs in a thread and a loop of its own."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(local_broker(tmp_path)) as broker,
    ):
        yield broker.address


async def batches(log: Client, *names: str, **options: object) -> list[MessageBatch]:
    scanner = log.read_batches(names or [V], **({"until": "now"} | options))  # type: ignore[arg-type]
    async with asyncio.timeout(60):
        return [batch async for batch in scanner if len(batch)]


async def test_a_batch_comes_back_as_it_was(address: str) -> None:
    async with connect(address) as log:
        landed = await log.append_batch(
            V, [b"one", b"", b"three"], keys=[b"k", None, 7], properties={"of": "all"}
        )
        (batch,) = await batches(log)
        assert batch.payloads == [b"one", b"", b"three"]
        assert list(batch.ids) == [landed.id, landed.id + 1, landed.id + 2]
        assert list(batch.ticks) == [landed.tick, landed.tick + 1, landed.tick + 2]
        assert batch.keys == [b"k", None, (7).to_bytes(8, "little")]
        assert batch.vchannel == V
        assert [it.properties for it in batch.messages] == [{"of": "all"}] * 3
        assert batch.closed_tick < landed.tick or batch.closed_tick >= batch.ticks[-1]


async def test_a_reader_is_told_with_a_batch_that_it_is_closed(address: str) -> None:
    async with connect(address) as log, asyncio.timeout(60):
        first = await log.append(V, b"first")
        async with log.read_batches(V, start=first.id + 1) as reader:
            for _ in range(5):
                landed = await log.append_batch(V, [b"a", b"b"])
                async for batch in reader:
                    if len(batch):
                        break
                assert list(batch.ids) == [landed.id, landed.id + 1]
                assert batch.closed_tick >= batch.ticks[-1]


async def test_every_way_in_says_how_durable_it_is(address: str) -> None:
    async with connect(address) as log:
        assert (await log.append(V, b"0")).durability == "fsync"
        assert (await log.append_batch(V, [b"1", b"2"])).durability == "fsync"
        levels: tuple[Durability, ...] = ("os", "memory")
        for level in levels:
            landed = await log.append(V, b"3", durability=level)
            soon = await log.append_soon(V, Message(b"4"), durability=level)
            batch = await log.append_batch(V, [b"5", b"6"], durability=level)
            assert {landed.durability, (await soon).durability, batch.durability} == {level}
        single = await log.append(V, b"7", durability="memory", version=2)
        assert single.durability == "fsync", "one of Milvus's kinds is synced, and says so"
        found = [it for batch in await batches(log) for it in batch.payloads]
        assert sorted(found) == [b"0", b"1", b"2", *sorted([b"3", b"4", b"5", b"6"] * 2), b"7"]


async def test_an_unknown_durability_is_refused_and_the_known_ones_named(address: str) -> None:
    async with connect(address) as log:
        for append in (
            log.append(V, b"x", durability="disc"),  # type: ignore[arg-type]
            log.append_soon(V, Message(b"x"), durability="FSYNC"),  # type: ignore[arg-type]
            log.append_batch(V, [b"x"], durability=""),  # type: ignore[arg-type]
        ):
            with pytest.raises(InvalidArgument, match="fsync, os, memory"):
                await append
        assert await batches(log) == []


async def test_a_batch_and_single_messages_look_alike_to_both_kinds_of_readers(
    address: str,
) -> None:
    async with connect(address) as log:
        await log.append_batch(V, [b"a", b"b"], keys=["x", None], properties={"p": "q"})
        await log.append(V, b"c", key=b"y", version=2)
        await log.append(V, b"d")
        async with log.txn(V) as txn:
            await txn.append(b"e")
            await txn.append(b"f")
        singly = [it async for it in log.read(V, until="now").messages()]
        together = [it for batch in await batches(log) for it in batch.messages]
        strip = ("_tt", "_lc", "_lcs", "_wt", "_tx")
        assert [it.payload for it in together] == [b"a", b"b", b"c", b"d", b"e", b"f"]
        for one, other in zip(singly, together, strict=True):
            assert one[:6] == other[:6]
            assert {k: v for k, v in one.tags.items() if k not in strip} == {
                k: v for k, v in other.tags.items() if k not in strip
            }


async def test_a_read_ends_at_a_tick_and_the_next_one_begins_behind_it(address: str) -> None:
    async with connect(address) as log:
        landed = await log.append_batch(V, [b"%d" % it for it in range(10)])
        first = await batches(log, until=landed.tick + 3)
        rest = await batches(log, start=("tick", landed.tick + 4))
        assert [it for batch in first for it in batch.payloads] == [b"%d" % it for it in range(4)]
        assert [it for batch in rest for it in batch.payloads] == [
            b"%d" % it for it in range(4, 10)
        ]
        by_id = await batches(log, start=landed.id + 8)
        assert [it for batch in by_id for it in batch.payloads] == [b"8", b"9"]


async def test_only_the_vchannels_and_types_that_were_asked_for_are_read(address: str) -> None:
    async with connect(address) as log:
        await log.append_batch(V, [b"v"])
        await log.append_batch(OTHER, [b"other"])
        await log.append_batch(NewVChannel(f"{P}_3v0"), [b"third"])
        await log.append(V, b"gone", type=3)
        found = await batches(log, V, OTHER)
        assert [it for batch in found for it in batch.payloads] == [b"v", b"other", b"gone"]
        found = await batches(log, P, types=[2])
        assert [it for batch in found for it in batch.payloads] == [b"v", b"other", b"third"]


async def test_many_tasks_that_append_share_batches_and_each_gets_its_own_place(
    address: str,
) -> None:
    async with connect(address) as log:
        landed = await asyncio.gather(*[log.append(V, b"%d" % it) for it in range(1000)])
        found = await batches(log)
        by_id = {
            id: payload for it in found for id, payload in zip(it.ids, it.payloads, strict=True)
        }
        assert by_id == {it.id: b"%d" % at for at, it in enumerate(landed)}
        assert len(found) < 100


async def test_an_append_that_is_alone_lands_whatever_its_size(address: str) -> None:
    sizes = (1, 5_000_000, 300_000, 2, 3_000_000, 0)
    async with connect(address) as log, asyncio.timeout(60):
        for size in sizes:
            await log.append(V, bytes(size))
        found = [len(it) for batch in await batches(log, start="all") for it in batch.payloads]
    assert found == list(sizes)


async def test_a_ticket_is_taken_now_and_awaited_later(address: str) -> None:
    async with connect(address) as log:
        tickets = [await log.append_soon(V, Message(b"%d" % it)) for it in range(100)]
        ids = [(await ticket).id for ticket in tickets]
        assert ids == sorted(ids)


async def test_a_task_that_is_cancelled_takes_its_message_back_and_leaves_the_others_alone(
    address: str,
) -> None:
    async with connect(address) as log:
        await log.append(V, b"warm")
        tickets = [await log.append_soon(V, Message(b"%d" % it)) for it in range(3)]
        tickets[1].cancel()
        await tickets[0]
        await tickets[2]
        found = [it for batch in await batches(log) for it in batch.payloads]
        assert found == [b"warm", b"0", b"2"]


async def test_keys_and_sizes_that_do_not_fit_are_refused_before_sending(address: str) -> None:
    async with connect(address) as log:
        with pytest.raises(MessageTooLarge):
            await log.append_batch(V, [])
        with pytest.raises(MessageTooLarge):
            await log.append_batch(V, [b""] * 16_385)
        with pytest.raises(BadTarget):
            await log.append_batch(V, [b"a"], keys=[b"k", b"l"])
        with pytest.raises(TypeError):
            await log.append_batch(V, ["text"])  # type: ignore[list-item]
        with pytest.raises(ValueError, match="reserved"):
            await log.append_batch(V, [b"a"], properties={"_t": "1"})
        with pytest.raises(Unrecoverable, match="split it"):
            await log.append_batch(V, [bytes(5 << 20)] * 2)
        assert await batches(log) == []


async def test_a_tick_from_the_future_and_an_id_that_is_not_there_are_refused(address: str) -> None:
    async with connect(address) as log:
        landed = await log.append_batch(V, [b"a"])
        ahead = landed.tick + (1 << 40)
        with pytest.raises(InvalidArgument, match="ahead"):
            await batches(log, until=ahead)
        with pytest.raises(InvalidArgument, match="ahead"):
            await batches(log, start=("tick", ahead))
        with pytest.raises(InvalidArgument, match="ahead"):
            await batches(log, start=Cut(TimeTick(ahead), {}))
        with pytest.raises(OutOfRange):
            await batches(log, start=landed.id + 1000)


async def test_a_reader_of_batches_sees_what_is_appended_while_it_waits(address: str) -> None:
    async with connect(address) as log:
        await log.append_batch(V, [b"before"])
        async with log.read_batches(V, start="latest") as scanner:
            await log.append_batch(V, [b"after"])
            async with asyncio.timeout(60):
                async for batch in scanner:
                    if len(batch):
                        assert batch.payloads == [b"after"]
                        break


async def test_messages_of_one_call_are_gathered_and_told_in_their_order(address: str) -> None:
    async with connect(address) as log:
        some = [Message(b"%d" % it, key=it) for it in range(500)]
        landed = await log.append_messages(V, some, atomic=False)
        ids = [it.id for it in landed]
        assert ids == sorted(set(ids))


async def test_batches_that_are_small_by_wish_lose_nothing(address: str) -> None:
    gathering = Gathering(bytes_max=1, linger_ms=0)
    async with connect(address, gathering=gathering) as log:
        landed = await asyncio.gather(*[log.append(V, b"%d" % it) for it in range(200)])
        found = await batches(log)
    assert len(found) == 200
    assert len({it.id for it in landed}) == 200


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
async def test_bodies_that_are_packed_on_the_way_come_out_as_they_went_in(
    address: str, codec: str
) -> None:
    gathering = Gathering(compression=codec, pack_bytes_min=100)
    payloads = [b"%d" % it * 50 for it in range(100)]
    async with connect(address, gathering=gathering) as log:
        landed = await log.append_batch(V, payloads, keys=[b"k", *[None] * 99])
        await asyncio.gather(*[log.append(V, it) for it in payloads])
        await log.append(V, b"short")
        whole = [it for batch in await batches(log) for it in batch.payloads]
        singly = [it async for it in log.read(V, until="now").messages()]
        inside = await batches(log, start=landed.id + 98, until=landed.tick + 98)
    assert whole == [it.payload for it in singly]
    assert whole[:100] == payloads
    assert sorted(whole[100:200]) == sorted(payloads)
    assert singly[0].key == b"k"
    assert [batch.payloads for batch in inside] == [[payloads[98]]]


def test_an_invalid_gathering_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="snappy"):
        Gathering(compression="snappy")
    with pytest.raises(ValueError, match="linger_ms"):
        Gathering(linger_ms=-1)
    with pytest.raises(ValueError, match="bytes_max"):
        Gathering(bytes_max=0)
