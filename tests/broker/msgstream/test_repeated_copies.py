"""A copy of a broadcast that lies in a log twice: in the packs of one stream it is once."""

from pathlib import Path

from broker.app.actor_lookup import DIRECTORY
from broker.client import Client, connect
from broker.codec.broadcast_copies import new_message
from broker.model.broadcast import Broadcast, BroadcastCopy
from broker.model.ids import BroadcastId, NodeId, PChannelName, VChannelName
from broker.model.message import Appended, MessageType
from broker.msgstream import MsgPack, MsgPosition, TidemarkMsgStreamFactory
from broker.node.control import LocalNode
from schemas.generated.milvus.proto import common
from tests.broker.msgstream.memory_streams import at, names
from tests.local_broker import local_broker

P = PChannelName("by-dev-rootcoord-dml_0")
V = VChannelName(f"{P}_1v0")
SHARED = common.ImmutableMessage(
    payload=at(1, "copy").marshal(),
    properties={"_t": str(int(MessageType.INSERT)), "_v": "2", "_h": ""},
)
ASKED = Broadcast(MessageType.INSERT, (V,), (), bytes(SHARED), 9, "k", "f", True, True)
COPY = new_message(BroadcastCopy(BroadcastId(1), V, ASKED))


def in_order(packs: list[MsgPack]) -> list[str]:
    return [name for it in packs for name in names(it)]


async def packs_of(log: Client, last: int, after: MsgPack | None = None) -> list[MsgPack]:
    """Of a new stream, up to the pack that has the tick `last`."""
    stream = TidemarkMsgStreamFactory(log).new_tt_msg_stream()
    await stream.as_consumer([V], "readers")
    if after is not None:
        await stream.seek([MsgPosition.parse(bytes(it)) for it in after.end_positions])
    await stream.start()
    found: list[MsgPack] = []
    while not found or found[-1].end_ts < last:
        pack = await stream.consume(deadline_s=20)
        assert pack is not None
        found.append(pack)
    await stream.close()
    return found


async def test_one_stream_gives_a_copy_once_and_one_that_continues_behind_it_the_second(
    tmp_path: Path,
) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        node = LocalNode(NodeId(1), broker.address, lambda: broker.system.find(DIRECTORY))

        async def append_copy() -> Appended:
            (done,) = await node.append(P, [COPY])
            assert isinstance(done, Appended)
            return done

        before = await packs_of(log, (await append_copy()).tick)
        await log.append(V, at(2, "row").marshal())
        last = (await append_copy()).tick
        everything = await packs_of(log, last)
        following = await packs_of(log, last, before[-1])
    assert in_order(before) == ["copy"]
    assert in_order(everything) == ["copy", "row"]
    assert in_order(following) == ["row", "copy"]
