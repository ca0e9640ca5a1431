"""Delayed messages and messages with a time to live, over a real broker."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from broker.client import Client, Message, connect
from broker.client.errors import BadTarget, InvalidArgument
from broker.client.groups.member import GroupMember
from broker.client.message import Appended, Received
from broker.model.ids import TICK_LOGICAL_BITS
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
        # The order is that of the due times only if the first one is due after the last append.
        for lead_ms in (500, 4000, 20_000):
            await log.collections.create("trains", shards=1)
            begun = now_ms()
            landed = await appended(log, begun + lead_ms)
            if landed.tick >> TICK_LOGICAL_BITS < begun + lead_ms:
                break
            await log.collections.drop("trains")
        due = begun + lead_ms
        assert await read_now(log) == [
            *(b"third", b"first", b"second", b"and", b"fourth", b"at once", b"past")
        ]
        async with log.group("workers").join("trains") as member:
            came = await gathered(member, 7)
            assert list(came) == [
                *(b"at once", b"past", b"first", b"second", b"and", b"third", b"fourth")
            ]
            wanted = [due, due + 300, due + 300, due + 600, due + 700]
            assert all(came[name] >= at for name, at in zip(list(came)[2:], wanted, strict=True))
        async with log.group("late").join("trains") as member:
            again: dict[bytes, Received] = {}
            while not {b"first", b"third"} <= again.keys():
                batch = await member.__anext__()
                again |= {it.payload: it for it in batch.messages}
                await batch.ack()
            first, third = again[b"first"], again[b"third"]
            assert (first.key, first.properties) == (b"k", {"from": "Ulm"})
            assert third.appended_id < landed.id < third.id
        assert b"third" in await read_now(log)
        assert len(await read_now(log)) == 7, "readers do not see what is for groups only"


async def appended(log: Client, due: int) -> Appended:
    await log.append("trains", b"third", deliver_at=due + 600)
    soon = datetime.fromtimestamp(due / 1000, UTC)
    await log.append("trains", b"first", deliver_at=soon, key=b"k", properties={"from": "Ulm"})
    await log.append_batch("trains", [b"second", b"and"], deliver_at=due + 300)
    async with log.txn("trains") as txn:
        await txn.append(b"fourth", deliver_at=due + 700)
        await txn.append(b"at once")
    return await log.append("trains", b"past", deliver_at=due - DAY_MS)


async def test_delayed_messages_come_after_a_restart_of_the_broker_once(tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        async with local_broker(tmp_path) as broker, connect(broker.address) as log:
            await log.collections.create("trains", shards=1)
            messages = [Message(b"%d" % it) for it in range(5)]
            await log.append_messages("trains", messages, deliver_at=now_ms() + 500)
            async with log.group("workers").join("trains") as member:
                assert sorted(await gathered(member, 5)) == [b"%d" % it for it in range(5)]
            # Only now: nobody is there to get it before the restart.
            due = now_ms() + 3000
            await log.append("trains", b"later", deliver_at=due)
        async with local_broker(tmp_path) as broker, connect(broker.address) as log:
            async with log.group("workers").join("trains") as member:
                came = await gathered(member, 1)
            assert list(came) == [b"later"]
            assert came[b"later"] >= due
            (view,) = await log.group("workers").describe("trains")
            assert view.group.acked == ()


async def test_groups_pass_over_messages_whose_time_to_live_is_over(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, log):
        await log.collections.create("trains", shards=1)
        async with log.group("watchers").join("trains") as member:
            begun = now_ms()
            await log.append("trains", b"short", ttl_s=0.2)
            await log.append("trains", b"long", ttl_s=600)
            await log.append("trains", b"delayed and short", deliver_at=begun + 300, ttl_s=0.2)
            # Released behind it, however slow the machine is; its tick says when that was.
            await log.append("trains", b"released", deliver_at=begun + 301)
            released_ms = await came_at(member, b"released")
            await log.append("trains", b"marker", deliver_at=released_ms + 300)
            await came_at(member, b"marker")
        # Every tick up to the marker's is closed, so both times to live are over by then.
        async with log.group("workers").join("trains") as member:
            assert list(await gathered(member, 3)) == [b"long", b"released", b"marker"]
        stored = [b"short", b"long", b"delayed and short", b"released", b"marker"]
        assert await read_now(log) == stored


async def came_at(member: GroupMember, payload: bytes) -> int:
    """Acknowledge what comes, up to this message; the time in its tick."""
    while True:
        found = await gathered(member, 1)
        if payload in found:
            return found[payload]


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
