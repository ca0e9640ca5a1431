"""Time ticks through a real broker: reports of proxies and write nodes, messages on channels."""

from pathlib import Path

import anyio
import pyarrow as pa
import pytest

from broker.client import Client, Message, Received, connect
from broker.client.errors import BadTarget, InvalidArgument, ResourceAcquired, UnknownMember
from broker.codec.tick_messages import TICK_PROPERTY, TICK_TYPE
from broker.model.master.tenancy import ProxyMember
from broker.model.master.time_ticks import TickOrigin, TickPolicy
from schemas.generated.milvus.proto import msg
from tests.local_broker import local_broker

PROXIES, WRITE_NODES = TickOrigin.PROXIES, TickOrigin.WRITE_NODES


async def add_proxies(log: Client, *ids: int) -> None:
    for number in ids:
        await log.master.add_proxy(ProxyMember(number, "127.0.0.1", 19_530 + number))


async def ticks_on(log: Client, channel: str, count: int) -> list[Received]:
    """The first tick messages of a channel."""
    found: list[Received] = []
    with anyio.fail_after(30):
        async for batch in log.read(channel, start="all"):
            found += [it for it in batch.messages if it.type == TICK_TYPE]
            if len(found) >= count:
                return found
    raise AssertionError(f"{channel} ended")


async def until_sent(log: Client, origin: TickOrigin, tick: int) -> None:
    with anyio.fail_after(30):
        while (await log.master.describe_time_ticks(origin)).sent < tick:
            await anyio.lowlevel.checkpoint()


async def test_a_tick_of_all_proxies_reaches_every_channel_behind_their_data(
    tmp_path: Path,
) -> None:
    async with local_broker(tmp_path, pchannels=2) as broker, connect(broker.address) as log:
        plain = await log.collections.create("plain", shards=2)
        schema = pa.schema([("n", pa.int64())])
        rows = await log.collections.create("rows", shards=1, schema=schema)
        channels = [*plain.vchannels, *rows.vchannels]
        await add_proxies(log, 1, 2)
        await log.master.set_time_ticks(PROXIES, [1, 2], channels)
        await log.append("plain", b"before", key=b"k")
        await log.append_arrow("rows", pa.table({"n": [1, 2, 3]}))
        tick = await log.master.alloc_timestamp()
        assert await log.master.report_time_tick(PROXIES, 1, tick + 9) == 0
        assert await log.master.report_time_tick(PROXIES, 2, tick) == tick
        for channel in plain.vchannels:
            (found,) = await ticks_on(log, channel, 1)
            assert found.properties[TICK_PROPERTY] == str(tick)
            base = msg.TimeTickMsg.parse(found.payload).base
            assert base is not None
            assert (int(base.msg_type), base.timestamp, base.source_id) == (1200, tick, 0)
        # Readers of rows do not see it, and their rows are all there.
        await until_sent(log, PROXIES, tick)
        await log.append_arrow("rows", pa.table({"n": [4]}))
        read = [it.column("n").to_pylist() async for it in log.read_arrow("rows", until="now")]
        assert [number for part in read for number in part] == [1, 2, 3, 4]


async def test_after_a_restart_nothing_passes_before_every_proxy_has_reported(
    tmp_path: Path,
) -> None:
    first = 0
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        (channel,) = (await log.collections.create("trains")).vchannels
        await add_proxies(log, 1, 2)
        await log.master.set_time_ticks(PROXIES, [1, 2], [channel], interval_ms=1)
        first = await log.master.alloc_timestamp()
        for proxy in (1, 2):
            await log.master.report_time_tick(PROXIES, proxy, first)
        await until_sent(log, PROXIES, first)
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        view = await log.master.describe_time_ticks(PROXIES)
        assert view.settings is not None
        assert (view.settings.peers, view.settings.channels) == ((1, 2), (channel,))
        assert (view.passed, view.waits_for) == (first, (1, 2))
        second = await log.master.alloc_timestamp()
        assert await log.master.report_time_tick(PROXIES, 1, second) == first
        # A report from before the restart that arrives again passes nothing either.
        assert await log.master.report_time_tick(PROXIES, 2, first) == first
        assert await log.master.report_time_tick(PROXIES, 2, second) == second
        found = await ticks_on(log, channel, 2)
        assert [it.properties[TICK_PROPERTY] for it in found] == [str(first), str(second)]


