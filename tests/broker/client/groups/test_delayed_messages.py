"""Delayed messages and messages with a time to live, over a real broker."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broker.client import Client, Message, connect
from broker.client.errors import BadTarget, InvalidArgument
from broker.client.groups.member import GroupMember
from tests.broker.client.groups.test_groups import running
from tests.local_broker import local_broker

DAY_MS = 24 * 3600 * 1000


def now_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)


async def gathered(member: GroupMember, count: int) -> dict[bytes, int]:
    """The payloads in their order, each with the time in its tick."""
    found: dict[bytes, int] = {}
    while len(found) < count:
        batch = await member.__anext__()
        for message in batch.messages:
            payload = message.payload
            assert payload not in found, "delivered twice"
            found[payload] = message.timestamp_ms
        await batch.ack()
    return found


async def read_now(log: Client) -> list[bytes]:
    batches = [it async for it in log.read("trains", start="all", until="now")]
    return [message.payload for batch in batches for message in batch.messages]


async def test_groups_get_delayed_messages_by_their_times_and_readers_where_they_lie(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (_, log):
        await log.collections.create("trains", shards=1)
        begun = now_ms()
        landed = await log.append("trains", b"third", deliver_at=begun + 1200)
        soon = datetime.now(UTC) + timedelta(milliseconds=600)
        await log.append("trains", b"first", deliver_at=soon, key=b"k", properties={"from": "Ulm"})
        await log.append_batch("trains", [b"second", b"and"], deliver_at=begun + 900)
        async with log.txn("trains") as txn:
            await txn.append(b"fourth", deliver_at=begun + 1300)
            await txn.append(b"at once")
        await log.append("trains", b"past", deliver_at=begun - DAY_MS)
        assert await read_now(log) == [
            *(b"third", b"first", b"second", b"and", b"fourth", b"at once", b"past")
        ]
        async with log.group("workers").join("trains") as member:
            came = await gathered(member, 2)
            assert list(came) == [b"at once", b"past"]
            batch = await member.__anext__()
            (message,) = batch.messages
            assert (message.payload, message.key) == (b"first", b"k")
            assert message.properties == {"from": "Ulm"}
            assert message.timestamp_ms >= begun + 500
            await batch.ack()
            came = await gathered(member, 4)
            assert list(came) == [b"second", b"and", b"third", b"fourth"]
            assert came[b"second"] >= begun + 900
            assert came[b"third"] >= begun + 1200
        async with log.group("late").join("trains") as member:
            while True:
                batch = await member.__anext__()
                again = [it for it in batch.messages if it.payload == b"third"]
                await batch.ack()
                if again:
                    break
            assert again[0].appended_id == landed.id < again[0].id
        assert b"third" in await read_now(log)
        assert len(await read_now(log)) == 7, "readers do not see what is for groups only"


async def test_delayed_messages_come_after_a_restart_of_the_broker_once(tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        begun = now_ms()
        async with local_broker(tmp_path) as broker, connect(broker.address) as log:
            await log.collections.create("trains", shards=1)
            messages = [Message(b"%d" % it) for it in range(5)]
            await log.append_messages("trains", messages, deliver_at=begun + 500)
            await log.append("trains", b"later", deliver_at=begun + 4000)
            async with log.group("workers").join("trains") as member:
                assert sorted(await gathered(member, 5)) == [b"%d" % it for it in range(5)]
        async with local_broker(tmp_path) as broker, connect(broker.address) as log:
            async with log.group("workers").join("trains") as member:
                came = await gathered(member, 1)
            assert list(came) == [b"later"]
            assert came[b"later"] >= begun + 4000
            (view,) = await log.group("workers").describe("trains")
            assert view.group.acked == ()


async def test_groups_pass_over_messages_whose_time_to_live_is_over(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, log):
        await log.collections.create("trains", shards=1)
        begun = now_ms()
        await log.append("trains", b"short", ttl_s=0.2)
        await log.append("trains", b"long", ttl_s=60)
        await log.append("trains", b"delayed and short", deliver_at=begun + 300, ttl_s=0.2)
        await log.append("trains", b"marker", deliver_at=begun + 1200)
        async with log.group("watchers").join("trains", start="latest") as member:
            while b"marker" not in await gathered(member, 1):
                pass
        async with log.group("workers").join("trains") as member:
            assert list(await gathered(member, 2)) == [b"long", b"marker"]
        stored = [b"short", b"long", b"delayed and short", b"marker"]
        assert await read_now(log) == stored


async def test_bad_times_are_refused_with_what_to_do(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, log):
        await log.collections.create("trains", shards=1)
        with pytest.raises(InvalidArgument, match=r"399 days ahead; at most 366"):
            await log.append("trains", b"", deliver_at=now_ms() + 400 * DAY_MS - 1000)
        with pytest.raises(InvalidArgument, match=r"-1; use a datetime, or Unix milliseconds"):
            await log.append("trains", b"", deliver_at=-1)
        for ttl_s in (0, -5, 367 * 24 * 3600):
            with pytest.raises(InvalidArgument, match=f"ttl_s is {ttl_s}; use 0.001 to 31622400"):
                await log.append_batch("trains", [b""], ttl_s=ttl_s)
        with pytest.raises(BadTarget, match="are for plain messages"):
            await log.append("trains", b"", ttl_s=1, version=2)
        with pytest.raises(BadTarget, match="are for plain messages"):
            await log.append_messages("trains", [Message(b"", version=2)], ttl_s=1)
        assert await read_now(log) == []


async def test_no_program_gets_hold_of_the_schedule_as_of_a_group(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, log):
        await log.collections.create("trains", shards=1)
        await log.append("trains", b"", deliver_at=now_ms() + DAY_MS)
        assert await log.groups.list("trains") == []
        group = log.group("@schedule")
        for call in (group.create, group.drop):
            with pytest.raises(InvalidArgument, match="group name '@schedule' must have"):
                await call("trains")
        with pytest.raises(InvalidArgument, match="group name '@schedule' must have"):
            await group.seek("trains", "all")
        with pytest.raises(InvalidArgument, match="group name '@schedule' must have"):
            async with group.join("trains") as member:
                await member.__anext__()
