"""Members and nodes of ordered groups are killed: all comes, and that of each key in order."""

import random
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from broker.client import Client, Message, TidemarkError, connect
from broker.client.groups.modes import OrderedBy
from tests.chaos.ordered_worker import COLLECTION, GROUP
from tests.chaos.test_kill_nine_groups import (
    came_after_their_acknowledgement,
    history,
    kill_a_node,
)
from tests.roles_processes import RoleProcess, until

TEST_S_MAX = 400.0
WORKERS = 3
SHARDS = 4
KEYS = 8


class OrderedWorker:
    """A member process."""

    def __init__(self, server: str, notes: Path, by: OrderedBy) -> None:
        script = Path(__file__).with_name("ordered_worker.py")
        self._process = subprocess.Popen([sys.executable, str(script), server, str(notes), by])

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def too_early(notes: Path) -> list[str]:
    """Messages that came while a later one of their key was acknowledged already."""
    newest: dict[str, int] = {}
    wrong: list[str] = []
    for word, payload in history(notes):
        key, _, number = payload.partition(":")
        if word == "acked":
            newest[key] = max(newest.get(key, -1), int(number))
        elif int(number) < newest.get(key, -1):
            wrong.append(f"{payload} came behind {key}:{newest[key]}, which is acknowledged")
    return wrong


async def fill(log: Client, appended: set[str], kills_left: list[int]) -> None:
    """Append while there is something to kill: of each key one message after the other."""
    number = 0
    while kills_left:
        payloads = {b"k%d" % key: b"k%d:%d" % (key, number) for key in range(KEYS)}
        number += 1
        messages = [Message(payload, key=key) for key, payload in payloads.items()]
        try:
            await log.append_messages(COLLECTION, messages, atomic=False, deadline_s=60)
        except TidemarkError:
            continue  # some may be stored or not; members note those that are
        appended |= {it.decode() for it in payloads.values()}
        await anyio.sleep(0.02)


@pytest.mark.parametrize("by", ["key", "vchannel"])
async def test_members_and_nodes_are_killed_and_each_key_comes_whole_and_in_order(
    tmp_path: Path, rounds: int, by: OrderedBy
) -> None:
    rng = random.Random(9)
    notes = tmp_path / "notes"
    command = ["serve", "--nodes", "2", "--listen", "127.0.0.1:0", "--pchannels", "2"]
    workers: list[OrderedWorker] = []
    with RoleProcess(*command, "--data-dir", str(tmp_path / "data")) as broker:
        try:
            with anyio.fail_after(TEST_S_MAX):
                server = await broker.ready()
                async with connect(server) as log:
                    await log.collections.create(COLLECTION, shards=SHARDS)
                    workers = [OrderedWorker(server, notes, by) for _ in range(WORKERS)]
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
                                workers[at] = OrderedWorker(server, notes, by)
                            else:
                                await kill_a_node(log, rng)
                            kills.pop()
                    await until(lambda: passed(log))
                done = {payload for word, payload in history(notes) if word == "took"}
                assert appended
                assert appended <= done
                assert came_after_their_acknowledgement(notes) == []
                assert too_early(notes) == []
        finally:
            for worker in workers:
                worker.kill()


async def joined(log: Client) -> bool:
    try:
        views = await log.group(GROUP).describe(COLLECTION)
    except TidemarkError:
        return False
    return sum([len(it.members) for it in views]) == SHARDS * WORKERS


async def passed(log: Client) -> bool:
    """Whether the group has nothing left on any vchannel."""
    try:
        lag = await log.group(GROUP).lag(COLLECTION)
    except TidemarkError:
        return False
    return all(it.messages == 0 for it in lag.values())
