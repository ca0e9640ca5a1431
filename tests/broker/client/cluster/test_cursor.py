"""Named cursors in a program's hands, over restarts and changes of owner."""

from pathlib import Path

import anyio
import pytest

from broker.client import InvalidArgument, NoSuchCollection, connect
from broker.client.cluster.targets import NewVChannel
from broker.client.errors import ChannelNotExist, CursorMovedBack, NoSuchCursor, ServerFailed
from tests.broker_process import BrokerProcess, free_port
from tests.local_broker import local_broker


async def test_a_cursor_says_how_far_its_targets_are_processed(tmp_path: Path) -> None:
    async with (
        local_broker(tmp_path / "data", pchannels=2) as broker,
        connect(broker.address) as log,
        connect(broker.address) as dashboard,
    ):
        flights = await log.collections.create("flights", shards=2)
        cut = await log.cut("flights")
        made = await log.cursor("nightly").move(cut.tick, "flights")
        assert (made.tick, made.channels) == (cut.tick, flights.vchannels)
        await log.append("flights", b"x")
        second = await log.cut("flights")
        assert (await log.cursor("nightly").move(second.tick)).tick == second.tick
        assert (await log.cursor("nightly").move(second.tick)).tick == second.tick
        (seen,) = await dashboard.cursors.list()
        assert (seen.name, seen.tick) == ("nightly", second.tick)
        assert seen.closed_tick >= second.tick
        assert (await dashboard.cursor("nightly").get()).tick == second.tick
        await dashboard.cursor("nightly").drop()
        assert await log.cursors.list() == []


async def test_each_misuse_of_a_cursor_has_its_error(tmp_path: Path) -> None:
    async with (
        local_broker(tmp_path / "data", pchannels=1) as broker,
        connect(broker.address) as log,
    ):
        vchannel = NewVChannel("by-dev-rootcoord-dml_0_7v0")
        tick = (await log.cut(vchannel)).tick
        cursor = log.cursor("c")
        for asked in (cursor.get, cursor.drop, lambda: cursor.move(tick)):
            with pytest.raises(NoSuchCursor, match="'c'"):
                await asked()
        await cursor.move(tick, [vchannel])
        with pytest.raises(CursorMovedBack, match=str(tick)):
            await cursor.move(tick - 1)
        with pytest.raises(NoSuchCollection):
            await cursor.move(tick, "nowhere")
        with pytest.raises(ChannelNotExist, match="dml_1"):
            await cursor.move(tick, NewVChannel("by-dev-rootcoord-dml_1_7v0"))
        for wrong in (0, -5, 1 << 64, tick + (60_000 << 18)):
            with pytest.raises(InvalidArgument):
                await cursor.move(wrong)
        with pytest.raises(ServerFailed, match="not closed yet"):
            await cursor.move(tick + (8_000 << 18), deadline_s=1.5)
        with pytest.raises(InvalidArgument):
            await log.cursor("").get()
        assert (await cursor.get()).tick == tick


async def test_a_cursor_is_there_after_kills_of_broker_and_nodes(tmp_path: Path) -> None:
    listen = f"127.0.0.1:{free_port()}"
    vchannels = [NewVChannel(f"by-dev-rootcoord-dml_{number}_7v0") for number in range(4)]
    settings = {"nodes": "2", "pchannels": "4"}
    with BrokerProcess(tmp_path / "data", listen, **settings) as process:
        async with connect(listen) as log:
            first = await log.cut(vchannels)
            await log.cursor("c").move(first.tick, vchannels)
            process.kill()
            with BrokerProcess(tmp_path / "data", listen, **settings), anyio.fail_after(60):
                await log.append(vchannels[0], b"x", deadline_s=60.0)
                assert (await log.cursor("c").move(first.tick, deadline_s=60.0)).tick == first.tick
                second = await log.cut(vchannels)
                moved = await log.cursor("c").move(second.tick, deadline_s=60.0)
                assert (moved.tick, moved.channels) == (second.tick, tuple(vchannels))
                with pytest.raises(CursorMovedBack):
                    await log.cursor("c").move(first.tick)
