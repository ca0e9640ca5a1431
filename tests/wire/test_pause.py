"""Consumption that an operator pauses: who waits, who does not, and what is said meanwhile."""

from pathlib import Path

import anyio

from broker.client import Message, connect
from broker.client.cluster.server_admin import ServerAdmin
from schemas.generated.milvus.proto import streaming as wire
from schemas.wire import Consumed
from tests.local_broker import local_broker
from tests.wire.peer import Peer, PeerStream
from tests.wire.small_broker import V0, SmallBroker
from tests.wire.test_consume import (
    ALL,
    appended,
    is_tick,
    next_messages,
    opened,
    received,
)

DEADLINE_S = 60.0


def request(*, ignore: bool) -> bytes:
    wanted = wire.CreateVChannelConsumerRequest(
        vchannel=V0, deliver_policy=ALL, ignore_pause_consumption=ignore
    )
    return bytes(wire.ConsumeRequest(create_vchannel_consumer=wanted))


async def ticks(stream: PeerStream, count: int) -> None:
    while count:
        count -= is_tick(await received(stream))


async def test_a_consumer_opened_while_it_is_paused_waits_and_then_gets_everything(
    broker: SmallBroker, peer: Peer
) -> None:
    async with connect(broker.address) as log:
        node = ServerAdmin(log._network.coordinator, deadline_s=DEADLINE_S)
        with anyio.fail_after(DEADLINE_S):
            early = await opened(peer, request(ignore=False))
            (first,) = await appended(peer, b"first")
            await next_messages(early, 1)
            await node.pause_consumption(paused=True)
            assert (await log.admin.health()).consumption_paused

            late = await opened(peer, request(ignore=False))
            excepted = await opened(peer, request(ignore=True))
            (second,) = await appended(peer, b"second")
            assert [it.payload for it in await next_messages(excepted, 2)] == [b"first", b"second"]
            assert [it.message_id for it in await next_messages(early, 1)] == [second.message_id]
            found: list[Consumed] = []

            async def take() -> None:
                while len([it for it in found if not is_tick(it)]) < 2:
                    found.append(await received(late))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(take)
                await ticks(early, 10)  # long enough for a Pull to be answered empty, and more
                assert found == [], "not even a tick"
                await node.pause_consumption(paused=False)
            both = [it.message_id for it in found if not is_tick(it)]
            assert both == [first.message_id, second.message_id]
            assert not (await log.admin.health()).consumption_paused


async def test_it_holds_over_a_restart_until_it_is_resumed(tmp_path: Path) -> None:
    with anyio.fail_after(DEADLINE_S):
        async with (
            local_broker(tmp_path, pchannels=1) as broker,
            connect(broker.address) as log,
        ):
            await log.raw_append(V0, Message(b"there"))
            await log.admin.pause_consumption()
        async with (
            local_broker(tmp_path, pchannels=1) as broker,
            connect(broker.address) as log,
        ):
            assert (await log.admin.health()).consumption_paused
            found: list[bytes] = []

            async def read() -> None:
                reader = log.read(V0, until="now").messages()
                found.extend([it.payload async for it in reader])

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(read)
                excepted = log.read(V0, until="now", ignore_pause=True)
                assert [it.payload async for it in excepted.messages()] == [b"there"]
                assert found == []
                await log.admin.resume_consumption()
            assert found == [b"there"]
        async with (
            local_broker(tmp_path, pchannels=1) as broker,
            connect(broker.address) as log,
        ):
            assert not (await log.admin.health()).consumption_paused
