"""A node that reaches its coordinator, and that nobody reaches: a link that is cut one way."""

from contextlib import AsyncExitStack
from pathlib import Path

import anyio

from broker.client import Client, connect
from tests.broker_process import free_port
from tests.chaos.storm.proxy import Link
from tests.roles_processes import GUARD_S, RoleProcess, owners, until

SETTINGS = {
    "pchannels": "2",
    "node_lease_s": "1",
    "expected_nodes": "2",
    "balance_interval_s": "1",
    "min_rebalance_interval_s": "0",
}
FOR_EVER_S = 1e6


async def are_on(log: Client, *nodes: int) -> bool:
    found = await owners(log)
    return len(found) == 2 and set(found.values()) == set(nodes)


async def test_its_channels_go_on_elsewhere_and_it_joins_again_when_it_is_reached(
    tmp_path: Path,
) -> None:
    behind = free_port()
    link = Link("to node 1", free_port(), behind)
    async with anyio.create_task_group() as tasks:
        await link.start(tasks)
        await _appends_through_a_silence(tmp_path, link, behind)
        tasks.cancel_scope.cancel()


async def _appends_through_a_silence(folder: Path, link: Link, behind: int) -> None:
    data = ("--data-dir", str(folder))
    written = [b"row %d" % number for number in range(20)]
    async with AsyncExitStack() as running:

        def start(*words: str, **settings: str) -> RoleProcess:
            return running.enter_context(RoleProcess(*words, *data, **settings))

        at = await start("coordinator", "--listen", "127.0.0.1:0", **SETTINGS).ready()
        node = ("node", "--coordinator", at, "--node-id")
        first = start(*(*node, "1", "--listen", f"127.0.0.1:{behind}", "--advertise", link.address))
        second = start(*node, "2", "--listen", "127.0.0.1:0")
        for process in (first, second):
            await process.ready()
        log = await running.enter_async_context(connect(at))
        await log.collections.create("rows", shards=2)
        await until(lambda: are_on(log, 1, 2))
        for row in written[:10]:
            await log.append("rows", row, deadline_s=GUARD_S)
        async with anyio.create_task_group() as cut:
            cut.start_soon(link.silence, FOR_EVER_S)
            await until(lambda: are_on(log, 2))
            for row in written[10:]:
                await log.append("rows", row, deadline_s=GUARD_S)
            sent = await log.broadcast.append("rows", b"everywhere", deadline_s=GUARD_S)
            assert len(sent.results) == 2
            cut.cancel_scope.cancel()
        await until(lambda: are_on(log, 1, 2))
        read = [it.payload async for it in log.read("rows", until="now").messages()]
        assert sorted(it for it in read if it != b"everywhere") == sorted(written)
