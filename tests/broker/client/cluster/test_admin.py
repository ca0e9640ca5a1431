"""A cluster of several processes shown as one tree, and killed in as one."""

import os
import random
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from broker.client import Client, ConnectionLost, Deadlines, InvalidArgument, connect
from broker.client.cluster import ActorInfo, ChannelInfo, Health
from broker.client.cluster.admin import Admin
from broker.client.cluster.server_admin import ServerAdmin
from broker.client.errors import TermMismatch
from broker.client.net.network import Network
from tests.broker_process import BrokerProcess

DEADLINE_S = 60.0
UNANSWERED_S = 4.0
"""A node that is stopped is not waited for any longer; one that runs answers within it."""
CONTROLLERS = "/node-{}/node/channels/by-dev-rootcoord-dml_{}/controller"
FLEET = "/root/fleet/"


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    with anyio.fail_after(DEADLINE_S):
        while not await true():  # noqa: ASYNC110 - another process is looked at
            await anyio.sleep(0.05)


async def terms(log: Client, path: str = "") -> dict[str, int]:
    return {it.path: it.term for it in await log.admin.actors(path)}


async def test_actors_of_node_processes_stand_in_one_tree_and_are_killed_by_its_paths(
    tmp_path: Path,
) -> None:
    with BrokerProcess(tmp_path, nodes="2", pchannels="2", allow_chaos="true") as broker:
        async with connect(broker.address) as log:
            homes = [it.node_id for it in await log.admin.channels()]
            assert sorted(homes) == [1, 2]
            keepers = [CONTROLLERS.format(node, number) for number, node in enumerate(homes)]
            everybody = await terms(log)
            assert {"/root", "/node-1", "/node-2", "/node-1/node/directory", *keepers} <= set(
                everybody
            )
            assert list(everybody) == sorted(everybody)
            path = keepers[0]
            assert await terms(log, path) == {path: 1}
            assert path not in await terms(log, "/root")
            assert await log.admin.kill_actor(path, term=1) == 1

            async def is_back() -> bool:
                return await terms(log, path) == {path: 2}

            await until(is_back)
            with pytest.raises(TermMismatch):
                await log.admin.kill_actor(path, term=1)
            for nowhere in ("/node-9/node", "/node-x/node", "/node-1/nobody", "/node-"):
                with pytest.raises(InvalidArgument):
                    await log.admin.kill_actor(nowhere)
            assert (await terms(log, keepers[1])) == {keepers[1]: 1}
        assert broker.terminate() == 0


async def test_a_node_that_does_not_answer_is_trouble_and_not_an_error(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, nodes="2", pchannels="2", node_lease_s="300") as broker:
        impatient = Deadlines(open_s=UNANSWERED_S, call_s=UNANSWERED_S)
        async with (
            connect(broker.address) as log,
            connect(broker.address, deadlines=impatient) as other,
        ):
            assert (await log.admin.health()).state == "healthy"
            pids = {it.path: it.extra.get("pid") for it in await log.admin.actors(FLEET)}
            stopped = next(int(pid) for path, pid in pids.items() if pid and path.endswith("1"))
            os.kill(stopped, signal.SIGSTOP)
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(see_degraded, other)
                    silent = [it for it in await other.admin.actors() if it.state == "unreachable"]
                assert [it.path for it in silent] == ["/node-1"]
            finally:
                os.kill(stopped, signal.SIGCONT)


async def see_degraded(log: Client) -> None:
    health = await log.admin.health()
    assert health.state == "degraded"
    assert [it.name for it in health.troubles] == ["node 1"]


async def test_warnings_of_nodes_are_told_with_their_node(tmp_path: Path) -> None:
    soon = {"memory_bytes_max": str(1 << 30), "memory_warn_percent": "1"}
    with BrokerProcess(tmp_path, nodes="2", pchannels="2", **soon) as broker:
        async with connect(broker.address) as log:

            async def is_told() -> bool:
                found = sorted((await log.admin.health()).warnings)
                return [it.partition(": the process uses")[0] for it in found] == [
                    "node 1: memory watermark WARN",
                    "node 2: memory watermark WARN",
                ]

            await until(is_told)
        assert broker.terminate() == 0


class Leaving(ServerAdmin):
    """A server that is gone when it is asked for its channels."""

    async def actors(self, path: str) -> list[ActorInfo]:
        return []

    async def health(self) -> Health:
        return Health(
            "healthy", "1", 1, "by-dev", "rocksmq", "", 1, 1, 0, 0, (), (), 0,
            consumption_paused=False,
        )  # fmt: skip

    async def channels(self) -> list[ChannelInfo]:
        raise ConnectionLost("gone")


async def test_a_server_that_goes_away_between_two_questions_is_one_plain_error() -> None:
    network = Network(
        "127.0.0.1:1", cluster="by-dev", deadlines=Deadlines(), spread=random.Random(1)
    )
    leaving = Leaving(network.coordinator, deadline_s=1.0)
    tree = Admin(network, deadline_s=1.0, server=leaving)
    with pytest.raises(ConnectionLost):
        await tree.actors("")
    with pytest.raises(ConnectionLost):
        await tree.health()
    network.close()
