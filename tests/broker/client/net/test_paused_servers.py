"""A paused server says nothing and keeps its connections; a client follows its successor."""

import random
from collections.abc import Iterator
from itertools import count, repeat
from typing import Any

import anyio
import pytest

from actors.testing import run_seeded
from broker.client import Deadlines, connect
from broker.client.net.assignments import DOUBT_S
from broker.client.net.network import Network
from broker.model.channel import PChannel
from broker.model.ids import PChannelName, Term
from tests.broker.client.scripted import PCHANNEL, VCHANNEL, ScriptedBroker, scripted_broker


class PausedNode(ScriptedBroker):
    """Does not answer the first question; the channel moves meanwhile."""

    asked = 0

    async def _describe(self, call: Any) -> None:
        self.asked += 1
        if self.asked == 1:
            self.reassign()
            await anyio.sleep_forever()
        await super()._describe(call)


async def test_a_question_follows_a_channel_away_from_a_node_that_is_paused() -> None:
    node = PausedNode()
    async with scripted_broker(broker=node), connect(node.address) as log:
        await log.append(VCHANNEL, b"0")
        found = await log.offsets.describe([VCHANNEL])
        assert found[VCHANNEL].next_id == 2
    assert (node.asked, node.term) == (2, 3)


class PausedCoordinator(ScriptedBroker):
    """Once it is `paused` it takes streams and says nothing on them."""

    paused = False
    opened = 0

    async def _discover(self, call: Any) -> None:
        self.opened += 1
        if self.paused:
            await anyio.sleep_forever()
        await super()._discover(call)


async def test_appends_follow_the_next_leader_when_the_first_one_is_paused() -> None:
    first = PausedCoordinator()
    async with (
        scripted_broker(broker=first),
        scripted_broker() as second,
        scripted_broker() as node2,
        scripted_broker() as node1,
    ):
        servers = f"{first.address},{second.address}"
        first.address = node1.address
        async with connect(servers) as log:
            await log.append(VCHANNEL, b"0")
            # The leader and node 1 are paused: nothing more comes from the one, and every stream
            # to the other one breaks. The second coordinator leads, and node 2 has the log.
            first.paused = True
            second.address, second.term = node2.address, 3
            second._version = 1000
            node2.log, node2.numbers = node1.log, node1.numbers
            node1.lose_requests = 1 << 30
            await log.append(VCHANNEL, b"1")  # with the default deadline
        assert [it.body[2:3] for it in node2.log] == [b"0", b"1"]


class SilentNode(ScriptedBroker):
    """Once it is `silent` it answers no question either, and keeps every connection."""

    async def _describe(self, call: Any) -> None:
        if self.silent:
            await anyio.sleep_forever()
        await super()._describe(call)


async def test_what_is_in_flight_follows_the_next_leader_when_leader_and_node_are_paused() -> None:
    first, node1 = PausedCoordinator(), SilentNode()
    async with (
        scripted_broker(broker=first),
        scripted_broker() as second,
        scripted_broker() as node2,
        scripted_broker(broker=node1),
    ):
        servers = f"{first.address},{second.address}"
        first.address = node1.address
        async with connect(servers) as log:
            await log.append(VCHANNEL, b"0")
            # Nothing ends: neither the stream of the leader, nor those to node 1.
            first.paused = node1.silent = True
            second.address, second.term = node2.address, 3
            second._version = 1000
            node2.log, node2.numbers = node1.log, node1.numbers
            # Both with the default deadlines.
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(log.append, VCHANNEL, b"1")
                found = await log.offsets.describe([VCHANNEL])
            assert found[VCHANNEL].next_id == 3
        assert [it.body[2:3] for it in node2.log] == [b"0", b"1"]


@pytest.mark.parametrize(
    ("answers", "doubted"),
    [(repeat(None), False), (count(), False), (repeat(0.0), True)],
    ids=["nothing is awaited", "answers come", "no answer comes"],
)
def test_a_leader_is_doubted_only_where_no_answer_comes(
    answers: Iterator[object], doubted: bool
) -> None:
    async def scenario() -> None:
        spread = random.Random(1)
        network = Network("a:1,b:1", cluster="", deadlines=Deadlines(), spread=spread)
        with anyio.move_on_after(10 * DOUBT_S):
            await network.assignments.until_moved(
                PChannel(PChannelName(PCHANNEL), Term(2)), lambda: next(answers)
            )
        assert network.assignments._newer_wanted.is_set() == doubted

    run_seeded(1, scenario)


async def test_the_only_coordinator_is_not_doubted_when_there_is_no_newer_table() -> None:
    only = PausedCoordinator()
    async with scripted_broker(broker=only), connect(only.address) as log:
        only.serving = False
        only.announce()
        with anyio.move_on_after(3.0):
            await log.append(VCHANNEL, b"0")
    assert only.opened == 1
