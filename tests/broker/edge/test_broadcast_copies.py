"""A copy as it is appended, and what becomes of copies whose channel is not there."""

from collections.abc import Sequence
from typing import Any

from actors import Actor, ChildSpec, Envelope, SupervisorSpec, System
from actors.testing import VirtualClock, run_seeded
from broker.edge.broadcast_copies import LocalCopies, new_message
from broker.edge.reach import Reach
from broker.model.broadcast import Broadcast, Copy, ResourceKey
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import BroadcastId, PChannelName, VChannelName
from schemas.broadcast_header import BroadcastHeader, HeaderKey, read_broadcast_header
from schemas.generated.milvus.proto import common

V = (VChannelName("p_0_1v0"), VChannelName("p_1_1v0"))
SHARED = common.ImmutableMessage(payload=b"ddl", properties={"_t": "16", "_v": "2", "_h": ""})
ASKED = Broadcast(16, V, (ResourceKey.database("d"),), bytes(SHARED), 9, "k", "f", True, True)
GONE = Refusal(StreamingCode.ON_SHUTDOWN, "the node is stopping")


def test_a_copy_is_the_shared_message_with_its_vchannel_and_the_keys_that_are_held() -> None:
    copies = [new_message(Copy(BroadcastId(7), vchannel, ASKED)) for vchannel in V]
    for vchannel, copy in zip(V, copies, strict=True):
        stored = common.ImmutableMessage.parse(copy.body)
        header = read_broadcast_header(stored.properties.pop("_bh"))
        assert header == BroadcastHeader(
            7, V, (HeaderKey(3, "d", False), HeaderKey(127, "", True)), True
        )
        assert stored.properties.pop("_vc") == vchannel
        assert stored == SHARED
        assert (copy.vchannel, copy.type, copy.pchannel_level) == (vchannel, 16, True)
        assert copy.size > ASKED.size


class Stopping(Actor[Any]):
    """A Directory that serves nothing."""

    async def receive(self, batch: Sequence[Envelope[Any]]) -> None:
        for envelope in batch:
            envelope.reply(GONE)


def test_a_refusal_of_the_node_is_the_outcome_of_each_copy_and_nothing_is_processed() -> None:
    async def main() -> None:
        spec = SupervisorSpec("root", children=(ChildSpec("directory", Stopping),))
        async with System(spec, clock=VirtualClock()) as system:
            copies = LocalCopies(Reach(lambda: system.find("/root/directory")))
            asked = [Copy(BroadcastId(7), vchannel, ASKED) for vchannel in V]
            assert await copies.append(asked) == [GONE, GONE]
            assert await copies.processed([PChannelName("p_0")]) == {}
            absent = LocalCopies(Reach(lambda: system.find("/root/nobody")))
            outcomes = await absent.append(asked[:1])
            assert isinstance(outcomes[0], Refusal)
            assert outcomes[0].code is StreamingCode.INNER
            assert await absent.processed([PChannelName("p_0")]) == {}

    run_seeded(1, main)
