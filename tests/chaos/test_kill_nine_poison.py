"""Messages that kill whoever processes them become dead letters, and their neighbours do not."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import anyio

from broker.client import Client, TidemarkError, connect
from tests.chaos.poison_worker import COLLECTION, DELIVERIES_MAX, GROUP, NODE_POISON, POISON
from tests.roles_processes import RoleProcess

TEST_S_MAX = 500.0
WORKERS = 2
SENT = [b"m%d" % it for it in range(60)]
KILLERS = [POISON + b" 1", POISON + b" 2", NODE_POISON + b" 3"]
ROOT = Path(__file__).resolve().parents[2]


class Workers:
    """Member processes; one that has died is started again."""

    def __init__(self, server: str, notes: Path) -> None:
        self._command = [sys.executable, str(ROOT / "tests/chaos/poison_worker.py")]
        self._command += [server, str(notes)]
        self._running = [self._start() for _ in range(WORKERS)]
        self.died = 0

    def _start(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(self._command, env=os.environ | {"PYTHONPATH": str(ROOT)})

    def look(self) -> None:
        for at, each in enumerate(self._running):
            if each.poll() is not None:
                self.died += 1
                self._running[at] = self._start()

    def end(self) -> None:
        for each in self._running:
            each.kill()
            each.wait()


async def dead(log: Client) -> list[bytes]:
    try:
        return [it.message.payload for it in await log.group(GROUP).dead()]
    except TidemarkError:
        return []  # nobody has joined yet, or a node is away


async def nothing_left(log: Client) -> bool:
    try:
        views = await log.group(GROUP).describe(COLLECTION)
        lag = await log.group(GROUP).lag(COLLECTION)
    except TidemarkError:
        return False
    return not any(it.group.dying for it in views) and not any(it.messages for it in lag.values())


def noted(notes: Path) -> tuple[Counter[bytes], Counter[bytes]]:
    """How often each message began, and how often it was acknowledged."""
    began, acked = Counter[bytes](), Counter[bytes]()
    for line in notes.read_bytes().splitlines():
        word, _, payload = line.partition(b" ")
        (began if word == b"began" else acked)[payload] += 1
    return began, acked


async def test_poison_that_kills_members_and_nodes_dies_and_its_neighbours_are_processed_once(
    tmp_path: Path,
) -> None:
    notes = tmp_path / "notes"
    command = ["serve", "--nodes", "2", "--listen", "127.0.0.1:0", "--pchannels", "2"]
    workers: Workers | None = None
    with RoleProcess(*command, "--data-dir", str(tmp_path / "data")) as broker:
        try:
            with anyio.fail_after(TEST_S_MAX):
                server = await broker.ready()
                async with connect(server) as log:
                    await log.collections.create(COLLECTION, shards=2)
                    shards = (await log.collections.get(COLLECTION)).vchannels
                    # Each in one batch with its neighbours, which are leased and counted with it.
                    for at, poison in enumerate(KILLERS):
                        some = SENT[at * 20 : (at + 1) * 20]
                        await log.append_batch(shards[at % 2], [*some[:10], poison, *some[10:]])
                    workers = Workers(server, notes)
                    while len(await dead(log)) < len(KILLERS) or not await nothing_left(log):
                        workers.look()
                        await anyio.sleep(0.1)
                    letters = await log.group(GROUP).dead()
        finally:
            if workers is not None:
                workers.end()
    began, acked = noted(notes)
    assert sorted(it.message.payload for it in letters) == sorted(KILLERS), "others, or one twice"
    # Once more for what was in its last delivery when the node died.
    assert {it.deliveries for it in letters} <= {DELIVERIES_MAX, DELIVERIES_MAX + 1}
    # Not each time that it was delivered: another one before it in the batch killed the member. And
    # a first delivery in a life of a Group that left no trace is not counted.
    for poison in KILLERS:
        assert 1 <= began[poison] <= DELIVERIES_MAX + 2
        assert not acked[poison]
    assert sum(began[it] for it in KILLERS) > DELIVERIES_MAX
    # Twice only where the answer of an acknowledgement was lost with its node.
    assert set(SENT) <= set(began)
    assert max(acked[it] for it in SENT) == 1, "acknowledged, and came again"
    assert workers.died > DELIVERIES_MAX
