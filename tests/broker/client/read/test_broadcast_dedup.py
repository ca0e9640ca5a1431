"""A copy of a broadcast that lies in a log twice: each reader of ours shows the first one."""

from itertools import pairwise
from pathlib import Path

import pytest

from broker.app.actor_lookup import DIRECTORY
from broker.client import connect
from broker.client.read.broadcast_dedup import BroadcastDedup
from broker.codec.broadcast_copies import new_message
from broker.model.broadcast import BroadcastCopy
from broker.model.ids import BroadcastId, NodeId, PChannelName, VChannelName
from broker.model.message import Appended, NewMessage
from broker.node.control import LocalNode
from schemas.batches import STORED, ReadBatch
from tests.broker.codec.test_broadcast_copies import ASKED
from tests.local_broker import local_broker

P0 = PChannelName("by-dev-rootcoord-dml_0")
V0, V1 = VChannelName(f"{P0}_1v0"), VChannelName(f"{P0}_2v0")


def copy(broadcast_id: int, vchannel: VChannelName = V0) -> NewMessage:
    return new_message(BroadcastCopy(BroadcastId(broadcast_id), vchannel, ASKED))


async def test_read_and_read_batches_show_the_first_copy_of_each_vchannel(tmp_path: Path) -> None:
    async with (
        local_broker(tmp_path, pchannels=1) as broker,
        connect(broker.address) as log,
    ):
        node = LocalNode(NodeId(1), broker.address, lambda: broker.system.find(DIRECTORY))
        together = await node.append(P0, [copy(1), copy(2), copy(1), copy(3), copy(1, V1)])
        assert all(isinstance(it, Appended) for it in together)
        await log.append(V0, b"row")
        await node.append(P0, [copy(2), copy(2, V1), copy(4)])
        for vchannel, ids in ((V0, [1, 2, 3, None, 4]), (V1, [1, 2])):
            single = [it.broadcast_id async for it in log.read(vchannel, until="now").messages()]
            batches = [it async for it in log.read_batches([vchannel], until="now")]
            assert single == ids
            assert [it.broadcast_id for batch in batches for it in batch.messages] == ids
            for one, other in pairwise(it for it in batches if len(it)):
                assert one.closed_tick < other.ticks[0]
        everything = [it async for it in log.read_batches([V0, V1], until="now")]
        found = [it.broadcast_id for batch in everything for it in batch.messages]
        assert sorted(it or 0 for it in found) == [0, 1, 1, 2, 2, 3, 4]


@pytest.mark.parametrize("form", [0, STORED])
def test_what_mentions_no_broadcast_is_given_as_it_is(form: int) -> None:
    batch = ReadBatch(sizes=(1, 1), form=form, end=2, body=b"ab")
    assert BroadcastDedup().without_repeats(batch) == [batch]


def test_the_same_copy_that_comes_again_on_another_stream_still_counts() -> None:
    body = copy(7).body
    batch = ReadBatch(
        vchannel=V0, sizes=(len(body),), message_id=5, tick=9, form=STORED, end=1, body=body
    )
    copies = BroadcastDedup()
    assert copies.without_repeats(batch) == [batch]
    assert copies.without_repeats(batch) == [batch]
    assert copies.without_repeats(batch._replace(message_id=6, tick=10)) == []
