"""A reader of all whose stream broke inside a purge: told only if it was given a message before."""

from pathlib import Path

import anyio
import pytest

from broker.client import Batch, Client, connect
from broker.client.errors import Unrecoverable
from broker.client.net.one_slot_queue import OneSlotQueue
from broker.client.read.decoder import MessageFilter
from broker.client.read.deliveries import Deliveries, UnackedBatch
from broker.client.read.resuming_reader import ResumingReader
from broker.client.read.subscription import Subscription
from broker.client.read.vchannel_progress import VChannelProgress
from broker.core.naming import pchannel_of
from broker.model.ids import MessageId, TimeTick, VChannelName
from broker.model.position import FromAll
from tests.local_broker import local_broker

GUARD_S = 60.0


async def purged(log: Client) -> tuple[VChannelName, TimeTick, MessageId]:
    """A vchannel with one message behind a purge, and a tick and its id inside of the purge."""
    (vchannel,) = (await log.collections.create("trains", shards=1)).vchannels
    await log.append(vchannel, b"first")
    inside = (await log.cut(vchannel)).tick
    second = await log.append(vchannel, b"second")
    await log.purge(vchannel, upto=(await log.cut(vchannel)).tick)
    await log.append(vchannel, b"left")
    return VChannelName(vchannel), TimeTick(inside), MessageId(second.id)


async def first_payloads(log: Client, vchannel: VChannelName, at: VChannelProgress) -> list[bytes]:
    """What a reader that has come so far is given on its next stream."""
    parts = log.group("any")._parts
    wanted = Subscription(MessageFilter(pchannel_of(vchannel), vchannel), at)
    queue = OneSlotQueue[UnackedBatch[Batch]]()
    deliveries = Deliveries(queue)
    reader = ResumingReader(parts.network, parts.offsets, wanted)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reader.run, deliveries)
        came = await queue.take()
        tasks.cancel_scope.cancel()
    return [it.payload for it in came.batch.messages]


async def test_one_that_had_heard_only_a_tick_begins_anew(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        vchannel, tick, id = await purged(log)
        progress = VChannelProgress(FromAll())
        progress.close(tick, id)
        with anyio.fail_after(GUARD_S):
            assert await first_payloads(log, vchannel, progress) == [b"left"]


async def test_one_that_was_given_a_message_is_told(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        vchannel, tick, id = await purged(log)
        progress = VChannelProgress(FromAll())
        assert progress.admit(MessageId(1), TimeTick(tick - 1), MessageId(1), whole=True)
        progress.close(tick, id)
        with anyio.fail_after(GUARD_S), pytest.RaisesGroup(Unrecoverable):
            await first_payloads(log, vchannel, progress)
