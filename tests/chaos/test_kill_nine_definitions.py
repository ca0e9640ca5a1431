"""Random definitions over kill -9 of the coordinator and of nodes: everything of them agrees.

`--definitions N` changes, `--rounds N` kills.
"""

import logging
import random
import signal
from collections import Counter
from pathlib import Path

import anyio
import pytest

from broker.client import TidemarkError, connect
from tests.chaos.storm.agreement import ddl_agrees
from tests.chaos.storm.cluster import Cluster
from tests.chaos.storm.ddl_history import Told
from tests.chaos.storm.definitions import Definitions
from tests.chaos.storm.read_definitions import read_definitions
from tests.chaos.storm.recorder import Recorder
from tests.chaos.storm.run import wait_until_served

PCHANNELS = 4
END_S = 120.0
TEST_S_MAX = 3600.0
PAUSE_S = 0.5
"""Between two changes of one caller, so that many are on their way at each kill."""

log = logging.getLogger("tests.chaos")


class Killer:
    """Kills the coordinator or a node whenever so many changes more have been answered."""

    def __init__(self, cluster: Cluster, load: Definitions, kills: int) -> None:
        self._cluster = cluster
        self._load = load
        self._kills = kills
        self.killed: Counter[str] = Counter()

    async def run(self) -> None:
        chosen = random.Random(self._kills)
        requests = self._load.recorder.history.ddl.requests
        assert self._load.count is not None
        for kill in range(1, self._kills + 1):
            at = kill * self._load.count // (self._kills + 1)
            while len(requests) < at:  # noqa: ASYNC110 - answers are counted from outside
                await anyio.sleep(0.01)
            members = [self._cluster.coordinator, *self._cluster.nodes]
            victim = members[kill % 2 and chosen.randint(1, len(members) - 1)]
            while not victim.signal(signal.SIGKILL):  # noqa: ASYNC110 - it starts again
                await anyio.sleep(0.05)
            self.killed[victim.name] += 1


@pytest.mark.slow
async def test_definitions_agree_whoever_is_killed(
    tmp_path: Path, rounds: int, pytestconfig: pytest.Config
) -> None:
    count: int = pytestconfig.getoption("--definitions")
    recorder, cluster = Recorder(), Cluster(tmp_path, 2, PCHANNELS)
    try:
        with anyio.fail_after(TEST_S_MAX):
            async with anyio.create_task_group() as background:
                await cluster.start(background)
                await wait_until_served(cluster, PCHANNELS)
                async with connect(cluster.client_links[0].address) as client:
                    load = Definitions(client, recorder, rounds, count, pause_s=PAUSE_S)
                    killer = Killer(cluster, load, rounds)
                    async with anyio.create_task_group() as work:
                        load.start(work)
                        work.start_soon(killer.run)
                    await read_when_settled(cluster, recorder)
                background.cancel_scope.cancel()
    finally:
        cluster.end()
    history = recorder.history
    assert killer.killed.total() == rounds
    told = Counter(it.told for it in history.ddl.requests)
    assert told.total() == count
    assert told[Told.DONE] > count // 8
    assert told[Told.REFUSED] > count // 8
    violations = list(ddl_agrees(history))
    assert not violations, "\n".join([*map(str, violations), *history.ddl.lines()])
    changes, killed = len(history.ddl.control), dict(killer.killed)
    log.info("%s, %d changes, killed: %s", dict(told), changes, killed)


async def read_when_settled(cluster: Cluster, recorder: Recorder) -> None:
    """Once every broadcast has ended; asked again while a process starts."""
    with anyio.fail_after(END_S):
        while True:
            try:
                async with connect(cluster.client_links[1].address) as client:
                    if not await client.broadcast.list():
                        recorder.history.ddl.copies = {}
                        await read_definitions(client, recorder.history.ddl)
                        return
            except* TidemarkError:
                pass
            await anyio.sleep(0.1)
