"""`log.broadcast` against a whole broker: append, ack, waits, retries, one answer for one key."""

import asyncio
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import anyio
import pytest
from anyio.from_thread import start_blocking_portal

from broker.app import Broker
from broker.client import (
    Client,
    InvalidArgument,
    Message,
    OutcomeUnknown,
    Received,
    ResourceKey,
    Unrecoverable,
    connect,
)
from broker.client.cluster import BroadcastInfo
from broker.client.cluster.targets import NewVChannel
from broker.client.errors import BadTarget
from broker.model.broadcast import Broadcast, Broadcasted
from broker.model.message import MessageType
from broker.ports.callbacks import FailedForGood
from tests.local_broker import local_broker

CONTROL = "by-dev-rootcoord-dml_0_vcchan"
FLIGHTS = ResourceKey.collection("flights")
GUARD_S = 60.0
SHORT_S = 1.5
"""To be asked, on a slow machine too, and not to be answered in time."""


class Schema:
    """A callback of the tests: fails for good until it is mended."""

    mended = False

    async def __call__(self, _: Broadcast, __: Broadcasted) -> None:
        if not self.mended:
            raise FailedForGood("no schema")


SCHEMA = Schema()


def running(folder: Path) -> AbstractAsyncContextManager[Broker]:
    SCHEMA.mended = False
    callbacks = {int(MessageType.DROP_DATABASE): SCHEMA}
    return local_broker(folder, callbacks, pchannels=3, drain_s=1, node_acks=False)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[str]:
    """The address of one that runs in a thread and a loop of its own."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(running(tmp_path)) as started,
    ):
        yield started.address


async def on(log: Client, target: str) -> list[Received]:
    return [message async for message in log.read(target, until="now").messages()]


async def copies(log: Client, target: str, count: int) -> list[Received]:
    with anyio.fail_after(GUARD_S):
        async with log.read(target) as reader:
            found: list[Received] = []
            async for message in reader.messages():
                found.append(message)
                if len(found) == count:
                    break
            return found


async def test_a_broadcast_is_read_on_every_vchannel_of_its_targets(broker: str) -> None:
    async with connect(broker) as log:
        flights = await log.collections.create("flights", shards=3)
        sent = await log.broadcast.append(
            ["flights", CONTROL], b"ddl", keys=[FLIGHTS], properties={"by": "me"},
            type=MessageType.CREATE_DATABASE, version=2, header=b"\x08\x01",
        )  # fmt: skip
        assert set(sent.results) == {*flights.vchannels, CONTROL}
        created, *ordered = await on(log, CONTROL)
        assert created.type == MessageType.CREATE_COLLECTION
        for message in [*await on(log, "flights"), *ordered]:
            landed = sent.results[message.vchannel]
            assert (message.id, message.tick) == (landed.id, landed.tick)
            assert (message.payload, message.properties["by"]) == (b"ddl", "me")
            assert message.broadcast_id == sent.id
            assert message.type == MessageType.CREATE_DATABASE
        assert await log.broadcast.list() == []
        assert await log.broadcast.locks() == []


async def test_the_same_idempotency_key_gives_the_same_answer(broker: str) -> None:
    async with connect(broker) as log:
        first = await log.broadcast.append(CONTROL, b"x", idempotency_key="k")
        assert await log.broadcast.append(CONTROL, b"x", idempotency_key="k") == first
        with pytest.raises(InvalidArgument, match="other content"):
            await log.broadcast.append(CONTROL, b"y", idempotency_key="k")
        assert await log.broadcast.append(CONTROL, b"x") != first
        assert [it.payload for it in await on(log, CONTROL)] == [b"x", b"x"]


async def test_copies_are_acknowledged_and_waits_for_keys_end_with_them(broker: str) -> None:
    async with connect(broker) as log, anyio.create_task_group() as tasks:
        flights = await log.collections.create("flights", shards=2)
        ended: list[str] = []

        async def broadcast() -> None:
            await log.broadcast.append("flights", b"ddl", keys=[FLIGHTS], ack_sync_up=True)
            ended.append("broadcast")

        async def once() -> None:
            await log.broadcast.block_until_resource_key_ack_once(FLIGHTS)
            ended.append("once")

        async def all_acked() -> None:
            await log.broadcast.block_until_resource_key_ack_all(FLIGHTS)
            ended.append("all")

        tasks.start_soon(broadcast)
        found = await copies(log, "flights", 2)
        info = await recorded(log, 2)
        assert (info.state, info.acked) == ("pending", 0)
        assert info.keys[0] == FLIGHTS
        (lock,) = await log.broadcast.locks()
        assert (lock.owner, lock.held) == (info.name, True)
        async with anyio.create_task_group() as waits:
            waits.start_soon(all_acked)
            waits.start_soon(once)
            await log.broadcast.ack(found[0])
            await log.broadcast.ack(found[0])
            await _until(ended, "once")
            assert "all" not in ended
            await log.broadcast.ack(found[1])
        await _until(ended, "broadcast")
        await log.broadcast.block_until_resource_key_ack_all(FLIGHTS)
        assert len(flights.vchannels) == 2


async def recorded(log: Client, appended: int) -> BroadcastInfo:
    """The only broadcast, when so many of its copies are known to have landed."""
    with anyio.fail_after(GUARD_S):
        while True:
            (info,) = await log.broadcast.list()
            if info.appended == appended:
                return info


async def _until(ended: list[str], what: str) -> None:
    with anyio.fail_after(GUARD_S):
        while what not in ended:  # noqa: ASYNC110 - other tasks of this loop fill it
            await anyio.sleep(0.005)


async def test_only_a_copy_of_a_broadcast_can_be_acknowledged(broker: str) -> None:
    async with connect(broker) as log:
        await log.raw_append(CONTROL, Message(b"plain"))
        (plain,) = await on(log, CONTROL)
        assert plain.broadcast_id is None
        with pytest.raises(BadTarget, match="not of a broadcast"):
            await log.broadcast.ack(plain)


@pytest.mark.parametrize(
    "targets", [[], [CONTROL, CONTROL], [NewVChannel("by-dev-rootcoord-dml_7_1v0")]]
)
async def test_no_target_twice_the_same_or_an_unknown_one_is_refused(
    broker: str, targets: list[str]
) -> None:
    async with connect(broker) as log:
        with pytest.raises(InvalidArgument):
            await log.broadcast.append(targets, b"x")
        assert await on(log, CONTROL) == []


async def test_a_deadline_that_passes_leaves_the_outcome_open_and_the_key_finds_it(
    broker: str,
) -> None:
    async with connect(broker) as log:
        with pytest.raises(OutcomeUnknown, match="idempotency_key='late'"):
            await log.broadcast.append(
                CONTROL, b"x", ack_sync_up=True, idempotency_key="late", deadline_s=SHORT_S
            )
        (copy,) = await copies(log, CONTROL, 1)
        await log.broadcast.ack(copy)
        found = await log.broadcast.append(
            CONTROL, b"x", ack_sync_up=True, idempotency_key="late"
        )  # fmt: skip
        assert found.id == copy.broadcast_id


async def test_a_poisoned_broadcast_is_listed_retried_and_skipped_and_blocks_its_keys_only(
    broker: str,
) -> None:
    poison = int(MessageType.DROP_DATABASE)
    async with connect(broker) as log:
        for number in (1, 2):
            with pytest.raises(Unrecoverable, match="no schema"):
                await log.broadcast.append(
                    CONTROL, b"x", keys=[ResourceKey.collection(f"c{number}")], type=poison
                )
        sick = await log.broadcast.list(quarantine_only=True)
        assert [(it.state, it.poison) for it in sick] == [("quarantine", "no schema")] * 2
        await log.broadcast.append(CONTROL, b"free", keys=[FLIGHTS])
        with pytest.raises(OutcomeUnknown):
            await log.broadcast.append(
                CONTROL, b"held", keys=[ResourceKey.collection("c1")], deadline_s=SHORT_S
            )
        await log.broadcast.skip(sick[0].name)
        SCHEMA.mended = True
        await log.broadcast.retry(sick[1].name)
        for number in (1, 2):
            await log.broadcast.append(CONTROL, b"", keys=[ResourceKey.collection(f"c{number}")])
        assert await log.broadcast.list() == []
        for call in (log.broadcast.skip(sick[0].name), log.broadcast.retry("7")):
            with pytest.raises(InvalidArgument, match="no unfinished broadcast"):
                await call


async def test_a_broadcast_outlives_the_coordinator_that_began_it(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connect(broker.address) as log:
        asked = asyncio.gather(log.broadcast.append([CONTROL], b"x", ack_sync_up=True))
        (copy,) = await copies(log, CONTROL, 1)
        broker.system.kill("/root/coordinator/broadcaster/locks")
        await log.broadcast.ack(copy)
        (done,) = await asked
        assert done.id == copy.broadcast_id
        assert len(await on(log, CONTROL)) == 1
