"""Broadcasts under kill -9 of the broker and under kills of its broadcaster: P25, P26 and P29.

`--rounds N` says how often something is killed (processes half as often, because they take seconds
to come back), `--broadcasts N` how many there are.
"""

import os
import random
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import pytest

from actors import ActorStatistics
from broker.client import Client, connect
from broker.client.cluster.targets import NewVChannel
from tests.broadcast_load import judge, make_load
from tests.broker_process import BrokerProcess, free_port
from tests.local_broker import local_broker

VCHANNELS = [NewVChannel(f"by-dev-rootcoord-dml_{it}_{it}v0") for it in range(4)]
GUARD_S = 60.0
VICTIMS = ("", "/locks", "/tasks")


async def test_broadcasts_survive_kill_nine_in_one_order(
    tmp_path: Path, rounds: int, pytestconfig: pytest.Config
) -> None:
    count: int = pytestconfig.getoption("--broadcasts")
    load, chosen = make_load(count, VCHANNELS, seed=rounds), random.Random(rounds)
    address = f"127.0.0.1:{free_port()}"
    broker = BrokerProcess(tmp_path / "data", address, pchannels="4")
    try:
        async with connect(address) as log:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(load.run, log)
                for _ in range(max(1, rounds // 2)):
                    await load.reach(len(load.ids) + chosen.randint(1, 9))
                    await anyio.to_thread.run_sync(broker.kill)
                    broker = await anyio.to_thread.run_sync(
                        lambda: BrokerProcess(tmp_path / "data", address, pchannels="4")
                    )
            assert await judge(log, load, VCHANNELS) > 0
            assert await log.broadcast.locks() == []
    finally:
        broker.kill()


async def test_broadcasts_survive_kills_of_the_broadcaster_and_of_tasks(
    tmp_path: Path, rounds: int, pytestconfig: pytest.Config
) -> None:
    count: int = pytestconfig.getoption("--broadcasts")
    load, chosen = make_load(count, VCHANNELS, seed=rounds), random.Random(rounds)
    root = "/root/coordinator/broadcaster"
    async with local_broker(tmp_path, pchannels=4) as broker, connect(broker.address) as log:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(load.run, log)
            for _ in range(rounds):
                await load.reach(len(load.ids) + chosen.randint(1, 9))
                paths = [it.path for it in broker.system.statistics() if it.state == "running"]
                tasks_now = [it for it in paths if it.startswith(f"{root}/tasks/")]
                victims = [root + it for it in VICTIMS] + tasks_now * 2
                victim = chosen.choice([it for it in victims if it in paths])
                broker.system.kill(victim)
                await until_back(broker.system.statistics, f"{root}/locks")
        assert await judge(log, load, VCHANNELS) > 0
        assert await log.broadcast.locks() == []


async def test_broadcasts_survive_kill_nine_of_nodes_in_one_order(
    tmp_path: Path, rounds: int, pytestconfig: pytest.Config
) -> None:
    """The coordinator lives; copies go to whichever node has the channel by then."""
    count: int = pytestconfig.getoption("--broadcasts")
    load, chosen = make_load(count, VCHANNELS, seed=rounds), random.Random(rounds)
    with BrokerProcess(tmp_path / "data", nodes="2", pchannels="4") as broker:
        async with connect(broker.address) as log:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(load.run, log)
                for _ in range(max(1, rounds // 2)):
                    await load.reach(len(load.ids) + chosen.randint(1, 9))
                    await kill_a_node(log, chosen)
            assert await judge(log, load, VCHANNELS) > 0
            assert await log.broadcast.locks() == []


async def kill_a_node(log: Client, chosen: random.Random) -> None:
    """One that lives; waits until there is one."""
    with anyio.fail_after(GUARD_S):
        while True:
            found = [it.extra for it in await log.admin.actors() if "/fleet/" in it.path]
            pids = [int(it["pid"]) for it in found if "pid" in it]
            try:
                os.kill(chosen.choice(pids), signal.SIGKILL)
            except (ProcessLookupError, IndexError):
                await anyio.sleep(0.05)
            else:
                return


async def until_back(statistics: Callable[[], Sequence[ActorStatistics]], path: str) -> None:
    """Until somebody lives there again: who dies faster than it can start is given up on."""
    with anyio.fail_after(GUARD_S):
        while True:
            if any(it.path == path and it.state == "running" for it in statistics()):
                return
            await anyio.sleep(0.01)
