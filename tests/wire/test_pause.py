"""Consumption that an operator pauses: who waits, who does not, and what is said meanwhile."""

import anyio

from broker.client import connect
from broker.client.admin import Admin
from schemas.generated.milvus.proto import streaming as wire
from schemas.wire import Consumed
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
        node = Admin(log._network.coordinator, deadline_s=DEADLINE_S)
        with anyio.fail_after(DEADLINE_S):
            early = await opened(peer, request(ignore=False))
            (first,) = await appended(peer, b"first")
            await next_messages(early, 1)
            await node.pause_consumption(paused=True)
            assert (await log.health()).consumption_paused

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
            assert not (await log.health()).consumption_paused
