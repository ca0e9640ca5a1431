"""Nodes that cannot be reached where they say, and how long they are told of."""

from collections.abc import Callable, Sequence

import pytest

from broker.model.channel import ChannelTicks
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import NodeId
from broker.ports.nodes import Unreachable
from broker.remote.calls import Calls
from broker.remote.reached_nodes import NODES_MAX, WARN_S, NodeNotReached, ReachedNodes
from broker.remote.remote_node import RemoteNode

ONE = NodeId(1)


class Answering(RemoteNode):
    """Answers as it is told to."""

    def __init__(self, where: "Places", node: NodeId, address: str) -> None:
        super().__init__(node, address, Calls("nowhere", 1, {}), lambda: None)
        self._where = where

    async def status(self) -> Sequence[ChannelTicks]:
        found = self._where.answers.get(self.address)
        if found is not None:
            raise found
        return []

    def release(self) -> None:
        self._where.released += 1


class Places:
    """What answers at each address; a node does at those that are not named."""

    def __init__(self, **answers: Refused) -> None:
        self.answers = {f"{host}:1": it for host, it in answers.items()}
        self.released = 0
        self.now_s = 1000.0
        self.nodes = ReachedNodes(self._connect, lambda: self.now_s)

    def _connect(self, node: NodeId, address: str, _: Callable[[], None]) -> RemoteNode:
        return Answering(self, node, address)


async def test_a_node_that_answers_may_join_whatever_else_it_says() -> None:
    places = Places(busy=Refused(StreamingCode.INNER, "the store does not answer"))
    await places.nodes.check(ONE, "a:1")
    await places.nodes.check(ONE, "busy:1")
    assert places.nodes.warnings() == []
    assert places.released == 2


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Unreachable("nothing listens at x:1"), "cannot reach it: nothing listens at x:1"),
        (
            Refused(StreamingCode.IGNORED_OPERATION, "this is server 2"),
            "another process answers there: this is server 2",
        ),
    ],
)
async def test_one_that_is_not_there_is_refused_and_told_of(answer: Refused, why: str) -> None:
    places = Places(x=answer)
    with pytest.raises(NodeNotReached) as refused:
        await places.nodes.check(ONE, "x:1")
    cause = refused.value.refusal.cause
    assert cause.startswith("node 1 advertises x:1, and ")
    assert why in cause
    assert "start it with --advertise HOST[:PORT]" in cause
    assert refused.value.refusal.code is StreamingCode.IGNORED_OPERATION
    assert places.nodes.warnings() == [cause]
    assert places.released == 1


async def test_who_is_reached_later_or_has_given_up_is_told_of_no_more() -> None:
    places = Places(x=Unreachable("away"))
    for number in (1, 2):
        with pytest.raises(NodeNotReached):
            await places.nodes.check(NodeId(number), "x:1")
    await places.nodes.check(ONE, "a:1")
    (left,) = places.nodes.warnings()
    assert left.startswith("node 2 ")
    places.now_s += WARN_S
    assert places.nodes.warnings() == []


async def test_no_more_nodes_are_told_of_than_a_person_reads() -> None:
    places = Places(x=Unreachable("away"))
    for number in range(1, NODES_MAX + 3):
        with pytest.raises(NodeNotReached):
            await places.nodes.check(NodeId(number), "x:1")
    told = places.nodes.warnings()
    assert len(told) == NODES_MAX
    assert told[0].startswith("node 3 ")
