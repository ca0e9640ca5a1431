"""What the tests of broadcasts hold: a small broker, a peer, what lies on the logs."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import grpc.aio
import pytest

from broker.coordinator.broadcast.messages import ListBroadcasts, ListLocks
from broker.core.naming import pchannel_of
from broker.edge.rpc.proxies import Proxy
from broker.model.failure import StreamingCode as Code
from broker.model.message import Delivered
from broker.model.position import FromAll
from broker.node.directory_messages import Locate, OpenScanner
from broker.node.scanner_messages import CloseScanner, Delivery, Pull
from broker.ports.callbacks import Callbacks
from schemas.generated.milvus.proto import common, messages
from schemas.generated.milvus.proto import streaming as wire
from schemas.properties.broadcast_header import (
    BroadcastHeader,
    HeaderKey,
    read_broadcast_header,
    write_broadcast_header,
)
from schemas.properties.keys import TIME_TICK
from schemas.wire import rocksmq_id_text
from tests.broker.core.log.singly import messages_of
from tests.wire.peer import Peer, connected, ended
from tests.wire.small_broker import SmallBroker, small_broker

SERVICE = "/milvus.proto.streaming.StreamingCoordBroadcastService/"
DIRECTORY = "/root/node/directory"
LOCKS = "/root/coordinator/broadcaster/locks"
P = "by-dev-rootcoord-dml_"
V = (f"{P}0_vcchan", f"{P}1_100v0", f"{P}2_100v1")
ANY_OF_CLUSTER = HeaderKey(127, "", True)
COLLECTION = HeaderKey(2, "default:flights", False)
CREATE_DATABASE = 16
ANSWER_S = 60.0


@dataclass
class World:
    broker: SmallBroker
    peer: Peer

    async def broadcast(self, asked: bytes) -> wire.BroadcastResponse:
        return wire.BroadcastResponse.parse(await self.peer.call(SERVICE + "Broadcast", asked))

    async def ack(self, message: common.ImmutableMessage | None, **legacy: Any) -> None:
        asked = wire.BroadcastAckRequest(message=message, **legacy)
        assert await self.peer.call(SERVICE + "Ack", bytes(asked)) == b""

    async def refusal(self, call: str, asked: bytes) -> tuple[Code, str]:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.peer.call(SERVICE + call, asked)
        error = ended(caught.value).error
        assert error is not None
        return Code(error.code), error.cause

    async def on(self, vchannel: str) -> list["Stored"]:
        """What a consumer of this vchannel gets."""
        directory = Proxy(lambda: self.broker.system.find(DIRECTORY))
        name = pchannel_of(vchannel)
        end = (await directory.demand(Locate(name, None))).view.offsets().next_id
        opened = await directory.demand(OpenScanner(name, None, vchannel, FromAll()))
        found, cursor = [], opened.cursor
        while cursor.next_id < end:
            delivery = await opened.scanner.ask(Pull(cursor, 1 << 24), deadline_s=ANSWER_S)
            assert isinstance(delivery, Delivery)
            found += [stored(it) for it in messages_of(delivery.items)]
            cursor = delivery.cursor
        opened.scanner.tell(CloseScanner())
        return found

    async def untouched(self) -> bool:
        """Nothing recorded, locked or appended."""
        broadcaster = self.broker.system.find(LOCKS)
        listed = await broadcaster.ask(ListBroadcasts(), deadline_s=ANSWER_S)
        locks = await broadcaster.ask(ListLocks(), deadline_s=ANSWER_S)
        return not (listed or locks or any([await self.on(vchannel) for vchannel in V]))


@asynccontextmanager
async def world(
    callbacks: Callbacks | None = None, *, node_acks: bool = True, **given: Any
) -> AsyncIterator[World]:
    async with (
        small_broker(pchannels=3, broadcasts=(callbacks or {}, node_acks), **given) as broker,
        connected(broker) as peer,
    ):
        yield World(broker, peer)


@dataclass(frozen=True)
class Stored:
    """A message as a consumer gets it."""

    id: int
    tick: int
    tags: dict[str, str]
    payload: bytes

    @property
    def broadcast_id(self) -> int:
        return read_broadcast_header(self.tags["_bh"]).broadcast_id

    def delivered(self) -> common.ImmutableMessage:
        id = common.MessageId(id=rocksmq_id_text(self.id), WAL_name=common.WalName(1))
        return common.ImmutableMessage(id=id, payload=self.payload, properties=self.tags)


def stored(it: Delivered) -> Stored:
    message = common.ImmutableMessage.parse(it.body)
    tags = message.properties | TIME_TICK.entry(it.tick) | {"_lcs": ""}
    return Stored(it.id, it.tick, tags, message.payload)


def request(header: BroadcastHeader | str | None, **properties: str) -> bytes:
    stored = {"_t": str(CREATE_DATABASE), "_v": "2", "_h": "CGQ="} | properties
    if isinstance(header, BroadcastHeader):
        stored["_bh"] = write_broadcast_header(header)
    elif header is not None:
        stored["_bh"] = header
    message = messages.Message(payload=b"ddl", properties=stored)
    return bytes(wire.BroadcastRequest(message=message))


async def until(found: Callable[[], Awaitable[bool]]) -> None:
    with anyio.fail_after(ANSWER_S):
        while not await found():  # noqa: ASYNC110 - it is asked of a server
            await anyio.sleep(0.01)
