"""A copy as it is appended, and what becomes of copies whose channel is not there."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from broker.codec.broadcast_copies import NodeCopies, new_message
from broker.model.broadcast import Broadcast, BroadcastCopy, ResourceKey
from broker.model.channel import ChannelOffsets
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.ids import (
    BroadcastId,
    MessageId,
    NodeId,
    PChannelName,
    Term,
    TimeTick,
    VChannelName,
)
from broker.model.message import Appended, NewMessage
from schemas.generated.milvus.proto import common
from schemas.properties.broadcast_header import BroadcastHeader, HeaderKey, read_broadcast_header

V = (VChannelName("p_0_1v0"), VChannelName("p_1_1v0"))
SHARED = common.ImmutableMessage(payload=b"ddl", properties={"_t": "16", "_v": "2", "_h": ""})
ASKED = Broadcast(16, V, (ResourceKey.database("d"),), bytes(SHARED), 9, "k", "f", True, True)
GONE = Refusal(StreamingCode.ON_SHUTDOWN, "the node is stopping")


def test_a_copy_is_the_shared_message_with_its_vchannel_and_the_keys_that_are_held() -> None:
    copies = [new_message(BroadcastCopy(BroadcastId(7), vchannel, ASKED)) for vchannel in V]
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


class Node:
    """Only what copies need of a node; the log is a list of calls."""

    def __init__(self, number: int, refusal: Refusal | None = None) -> None:
        self.node_id = NodeId(number)
        self.refusal = refusal
        self.calls: list[tuple[PChannelName, list[str]]] = []

    async def append(
        self, name: PChannelName, messages: Sequence[NewMessage]
    ) -> Sequence[Appended | Refusal]:
        self._check()
        self.calls.append((name, [it.vchannel for it in messages]))
        return [Appended(MessageId(1), TimeTick(9), MessageId(1))] * len(messages)

    async def describe(
        self, names: Sequence[PChannelName]
    ) -> Mapping[PChannelName, ChannelOffsets]:
        self._check()
        one = MessageId(1)
        return {
            name: ChannelOffsets(name, Term(1), one, one, TimeTick(9), 0, observed_tick=TimeTick(5))
            for name in names
        }

    def _check(self) -> None:
        if self.refusal:
            raise Refused(self.refusal.code, self.refusal.cause)


def copies_at(**nodes: Node) -> NodeCopies:
    async def owners() -> Mapping[PChannelName, Any]:
        return {PChannelName(name): node for name, node in nodes.items()}

    return NodeCopies(owners)


def copy(vchannel: str, size: int = 9) -> BroadcastCopy:
    return BroadcastCopy(BroadcastId(7), VChannelName(vchannel), replace(ASKED, size=size))


async def test_each_node_gets_the_copies_of_its_pchannels_and_outcomes_keep_the_order() -> None:
    one, two = Node(1), Node(2, GONE)
    copies = copies_at(p_0=one, p_1=two)
    asked = [copy(it) for it in ("p_1_1v0", "p_0_1v0", "p_2_1v0", "p_0_2v0")]
    gone, first, absent, second = await copies.append(asked)
    assert isinstance(gone, Refusal)
    assert (gone.code, GONE.cause in gone.cause) == (StreamingCode.UNKNOWN, True)
    assert isinstance(first, Appended)
    assert isinstance(second, Appended)
    assert isinstance(absent, Refusal)
    assert absent.code is StreamingCode.CHANNEL_NOT_EXIST
    assert one.calls == [(PChannelName("p_0"), ["p_0_1v0", "p_0_2v0"])]
    names = [PChannelName(f"p_{it}") for it in range(3)]
    assert await copies.processed(names) == {PChannelName("p_0"): 5}


async def test_large_copies_go_in_calls_that_a_node_takes() -> None:
    one = Node(1)
    sizes = (3 << 20, 3 << 20, 8 << 20, 1 << 20, 1 << 20)
    outcomes = await copies_at(p_0=one).append(
        [copy(f"p_0_{it}v0", size) for it, size in enumerate(sizes)]
    )
    assert all(isinstance(it, Appended) for it in outcomes)
    assert [len(names) for _, names in one.calls] == [1, 1, 1, 2]