async def test_ticks_of_write_nodes_pass_when_all_have_reported_the_same(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        channel = "by-dev-rootcoord-dml_0_1v0"
        await log.master.set_time_ticks(WRITE_NODES, [7, 8], [channel])
        ticks = [await log.master.alloc_timestamp() for _ in range(3)]
        for tick in ticks:
            await log.master.report_time_tick(WRITE_NODES, 7, tick)
        for tick in (ticks[0], ticks[2]):
            await log.master.report_time_tick(WRITE_NODES, 8, tick)
        await until_sent(log, WRITE_NODES, ticks[2])
        found = await ticks_on(log, channel, 2)
        assert [int(it.properties[TICK_PROPERTY]) for it in found] == [ticks[0], ticks[2]]
        view = await log.master.describe_time_ticks(WRITE_NODES)
        assert (view.skipped, view.waiting, view.error) == (1, 0, "")
        closed = await log.master.close_time_ticks(WRITE_NODES)
        assert (closed.settings, closed.passed) == (None, ticks[2])
        assert (await log.master.close_time_ticks(WRITE_NODES)).settings is None
        with pytest.raises(UnknownMember, match="no time ticks of WRITE_NODES are set"):
            await log.master.report_time_tick(WRITE_NODES, 7, ticks[2] + 1)


async def test_a_stranger_and_a_bad_tick_are_refused_by_value(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        (channel,) = (await log.collections.create("trains")).vchannels
        with pytest.raises(UnknownMember, match="proxy 1 is not known to the master; add it"):
            await log.master.set_time_ticks(PROXIES, [1], [channel])
        assert (await log.master.describe_time_ticks(PROXIES)).settings is None
        await add_proxies(log, 1)
        with pytest.raises(UnknownMember, match="'nowhere' is no channel of this cluster"):
            await log.master.set_time_ticks(PROXIES, [1], ["nowhere"])
        for policy in (TickPolicy.LIST, TickPolicy.MINIMUM):
            with pytest.raises(InvalidArgument, match=f"rule {policy.name}; use SOFT"):
                await log.master.set_time_ticks(PROXIES, [1], [channel], policy=policy)
        await log.master.set_time_ticks(PROXIES, [1], [channel])
        with pytest.raises(UnknownMember, match="2 is not one of those that report ticks: 1"):
            await log.master.report_time_tick(PROXIES, 2, 5)
        future = await log.master.alloc_timestamp() + (3_600_000 << 18)
        for tick in (0, future):
            with pytest.raises(InvalidArgument, match=f"tick {tick} is not between"):
                await log.master.report_time_tick(PROXIES, 1, tick)
        for tick in (-1, 1 << 64):
            with pytest.raises(BadTarget, match="is not a time tick"):
                await log.master.report_time_tick(PROXIES, 1, tick)
        with pytest.raises(ResourceAcquired, match="wait for proxy 1; set them without it"):
            await log.master.delete_proxy(1)
        await log.master.close_time_ticks(PROXIES)
        await log.master.delete_proxy(1)


async def test_ticks_go_on_when_their_actors_die(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        (channel,) = (await log.collections.create("trains")).vchannels
        await log.raw_append(channel, Message(b"data"))
        await log.master.set_time_ticks(WRITE_NODES, [1], [channel], policy=TickPolicy.MINIMUM)
        sent: list[int] = []
        for victim in ("write_nodes", "write_nodes_sender", "write_nodes"):
            sent.append(await log.master.alloc_timestamp())
            await log.master.report_time_tick(WRITE_NODES, 1, sent[-1])
            await until_sent(log, WRITE_NODES, sent[-1])
            broker.system.kill(f"/root/master/time_ticks/{victim}")
        found = await ticks_on(log, channel, 3)
        assert [int(it.properties[TICK_PROPERTY]) for it in found] == sent
