"""Transactions of a program, against a real broker in the same process."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from anyio.from_thread import start_blocking_portal

from broker.app import Broker
from broker.client import Client, InvalidArgument, Message, TransactionExpired, connect
from broker.client.cluster.targets import NewVChannel
from broker.client.errors import BadTarget, BadTransaction
from broker.model.message import MessageType
from tests.local_broker import actors_of, local_broker

PCHANNEL = "by-dev-rootcoord-dml_1"
VCHANNEL = NewVChannel(f"{PCHANNEL}_7v0")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[str]:
    """The address of one that runs in a thread and a loop of its own."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(local_broker(tmp_path, pchannels=2)) as started,
    ):
        yield started.address


async def payloads(log: Client, target: str = VCHANNEL) -> list[list[bytes]]:
    """What is there now, batch by batch."""
    reader = log.read(target, until="now")
    return [[each.payload for each in batch.messages] async for batch in reader if batch.messages]


def flat(batches: list[list[bytes]]) -> list[bytes]:
    return [payload for batch in batches for payload in batch]


async def test_leaving_the_block_commits_and_all_is_read_at_the_tick_of_the_commit(
    broker: str,
) -> None:
    async with connect(broker) as log:
        async with log.txn(VCHANNEL) as txn:
            assert txn.id
            assert txn.keepalive_s == 10.0
            await txn.append(b"a", key="k", properties={"p": "q"})
            await log.append(VCHANNEL, b"plain")
            assert flat(await payloads(log)) == [b"plain"]
            await txn.append_messages([Message(b"b"), Message(b"c", type=MessageType.DELETE)])
        found = [each async for each in log.read(VCHANNEL, until="now").messages()]
        assert [each.payload for each in found] == [b"plain", b"a", b"b", b"c"]
        assert len({each.tick for each in found[1:]}) == 1
        assert found[1].key == b"k"
        assert found[1].properties == {"p": "q"}
        assert found[1].tick > found[0].tick


async def test_an_error_rolls_back(broker: str) -> None:
    async with connect(broker) as log:
        txn = log.txn(VCHANNEL)
        with suppress(RuntimeError):
            async with txn:
                await txn.append(b"never")
                raise RuntimeError
        with pytest.raises(BadTransaction):
            await txn.append(b"late")
        await log.append(VCHANNEL, b"after")
        assert flat(await payloads(log)) == [b"after"]


async def test_a_transaction_may_be_ended_by_hand_and_then_is_over(broker: str) -> None:
    async with connect(broker) as log:
        async with log.txn(VCHANNEL) as txn:
            await txn.append(b"a")
            landed = await txn.commit()
            with pytest.raises(BadTransaction):
                await txn.rollback()
        (found,) = [each async for each in log.read(VCHANNEL, until="now").messages()]
        assert found.tick == landed.tick
        with pytest.raises(BadTransaction):
            await log.txn(VCHANNEL).append(b"before its begin")


async def test_a_keepalive_that_passes_ends_it(broker: str) -> None:
    async with connect(broker) as log:
        # A slow machine may need longer than the first keepalive for its append.
        for keepalive_s in (1.0, 4.0, 20.0):
            try:
                async with log.txn(VCHANNEL, keepalive_s=keepalive_s) as txn:
                    landed = await txn.append(b"a")
                    async for batch in log.read(VCHANNEL, start="latest", with_ticks=True):
                        if batch.closed_tick > landed.tick + (round(keepalive_s * 1000) << 18):
                            break
                    with pytest.raises(TransactionExpired):
                        await txn.commit()
                break
            except TransactionExpired:
                continue
        else:
            pytest.fail("it has ended before its append, also with a keepalive of 20 s")
        assert await payloads(log) == []
        for keepalive_s in (0.0, -1.0, 0.0001):
            with pytest.raises(InvalidArgument):
                log.txn(VCHANNEL, keepalive_s=keepalive_s)


async def test_a_transaction_is_on_one_vchannel(broker: str) -> None:
    async with connect(broker) as log:
        await log.collections.create("two", shards=2)
        with pytest.raises(BadTarget):
            async with log.txn("two"):
                pass
        await log.collections.create("one", shards=1)
        async with log.txn("one") as txn:
            await txn.append(b"a")
        assert flat(await payloads(log, "one")) == [b"a"]


async def test_an_exclusive_message_between_ends_it(broker: str) -> None:
    async with connect(broker) as log:
        async with log.txn(VCHANNEL) as txn:
            await txn.append(b"a")
            await log.append(VCHANNEL, b"", type=MessageType.MANUAL_FLUSH, version=2)
            with pytest.raises(TransactionExpired):
                await txn.commit()
        assert flat(await payloads(log)) == [b""]


async def test_a_range_holds_the_transactions_that_commit_in_it_and_those_whole(
    broker: str,
) -> None:
    async with connect(broker) as log:
        async with log.txn(VCHANNEL) as txn:
            first = await txn.append(b"a")
            middle = await log.append(VCHANNEL, b"middle")
            last = await txn.append(b"b")
            commit = await txn.commit()
        end = await log.append(VCHANNEL, b"end")

        async def in_range(start: int, stop: int) -> list[bytes]:
            reader = log.read_range(VCHANNEL, start, stop)
            return [each.payload async for each in reader.messages()]

        assert await in_range(first.id, last.id) == [b"middle"]
        assert await in_range(first.id, commit.id) == [b"middle"]
        for start in (middle.id + 1, last.id, commit.id):
            assert await in_range(start, end.id) == [b"a", b"b"]
        assert await in_range(commit.id + 1, end.id + 1) == [b"end"]


async def test_the_messages_of_a_transaction_come_in_one_batch(broker: str) -> None:
    async with connect(broker) as log:
        async with log.txn(VCHANNEL) as txn:
            await txn.append_messages([Message(b"x" * 10_000) for _ in range(200)])
        batches = await payloads(log)
        assert [len(batch) for batch in batches] == [200]


async def test_a_transaction_is_an_actor_while_it_is_open(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=2) as broker:

        def names(broker: Broker) -> list[str]:
            found = actors_of(broker, PCHANNEL)
            return [it.path.rpartition("/")[2] for it in found if "/transactions/" in it.path]

        async with connect(broker.address) as log:
            async with log.txn(VCHANNEL) as txn:
                await txn.append(b"a")
                with anyio.fail_after(60):
                    while names(broker) != [str(txn.id)]:
                        await anyio.lowlevel.checkpoint()
            with anyio.fail_after(60):
                while names(broker):
                    await anyio.lowlevel.checkpoint()
