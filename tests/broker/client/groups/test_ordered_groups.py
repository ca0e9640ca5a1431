"""Ordered groups over a real broker: of each key, or vchannel, one member at a time, in order."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import pytest

from broker.app import Broker
from broker.client import Client, Message, connect
from broker.client.errors import BadTarget, InvalidArgument, LeaseLost
from broker.client.groups.leased_batch import LeasedBatch
from broker.client.groups.member import GroupMember
from broker.model.groups.group_mode import GroupMode
from tests.broker.client.groups.test_groups import PATIENT
from tests.local_broker import local_broker

DEADLINE_S = 180
"""Of a whole test, against hanging only."""
POLL_S = 0.02


@asynccontextmanager
async def running(tmp_path: Path) -> AsyncIterator[tuple[Broker, Client]]:
    async with (
        asyncio.timeout(DEADLINE_S),
        local_broker(tmp_path, pchannels=4) as broker,
        connect(broker.address, deadlines=PATIENT) as log,
    ):
        yield broker, log


async def fill(log: Client, keys: Sequence[bytes], rounds: int, shards: int = 1) -> None:
    await log.collections.create("trains", shards=shards)
    await send(log, keys, rounds)


async def send(log: Client, keys: Sequence[bytes], rounds: int) -> None:
    messages = [Message(b"%s %d" % (key, at), key=key) for at in range(rounds) for key in keys]
    await log.append_messages("trains", messages, atomic=False)


async def take(member: GroupMember) -> LeasedBatch:
    return await member.__anext__()


class Work:
    """What members took, in the order in which it came."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.taken: list[tuple[str, bytes]] = []
        self.over = asyncio.Event()

    async def run(self, name: str, member: GroupMember) -> None:
        async for batch in member:
            self.taken += [(name, it) for it in batch.payloads]
            await batch.ack()
            self.left -= len(batch)
            if self.left <= 0:
                self.over.set()

    def of(self, key: bytes) -> list[bytes]:
        return [it for _, it in self.taken if it.startswith(key + b" ")]


async def test_members_own_keys_and_get_the_messages_of_each_in_order(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, log), AsyncExitStack() as members:
        keys = [b"k%d" % number for number in range(40)]
        await log.collections.create("trains", shards=2)
        group = log.group("workers", mode="ordered", by="key")
        work = Work(1000)
        async with anyio.create_task_group() as tasks:
            for name in ("ann", "bob", "cid"):
                member = group.join("trains", member=name, prefetch_bytes=2048)
                await members.enter_async_context(member)
                tasks.start_soon(work.run, name, member)
            await send(log, keys, 25)
            await work.over.wait()
            tasks.cancel_scope.cancel()
        assert len(work.taken) == 1000
        for key in keys:
            assert work.of(key) == [b"%s %d" % (key, at) for at in range(25)]
        views = await group.describe("trains")
        assert {it.group.mode for it in views} == {GroupMode.BY_KEY}
        for view in views:
            assert sorted(it.owns for it in view.members) == [85, 85, 86]
        assert {name for name, _ in work.taken} == {"ann", "bob", "cid"}


async def owners(log: Client, target: str) -> dict[str, str]:
    views = await log.group("workers").describe(target)
    return {it.group.key.vchannel: m.name for it in views for m in it.members if m.owns}


async def test_vchannels_are_shared_out_evenly_and_a_death_moves_those_of_the_dead_only(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (_, log), AsyncExitStack() as members:
        await log.collections.create("trains", shards=16)
        group = log.group("workers", mode="ordered")
        joined = {}
        for name in ("ann", "bob", "cid"):
            joined[name] = group.join("trains", member=name)
            await members.enter_async_context(joined[name])
        before: dict[str, str] = {}
        while sorted(list(before.values()).count(it) for it in joined) != [5, 5, 6]:
            await anyio.sleep(POLL_S)
            before = await owners(log, "trains")
        await joined["bob"].close()
        after: dict[str, str] = {}
        while sorted(list(after.values()).count(it) for it in joined) != [0, 8, 8]:
            await anyio.sleep(POLL_S)
            after = await owners(log, "trains")
        moved = {it for it in before if before[it] != after[it]}
        assert moved == {it for it in before if before[it] == "bob"}


async def test_the_next_message_of_a_key_waits_until_the_one_before_is_settled(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (_, log):
        group = log.group("workers", mode="ordered", by="key")
        await fill(log, [b"a", b"b"], 1)
        async with group.join("trains") as ann:
            batch = await take(ann)
            a, b = batch.messages
            await log.append("trains", b"a 1", key=b"a")
            await log.append("trains", b"b 1", key=b"b")
            await batch.ack([b])
            again = await take(ann)
            assert again.payloads == [b"b 1"]
            await batch.nack([a])
            came = await take(ann)
            assert came.payloads == [b"a 0"]
            await came.ack()
            assert (await take(ann)).payloads == [b"a 1"]


async def test_what_is_behind_a_message_given_back_comes_again_behind_it(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, log):
        group = log.group("workers", mode="ordered", by="key")
        await fill(log, [b"a", b"b"], 2)
        async with group.join("trains") as ann:
            batch = await take(ann)
            assert batch.payloads == [b"a 0", b"b 0", b"a 1", b"b 1"]
            a0, b0, a1, b1 = batch.messages
            with pytest.raises(InvalidArgument, match="comes behind"):
                await batch.ack([a1])
            await batch.nack([a0])
            with pytest.raises(LeaseLost, match="behind it"):
                await batch.ack([a1])
            await batch.ack([b0, b1])
            found: list[bytes] = []
            while len(found) < 2:
                again = await take(ann)
                found += again.payloads
                await again.ack()
            assert found == [b"a 0", b"a 1"]


async def test_a_mode_is_kept_and_another_one_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, log):
        await log.collections.create("trains")
        await log.group("workers", mode="ordered", by="key").create("trains")
        (view,) = await log.group("workers").create("trains", exist_ok=True)
        assert view.group.mode is GroupMode.BY_KEY
        for other in (log.group("workers", mode="shared"), log.group("workers", mode="ordered")):
            with pytest.raises(InvalidArgument, match="cannot be changed"):
                await other.create("trains", exist_ok=True)
        with pytest.raises(BadTarget, match="no mode"):
            log.group("workers", by="key")
