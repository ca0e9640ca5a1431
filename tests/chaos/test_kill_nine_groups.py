"""Members and nodes are killed amid their work: all comes, nothing acknowledged comes again."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import anyio

from broker.client import Client, TidemarkError, connect
from tests.chaos.group_worker import COLLECTION, GROUP
from tests.roles_processes import RoleProcess, node_pids, until

TEST_S_MAX = 400.0
WORKERS = 3


class Worker:
    """A member process."""

    def __init__(self, server: str, notes: Path) -> None:
        script = Path(__file__).with_name("group_worker.py")
        self._process = subprocess.Popen([sys.executable, str(script), server, str(notes)])

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def history(notes: Path) -> list[tuple[str, str]]:
    lines = notes.read_text().splitlines() if notes.exists() else []
    return [(word, payload) for word, _, payload in (it.partition(" ") for it in lines)]


def came_after_their_acknowledgement(notes: Path) -> list[str]:
    acked: set[str] = set()
    wrong: list[str] = []
    for word, payload in history(notes):
        if word == "acked":
            acked.add(payload)
        elif payload in acked:
            wrong.append(payload)
    return wrong


async def fill(log: Client, appended: set[str], kills_left: list[int]) -> None:
    """Append while there is something to kill, and a little longer."""
    number = 0
    while kills_left:
        payloads = [b"m%d" % (number + it) for it in range(5)]
        number += 5
        try:
            await log.append_batch(COLLECTION, payloads, deadline_s=60)
        except TidemarkError:
            continue  # it may be stored or not; members note it if it is
        appended |= {it.decode() for it in payloads}
        await anyio.sleep(0.02)


async def test_members_and_nodes_are_killed_and_every_message_is_processed(
    tmp_path: Path, rounds: int
) -> None:
    rng = random.Random(7)
    notes = tmp_path / "notes"
    command = ["serve", "--nodes", "2", "--listen", "127.0.0.1:0", "--pchannels", "2"]
    workers: list[Worker] = []
    with RoleProcess(*command, "--data-dir", str(tmp_path / "data")) as broker:
        try:
            with anyio.fail_after(TEST_S_MAX):
                server = await broker.ready()
                async with connect(server) as log:
                    await log.collections.create(COLLECTION, shards=2)
                    workers = [Worker(server, notes) for _ in range(WORKERS)]
                    await until(lambda: joined(log))
                    appended: set[str] = set()
                    kills = [0] * rounds
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(fill, log, appended, kills)
                        while kills:
                            await anyio.sleep(rng.uniform(0.3, 1.5))
                            if rng.random() < 0.6:
                                at = rng.randrange(WORKERS)
                                workers[at].kill()
                                workers[at] = Worker(server, notes)
                            else:
                                await kill_a_node(log, rng)
                            kills.pop()
                    await until(lambda: passed(log))
                done = {payload for word, payload in history(notes) if word == "took"}
                assert appended
                assert appended <= done
                assert came_after_their_acknowledgement(notes) == []
        finally:
            for worker in workers:
                worker.kill()


async def joined(log: Client) -> bool:
    try:
        views = await log.group(GROUP).describe(COLLECTION)
    except TidemarkError:
        return False
    return sum([len(it.members) for it in views]) == 2 * WORKERS


async def kill_a_node(log: Client, rng: random.Random) -> None:
    pids = list((await node_pids(log)).values())
    if pids:
        os.kill(rng.choice(pids), signal.SIGKILL)


async def passed(log: Client) -> bool:
    """Whether the group has nothing left on any vchannel."""
    try:
        lag = await log.group(GROUP).lag(COLLECTION)
    except TidemarkError:
        return False
    return all(it.messages == 0 for it in lag.values())
