"""Consume, transform, produce over kill -9 of members, nodes and coordinator: each output once.

`--transform-kills N` kills. Every input has to have one output in each of two places: in another
collection, by staged batches, and beside it on its vchannel, by transactions.
"""

import logging
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import anyio
import pytest

from broker.client import Client, TidemarkError, connect
from tests.chaos.storm.cluster import Cluster
from tests.chaos.storm.run import wait_until_served
from tests.chaos.transform_worker import INLINE, INPUTS, MADE, OUTPUTS, STAGED

PCHANNELS = 3
WORKERS, FILLERS = 4, 6
INPUTS_A_KILL, PROGRESS_S = 40, 10.0
APPEND_S = 10.0
END_S = 90.0
TEST_S_MAX = 3600.0

log = logging.getLogger("tests.chaos")


class Workers:
    """Member processes; one that is killed is started again."""

    def __init__(self, server: str) -> None:
        script = Path(__file__).with_name("transform_worker.py")
        self._command = [sys.executable, str(script), server]
        self._running = [subprocess.Popen(self._command) for _ in range(WORKERS)]

    def kill(self, chosen: random.Random) -> None:
        at = chosen.randrange(WORKERS)
        assert self._running[at].poll() is None, "a worker has ended by itself"
        self._running[at].kill()
        self._running[at].wait()
        self._running[at] = subprocess.Popen(self._command)

    def end(self) -> None:
        for each in self._running:
            each.kill()
            each.wait()


class Killer:
    """Kills until it has killed so many, each time amid work."""

    def __init__(self, cluster: Cluster, workers: Workers, kills: int) -> None:
        self._cluster = cluster
        self._workers = workers
        self._kills = kills
        self.acknowledged: set[bytes] = set()
        """Inputs that are stored, told by who appends them."""
        self.killed: Counter[str] = Counter()
        self.done = False

    async def run(self) -> None:
        chosen = random.Random(self._kills)
        while self.killed.total() < self._kills:
            enough = len(self.acknowledged) + INPUTS_A_KILL
            with anyio.move_on_after(PROGRESS_S):
                while len(self.acknowledged) < enough:  # noqa: ASYNC110 - others count them
                    await anyio.sleep(0.02)
            await anyio.sleep(chosen.uniform(0.0, 1.0))
            kind = chosen.choice(["member", "member", "member", "node", "node", "coordinator"])
            if kind == "member":
                self._workers.kill(chosen)
            else:
                nodes = self._cluster.nodes
                victim = chosen.choice(nodes) if kind == "node" else self._cluster.coordinator
                if not victim.signal(signal.SIGKILL):
                    continue  # it has not started again yet
            self.killed[kind] += 1
        self.done = True


async def fill(client: Client, who: int, killer: Killer) -> None:
    """Append inputs while somebody kills."""
    number = 0
    while not killer.done:
        payload = b"%d/%d" % (who, number)
        number += 1
        try:
            await client.append(INPUTS, payload, key=payload, deadline_s=APPEND_S)
        except TidemarkError:
            continue  # it may be there or not; if it is, it counts as well
        killer.acknowledged.add(payload)
        await anyio.sleep(0.02)


async def read(client: Client, target: str) -> list[bytes]:
    found: list[bytes] = []
    async for batch in client.read(target, until="now"):
        found += [it.payload for it in batch.messages]
    return found


async def until_nothing_is_left(server: str) -> None:
    """As long as less and less is left."""
    least, since_s = sys.maxsize, anyio.current_time()
    while True:
        try:
            async with connect(server) as client:
                lags = {name: await client.group(name).lag(INPUTS) for name in (STAGED, INLINE)}
        except* TidemarkError:
            lags = {}
        left = sum([it.messages for lag in lags.values() for it in lag.values()])
        if lags and not left:
            return
        if lags and left < least:
            least, since_s = left, anyio.current_time()
        assert anyio.current_time() < since_s + END_S, f"nothing moves on: {lags}"
        await anyio.sleep(0.5)


@pytest.mark.slow
async def test_every_input_has_one_output_whoever_is_killed(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    kills: int = pytestconfig.getoption("--transform-kills")
    cluster = Cluster(tmp_path, 2, PCHANNELS)
    workers: Workers | None = None
    try:
        with anyio.fail_after(TEST_S_MAX):
            async with anyio.create_task_group() as background:
                await cluster.start(background)
                await wait_until_served(cluster, PCHANNELS)
                server = cluster.client_links[0].address
                async with connect(server) as client:
                    await client.collections.create(INPUTS, shards=2)
                    await client.collections.create(OUTPUTS, shards=3)
                workers = Workers(server)
                killer = Killer(cluster, workers, kills)
                async with connect(server) as client, anyio.create_task_group() as working:
                    working.start_soon(killer.run)
                    for who in range(FILLERS):
                        working.start_soon(fill, client, who, killer)
                log.info("%d inputs, killed: %s", len(killer.acknowledged), dict(killer.killed))
                await until_nothing_is_left(server)
                async with connect(server) as client:
                    stored, staged = await read(client, INPUTS), await read(client, OUTPUTS)
                background.cancel_scope.cancel()
    finally:
        if workers is not None:
            workers.end()
        cluster.end()
    inputs = [it for it in stored if not it.startswith(MADE)]
    inline = [it for it in stored if it.startswith(MADE)]
    wanted = Counter([MADE + it for it in inputs])
    assert len(wanted) == len(inputs) >= kills
    assert killer.acknowledged <= set(inputs)
    for name, made in (("staged", Counter(staged)), ("inline", Counter(inline))):
        lost, doubled = wanted - made, made - wanted
        assert (lost, doubled) == (Counter(), Counter()), name
    assert killer.killed.total() == kills
    killed = dict(killer.killed)
    log.info("%d inputs, each with 2 outputs: 0 lost, 0 doubled; killed: %s", len(inputs), killed)
