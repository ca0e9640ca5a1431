"""Node processes under kill -9: their channels go on elsewhere, nothing acknowledged is lost."""

import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

from broker.client import Client, connect
from tests.broker_process import BrokerProcess

DEADLINE_S = 60.0
PAYLOAD = b"row %d"


async def node_pids(log: Client) -> dict[str, int]:
    """The processes that the coordinator watches over, by the name of their actor."""
    return {
        actor.path.rpartition("/")[2]: int(actor.extra["pid"])
        for actor in await log.actors()
        if "/fleet/" in actor.path and "pid" in actor.extra
    }


async def owners(log: Client) -> dict[str, int]:
    return {it.name: it.node_id for it in await log.channels() if it.state == "assigned"}


async def comes_back(log: Client, pid: int) -> bool:
    return (await node_pids(log)).get("node-1") not in (None, pid)


async def all_served(log: Client) -> bool:
    return len(await owners(log)) == 4


async def until(happens: Callable[[], Awaitable[bool]]) -> None:
    """Look again and again; the caller has the deadline."""
    while True:
        if await happens():
            return
        await anyio.sleep(0.05)


async def test_a_killed_nodes_channels_go_on_elsewhere_and_it_comes_back(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", nodes="2", pchannels="4") as broker:
        async with connect(broker.address) as log:
            await log.collections.create("rows", shards=4)
            before = await owners(log)
            assert set(before.values()) == {1, 2}
            pids = await node_pids(log)
            written = []
            with anyio.fail_after(DEADLINE_S):
                for number in range(400):
                    if number == 100:
                        os.kill(pids["node-1"], signal.SIGKILL)
                    await log.append("rows", PAYLOAD % number, deadline_s=DEADLINE_S)
                    written.append(PAYLOAD % number)
                await until(lambda: comes_back(log, pids["node-1"]))
                await until(lambda: all_served(log))
                read = [it.payload async for it in log.read("rows", until="now").messages()]
            assert set(written) <= set(read)
            cut = await log.cut("rows")
            assert len(cut.ends) == 4
        assert broker.terminate() == 0
