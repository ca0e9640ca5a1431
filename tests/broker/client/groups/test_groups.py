"""Members of a group over a real broker: they share, acknowledge, take over."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from broker.app import Broker
from broker.client import Client, Deadlines, Message, connect
from broker.client.cluster.service import ServiceCalls
from broker.client.errors import (
    AlreadyExists,
    BadCommit,
    BadTarget,
    InvalidArgument,
    LeaseLost,
    NoSuchCollection,
    NoSuchGroup,
    ResourceAcquired,
)
from broker.client.groups.leased_batch import LeasedBatch
from broker.client.groups.member import GroupMember
from tests.local_broker import local_broker

DEADLINE_S = 180
"""Of a whole test, against hanging only."""
PATIENT = Deadlines(connect_s=60, open_s=60, append_s=60, call_s=60)
"""Of a client whose deadlines are not what is tested."""


@asynccontextmanager
async def running(tmp_path: Path) -> AsyncIterator[tuple[Broker, Client]]:
    async with (
        asyncio.timeout(DEADLINE_S),
        local_broker(tmp_path, pchannels=4) as broker,
        connect(broker.address, deadlines=PATIENT) as log,
    ):
        yield broker, log


async def filled(log: Client, count: int = 100, shards: int = 2) -> set[bytes]:
    await log.collections.create("trains", shards=shards)
    payloads = [b"%d" % number for number in range(count)]
    await log.append_messages("trains", [Message(it, key=it) for it in payloads], atomic=False)
    return set(payloads)


async def take(member: GroupMember) -> LeasedBatch:
    return await member.__anext__()


async def gathered(member: GroupMember, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        batch = await take(member)
        found += batch.payloads
        await batch.ack()
    return found


async def test_a_member_gets_every_message_of_all_shards_once(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, log):
        wanted = await filled(log)
        async with log.group("workers").join("trains", member="ann") as member:
            found = await gathered(member, len(wanted))
            assert sorted(found) == sorted(wanted)
            views = await log.group("workers").describe("trains")
            assert [it.members[0].name for it in views] == ["ann", "ann"]
        lag = await log.group("workers").lag("trains")
        assert {(it.messages, it.bytes) for it in lag.values()} == {(0, 0)}


async def test_two_members_share_and_one_that_leaves_gives_back(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, log):
        wanted = await filled(log, shards=1)
        group = log.group("workers")
        async with group.join("trains", prefetch_bytes=1) as ann:
            kept = await take(ann)
            async with group.join("trains") as bob:
                more = {b"more %d" % number for number in range(20)}
                for payload in more:
                    await log.append("trains", payload)
                await ann.close()
                with pytest.raises(LeaseLost):
                    await kept.ack()
                found = await gathered(bob, len(wanted | more))
                assert sorted(found) == sorted(wanted | more)


async def test_some_messages_of_a_batch_are_acknowledged_and_the_rest_comes_again(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (_, log):
        await log.collections.create("trains")
        await log.append_batch("trains", [b"a", b"b", b"c"])
        group = log.group("workers")
        async with group.join("trains") as member:
            batch = await take(member)
            a, b, c = batch.messages
            assert batch.deliveries == 1
            await batch.ack([b])
            with pytest.raises(InvalidArgument, match="acknowledged before"):
                await batch.ack([b])
            await batch.extend()
            await batch.nack([a])
            again = await take(member)
            assert (again.payloads, again.deliveries) == ([b"a"], 2)
            with pytest.raises(BadCommit, match="not of this batch"):
                await again.ack([c])
            with pytest.raises(BadCommit, match="no messages"):
                await again.ack([])
            await again.ack()
            await batch.ack()
            with pytest.raises(LeaseLost):
                await batch.ack()
            with pytest.raises(LeaseLost):
                await batch.extend()
            (view,) = await group.describe("trains")
            assert view.group.acked == ()
            assert view.group.floor >= c.tick


async def test_a_transaction_is_acknowledged_whole(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, log):
        await log.collections.create("trains")
        async with log.txn("trains") as txn:
            await txn.append(b"x")
            await log.append("trains", b"between")
            await txn.append(b"y")
        async with log.group("workers").join("trains") as member:
            first = await take(member)
            found = list(first.payloads)
            batch = first
            while b"y" not in found:
                batch = await take(member)
                found += batch.payloads
            assert found == [b"between", b"x", b"y"]
            x = next(it for it in batch.messages if it.payload == b"x")
            with pytest.raises(BadCommit, match="same transaction"):
                await batch.ack([x])
            await batch.ack([it for it in batch.messages if it.payload in (b"x", b"y")])


async def test_positions_survive_a_restart_of_the_broker(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, log):
        await log.collections.create("trains")
        await log.append_batch("trains", [b"a", b"b"])
        await log.append_batch("trains", [b"c"])
        async with log.group("workers").join("trains", prefetch_bytes=1) as member:
            batch = await take(member)
            assert batch.payloads == [b"a", b"b", b"c"]
            await batch.ack(batch.messages[:1])
    async with running(tmp_path) as (_, log), log.group("workers").join("trains") as member:
        assert await gathered(member, 2) == [b"b", b"c"]


async def test_a_group_begins_where_it_is_told_and_is_sought(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, log):
        await log.collections.create("trains")
        first = await log.append("trains", b"a")
        second = await log.append("trains", b"b")
        group = log.group("workers")
        await group.create("trains", start="latest", lease_s=5)
        await log.append("trains", b"c")
        async with group.join("trains") as member:
            batch = await take(member)
            assert batch.payloads == [b"c"]
            assert batch.lease_s <= 5
            with pytest.raises(ResourceAcquired, match="members"):
                await group.seek("trains", "all")
        await until_empty(log, "workers")
        await group.seek("trains", ("tick", second.tick))
        async with group.join("trains") as member:
            assert await gathered(member, 2) == [b"b", b"c"]
        await until_empty(log, "workers")
        await group.seek("trains", "all")
        lag = await group.lag("trains")
        assert [it.messages for it in lag.values()] == [3]
        assert first.tick < second.tick


async def until_empty(log: Client, name: str, target: str = "trains") -> None:
    while True:
        views = await log.group(name).describe(target)
        if not any(it.members for it in views):
            return


async def test_groups_are_created_once_listed_and_dropped(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, log):
        await log.collections.create("trains", shards=3)
        group = log.group("workers")
        with pytest.raises(NoSuchGroup):
            await group.describe("trains")
        created = await group.create("trains")
        assert len(created) == 3
        with pytest.raises(AlreadyExists):
            await group.create("trains")
        await group.create("trains", exist_ok=True)
        await log.group("others").create(created[0].group.key.vchannel)
        names = [it.group.key.name for it in await log.groups.list("trains")]
        assert names == ["others", *["workers"] * 3]
        # Of a group that is there in part the rest is created, and the rest is dropped.
        await group.drop(created[1].group.key.vchannel)
        assert len(await group.create("trains")) == 3
        await group.drop(created[1].group.key.vchannel)
        await group.drop("trains")
        with pytest.raises(NoSuchGroup):
            await group.drop("trains")
        with pytest.raises(NoSuchGroup):
            await group.seek("trains", "all")


async def test_a_member_creates_its_group_only_where_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    ask = ServiceCalls.ask

    async def counted(calls: ServiceCalls, method: str, *rest: Any, **more: Any) -> Any:
        asked.append(method)
        return await ask(calls, method, *rest, **more)

    async with running(tmp_path) as (_, log):
        await log.collections.create("trains", shards=3)
        group = log.group("workers")
        created = await group.create("trains", lease_s=7.0)
        monkeypatch.setattr(ServiceCalls, "ask", counted)
        async with group.join("trains", lease_s=9.0):
            assert asked == ["Get", "List"]
        await group.drop(created[1].group.key.vchannel)
        async with group.join("trains", lease_s=9.0):
            pass
        assert [it.group.lease_ms for it in await group.describe("trains")] == [7000, 9000, 7000]
        assert asked.count("Create") == 1
        # Also where it is: what would be wrong for a new one is wrong.
        with pytest.raises(InvalidArgument, match="lease of 1 ms"):
            await take(group.join("trains", lease_s=0.001))
        with pytest.raises(BadTarget, match="no start"):
            await take(group.join("trains", start="lastest"))
        with pytest.raises(InvalidArgument, match="group name ''"):
            await take(log.group("").join("trains"))
        with pytest.raises(InvalidArgument, match="cannot be changed"):
            await take(log.group("workers", mode="ordered", by="key").join("trains"))


async def test_a_brief_list_has_no_members(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, log):
        await log.collections.create("trains", shards=1)
        group = log.group("workers", mode="ordered")
        async with group.join("trains"):
            (whole,) = await group.describe("trains")
            while not whole.members:  # its stream is on its way
                (whole,) = await group.describe("trains")
            calls = group._parts.calls
            (brief,) = await calls.list_some([whole.group.key.vchannel], None, brief=True)
            assert brief.members == ()
            assert (brief.group.key, brief.group.mode) == (whole.group.key, whole.group.mode)


async def test_bad_input_is_refused_by_name(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, log):
        await log.collections.create("trains")
        with pytest.raises(InvalidArgument, match="group name 'a/b'"):
            await log.group("a/b").create("trains")
        with pytest.raises(InvalidArgument, match="lease of 1 ms"):
            await log.group("g").create("trains", lease_s=0.001)
        with pytest.raises(InvalidArgument, match="newest closed"):
            await log.group("g").create("trains", start=("tick", 1 << 62))
        with pytest.raises(BadTarget, match="no start"):
            await log.group("g").create("trains", start="soon")
        with pytest.raises(NoSuchCollection):
            await log.group("g").create("planes")
        with pytest.raises(NoSuchCollection):
            await take(log.group("g").join("planes"))
        with pytest.raises(BadTarget, match="pchannel"):
            await log.group("g").create("by-dev-rootcoord-dml_0")
        with pytest.raises(BadTarget, match="prefetch_bytes"):
            log.group("g").join("trains", prefetch_bytes=0)
        async with log.group("g").join("trains") as member:
            await log.append("trains", b"a")
            batch = await take(member)
            with pytest.raises(InvalidArgument, match="delay of -1000 ms"):
                await batch.nack(delay_s=-1)


async def test_a_member_that_takes_nothing_holds_nobody_up(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, log):
        await log.collections.create("trains")
        group = log.group("workers")
        await group.create("trains", lease_s=0.3)
        async with group.join("trains", member="slow", prefetch_bytes=1) as slow:
            await log.append("trains", b"a")
            await log.append("trains", b"b")
            held = await take(slow)
            async with group.join("trains", member="quick") as quick:
                found: set[bytes] = set()
                while found != {b"a", b"b"}:
                    batch = await take(quick)
                    with suppress(LeaseLost):  # so slow a machine: it comes again
                        await batch.ack()
                        found |= set(batch.payloads)
                with pytest.raises(LeaseLost):
                    await held.ack()
