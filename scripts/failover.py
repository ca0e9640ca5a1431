"""How long a pchannel takes no appends when the process of its node is killed: kill -9, N times.

Starts `tidemark serve --nodes N` with a fresh data folder, appends to every pchannel one message
after the other, and kills a node that owns some of them, again and again. A gap is the time from
the last acknowledged append on one of its pchannels to the next. Owns the load and the figures.
Next: broker/fleet/node_process.py
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.lowlevel

from broker.client import Client, TidemarkError, connect

COLLECTION = "failover"
APPEND_S = 30.0
PAUSE_S = 0.02
SETTLE_S = 30.0
LAST_ANSWERS_S = 0.01
"""Until what a dead node had written to its sockets is read."""
PAYLOAD = b"." * 1024


@dataclass(slots=True)
class Lane:
    """One vchannel and when its appends were acknowledged: before and after the newest kill."""

    vchannel: str
    acknowledged: int = 0
    errors: int = 0
    last_s: float = 0.0
    killed_s: float | None = None
    before_s: float = 0.0
    gap: float | None = None
    over: anyio.Event = field(default_factory=anyio.Event)

    def mark(self) -> None:
        """Its node is dead, and its last answers are read: the next one is another owner's."""
        self.killed_s, self.before_s, self.gap = time.monotonic(), self.last_s, None
        self.over = anyio.Event()

    def landed(self) -> None:
        """The first one after the kill ends the gap, whether it was sent before or after."""
        now_s = time.monotonic()
        if self.killed_s is not None:
            self.gap, self.killed_s = now_s - self.before_s, None
            self.over.set()
        self.last_s = now_s
        self.acknowledged += 1


async def append_for_ever(log: Client, lane: Lane) -> None:
    """One after the other; what is cut off by a kill is sent again by the client."""
    while True:
        try:
            await log.append(lane.vchannel, PAYLOAD, deadline_s=APPEND_S)
        except TidemarkError as error:
            lane.errors += 1
            print(f"{lane.vchannel}: {error}", file=sys.stderr)
        else:
            lane.landed()
        await anyio.sleep(PAUSE_S)


async def node_pids(log: Client) -> dict[int, int]:
    """Of the nodes that run."""
    return {
        int(actor.path.rpartition("-")[2]): int(actor.extra["pid"])
        for actor in await log.actors()
        if "/fleet/node-" in actor.path and "pid" in actor.extra
    }


async def whole(log: Client, nodes: int) -> dict[str, int]:
    """The owner of each pchannel, once all are served and every node is back."""
    with anyio.fail_after(SETTLE_S):
        while True:
            owners = {it.name: it.node_id for it in await log.channels() if it.state == "assigned"}
            registered = [
                int(actor.extra.get("nodes", 0))
                for actor in await log.actors()
                if actor.path.endswith("/registrar")
            ]
            if len(owners) == len(await log.channels()) and registered == [nodes]:
                return owners
            await anyio.sleep(0.05)


async def measure(address: str, kills: int, nodes: int, seed: int) -> tuple[list[float], int, int]:
    """The longest gap of each kill; how many appends were acknowledged, and how many failed."""
    chosen = random.Random(seed)
    gaps: list[float] = []
    async with connect(address) as log:
        pchannels = len(await log.channels())
        made = await log.collections.create(COLLECTION, shards=pchannels)
        lanes = [Lane(vchannel) for vchannel in made.vchannels]
        async with anyio.create_task_group() as tasks:
            for lane in lanes:
                tasks.start_soon(append_for_ever, log, lane)
            for number in range(kills):
                await anyio.sleep(0.3)
                owners = await whole(log, nodes)
                victim = chosen.choice(sorted(set(owners.values())))
                hit = [it for it in lanes if owners[it.vchannel.rpartition("_")[0]] == victim]
                pids = await node_pids(log)
                os.kill(pids[victim], signal.SIGKILL)
                while alive(pids[victim]):
                    await anyio.lowlevel.checkpoint()
                await anyio.sleep(LAST_ANSWERS_S)
                for lane in hit:
                    lane.mark()
                for lane in hit:
                    await lane.over.wait()
                longest = max(lane.gap or 0.0 for lane in hit)
                gaps.append(longest)
                print(f"kill {number + 1}: node {victim}, {len(hit)} pchannels, {longest:.3f} s")
            tasks.cancel_scope.cancel()
        return gaps, sum(it.acknowledged for it in lanes), sum(it.errors for it in lanes)


def alive(pid: int) -> bool:
    """Whether it can still do anything; one that is only not buried yet cannot."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def quantile(values: list[float], share: float) -> float:
    """The smallest value that so many are not above."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main() -> int:
    """Measure and print; 1 when p99 is above the limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--p99-max", type=float, default=0.0, help="seconds; 0: only measure")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="failover-") as folder:
        server = subprocess.Popen(
            [
                *(sys.executable, "-m", "broker", "serve", "--nodes", str(arguments.nodes)),
                *("--data-dir", str(Path(folder) / "data"), "--listen", "127.0.0.1:0"),
            ],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"TIDEMARK_LOG_LEVEL": "error"},
        )
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            address = dict(word.split("=", 1) for word in line.split()[2:])["listen"]
            gaps, acknowledged, errors = anyio.run(
                measure, address, arguments.kills, arguments.nodes, arguments.seed
            )
        finally:
            server.terminate()
            server.wait(timeout=30)
    figures = {
        "kills": len(gaps),
        "p50_s": round(quantile(gaps, 0.5), 3),
        "p99_s": round(quantile(gaps, 0.99), 3),
        "max_s": round(max(gaps), 3),
        "acknowledged": acknowledged,
        "errors": errors,
    }
    print(json.dumps(figures))
    return int(bool(arguments.p99_max) and figures["p99_s"] > arguments.p99_max)


if __name__ == "__main__":
    sys.exit(main())
