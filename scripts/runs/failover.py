"""Kills or restarts a process of a cluster again and again, and measures the gaps in appends.

Appends one message after the other to every pchannel meanwhile. The gap of a kill is the longest
time between two acknowledged appends on any pchannel of the killed process, from the kill until
every pchannel is served and every node is back. One reader follows all of it: what it has not read
of what was acknowledged, or has read twice, is counted.
"""

import argparse
import itertools
import json
import os
import random
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from broker.client import Client, TidemarkError, connect
from runs.failover_clusters import Cluster, Restarted, served, started_separately
from runs.failover_reader import Follower
from runs.failover_steps import lines_of, steps_between

COLLECTION = "failover"
APPEND_S = 60.0
PAUSE_S = 0.02
SETTLE_S = 300.0
"""Against hanging: a busy machine needs half a minute for each process."""
AFTER_S = 0.3
"""Between the end of a failover and the next kill, so that failovers do not overlap."""
PAYLOAD_BYTES = 1024
SLOWEST = 3
"""Number of kills that are reported step by step."""


@dataclass(slots=True)
class Lane:
    """One vchannel: when its newest append was acknowledged, and its longest gap since a kill."""

    vchannel: str
    acknowledged: set[bytes] = field(default_factory=set)
    errors: int = 0
    last_s: float = 0.0
    longest_s: float = 0.0
    longest_until_s: float = 0.0
    landing: anyio.Event = field(default_factory=anyio.Event)

    @property
    def pchannel(self) -> str:
        return self.vchannel.rpartition("_")[0]

    def mark(self) -> None:
        """Start a new measurement; call right before a kill."""
        self.longest_s = self.longest_until_s = 0.0

    def landed(self, payload: bytes) -> None:
        now_s = time.monotonic()
        if now_s - self.last_s > self.longest_s:
            self.longest_s, self.longest_until_s = now_s - self.last_s, now_s
        self.last_s = now_s
        self.acknowledged.add(payload)
        self.landing.set()
        self.landing = anyio.Event()

    async def until_one_more(self) -> None:
        """Until an append that was sent from now on is acknowledged."""
        for _ in range(2):
            await self.landing.wait()


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill: its victim and time, how many pchannels it hit, and their longest gap."""

    victim: str
    at_s: float
    hit: int
    gap_s: float
    over_s: float

    def __str__(self) -> str:
        return f"{self.victim}, {self.hit} pchannels, {self.gap_s:.3f} s"


async def append_for_ever(log: Client, lane: Lane) -> None:
    """Append one message after the other; the client retries what a kill interrupted."""
    for number in itertools.count():
        payload = f"{lane.vchannel} {number}".encode().ljust(PAYLOAD_BYTES, b".")
        try:
            await log.append(lane.vchannel, payload, deadline_s=APPEND_S)
        except TidemarkError as error:
            lane.errors += 1
            print(f"{lane.vchannel}: {error}", file=sys.stderr)
        else:
            lane.landed(payload)
        await anyio.sleep(PAUSE_S)


async def node_pids(log: Client) -> dict[int, int]:
    """The pid of each running node, by node ID."""
    return {
        int(actor.path.rpartition("-")[2]): int(actor.extra["pid"])
        for actor in await log.admin.actors()
        if "/fleet/node-" in actor.path and "pid" in actor.extra
    }


async def whole(log: Client, nodes: int) -> dict[str, int]:
    """Wait until all pchannels are served and every node is back; the owner of each pchannel."""
    with anyio.fail_after(SETTLE_S):
        while True:
            try:
                known = await log.admin.channels()
                actors = await log.admin.actors()
            except TidemarkError:
                await anyio.sleep(0.1)
                continue
            owners = {it.name: it.node_id for it in known if it.state == "assigned"}
            paths = {it.path: it for it in actors}
            registrar = next((it for it in paths if it.endswith("/registrar")), "")
            registered = int(paths[registrar].extra.get("nodes", 0)) if registrar else 0
            if known and len(owners) == len(known) and registered == nodes:
                return owners
            await anyio.sleep(0.1)


async def leader_with_standbys(cluster: Cluster, log: Client) -> str:
    """The leader's address, when all others stand by: one that was killed before is back."""
    others = max(len(cluster.coordinators) - 1, 0)
    with anyio.fail_after(SETTLE_S):
        while True:
            found = await log.admin.health()
            if len(found.standbys) >= others:
                return found.leader
            await anyio.sleep(0.1)


async def kill(cluster: Cluster, log: Client, lanes: list[Lane], chosen: random.Random) -> Kill:
    """Kill one process, wait for the end of the failover, and return what was measured."""
    owners = await whole(log, cluster.nodes)
    await anyio.sleep(AFTER_S)
    node = chosen.choice(sorted(set(owners.values())))
    pids = await node_pids(log)
    hit = [it for it in lanes if cluster.kills_leaders or owners[it.pchannel] == node]
    leader = await leader_with_standbys(cluster, log)
    for lane in hit:
        lane.mark()
    at_s, began_s = time.time(), time.monotonic()
    killed: Restarted | None = None
    if cluster.kills_leaders:
        killed = cluster.leader_of(leader)
    elif cluster.members:
        killed = cluster.members[node - 1]
    if killed is not None:
        killed.kill()
    else:
        os.kill(pids[node], signal.SIGKILL)
    for lane in hit:
        await lane.until_one_more()
    await whole(log, cluster.nodes)
    for lane in hit:
        await lane.until_one_more()
    if killed is not None and len(cluster.coordinators) > 1:
        # What is announced in etcd may still be the killed process.
        await anyio.to_thread.run_sync(killed.address)
    longest = max(hit, key=lambda lane: lane.longest_s)
    over_s = at_s + longest.longest_until_s - began_s
    victim = "coordinator" if cluster.kills_leaders else f"node {node}"
    return Kill(victim, at_s, len(hit), longest.longest_s, over_s)


async def restarts(cluster: Cluster, log: Client, lanes: list[Lane], rounds: int) -> list[Kill]:
    """Restart every process, one by one, again and again; the leader comes last in each round."""
    done: list[Kill] = []
    for _ in range(rounds):
        leader = cluster.leader_of(await leader_with_standbys(cluster, log))
        others = [it for it in cluster.coordinators if it is not leader]
        for member in (*cluster.members, *others, leader):
            await whole(log, cluster.nodes)
            await leader_with_standbys(cluster, log)
            await anyio.sleep(AFTER_S)
            for lane in lanes:
                lane.mark()
            at_s, began_s = time.time(), time.monotonic()
            await anyio.to_thread.run_sync(member.restart)
            await whole(log, cluster.nodes)
            for lane in lanes:
                await lane.until_one_more()
            longest = max(lanes, key=lambda lane: lane.longest_s)
            over_s = at_s + longest.longest_until_s - began_s
            done.append(Kill(member.shown, at_s, len(lanes), longest.longest_s, over_s))
            print(f"restart {len(done)}: {done[-1]}", flush=True)
    return done


@dataclass(slots=True)
class Measured:
    """The kills or restarts, and what became of appends and of what the reader read meanwhile."""

    done: list[Kill] = field(default_factory=list)
    acknowledged: int = 0
    errors: int = 0
    unread: int = 0
    twice: int = 0
    longest_read_s: float = 0.0


async def measure(cluster: Cluster, kills: int, seed: int, rolling: int = 0) -> Measured:
    """`kills` kills, or restarts of so many `rolling` rounds, under load."""
    chosen, found = random.Random(seed), Measured()
    async with connect(cluster.address) as log, connect(cluster.address) as other:
        await whole(log, cluster.nodes)
        pchannels = len(await log.admin.channels())
        made = await log.collections.create(COLLECTION, shards=pchannels)
        lanes = [Lane(vchannel) for vchannel in made.vchannels]
        follower = Follower(COLLECTION)
        async with anyio.create_task_group() as reading, anyio.create_task_group() as appending:
            reading.start_soon(follower.follow, other)
            for lane in lanes:
                appending.start_soon(append_for_ever, log, lane)
            if rolling:
                found.done += await restarts(cluster, log, lanes, rolling)
            for number in range(0 if rolling else kills):
                found.done.append(await kill(cluster, log, lanes, chosen))
                print(f"kill {number + 1}: {found.done[-1]}", flush=True)
            appending.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                acknowledged = set().union(*(it.acknowledged for it in lanes))
                found.unread, found.twice = await follower.until_read(acknowledged)
            reading.cancel_scope.cancel()
    found.acknowledged = len(acknowledged)
    found.errors = sum(it.errors for it in lanes) + follower.errors
    found.longest_read_s = follower.longest_s
    return found


def quantile(values: list[float], share: float) -> float:
    """The smallest value with at least `share` of all values at or below it."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def options() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--coordinator", action="store_true", help="kill the coordinator instead of nodes"
    )
    parser.add_argument(
        "--coordinators",
        type=int,
        default=0,
        help="start so many, and kill the one that leads instead of nodes",
    )
    parser.add_argument(
        "--rolling",
        type=int,
        default=0,
        help="restart all processes one by one, so many times, instead of killing any; with two"
        " coordinators unless --coordinators says how many",
    )
    parser.add_argument(
        "--hosts",
        action="store_true",
        help="a data folder for each process, as on hosts of their own, with etcd and Kafka beside"
        " them; with two coordinators, and nodes are killed unless --coordinators is given",
    )
    parser.add_argument(
        "--p99-max",
        type=float,
        default=0.0,
        help="exit with 1 when p99 is longer, in seconds; 0: only measure",
    )
    return parser.parse_args()


def main() -> int:
    """Measure and print; 1 when p99 is above the limit, or a client got an error or wrong data."""
    arguments = options()
    coordinators = arguments.coordinators or int(arguments.coordinator)
    kills_leaders = coordinators > 0
    if arguments.rolling or arguments.hosts:
        coordinators = max(coordinators, 2)
    with tempfile.TemporaryDirectory(prefix="failover-") as folder:
        with (
            started_separately(Path(folder), arguments.nodes, coordinators, hosts=arguments.hosts)
            if coordinators
            else served(Path(folder), arguments.nodes)
        ) as cluster:
            cluster.kills_leaders = kills_leaders
            found = anyio.run(measure, cluster, arguments.kills, arguments.seed, arguments.rolling)
        slowest = sorted(enumerate(found.done, 1), key=lambda it: -it[1].gap_s)[:SLOWEST]
        for number, it in slowest:
            print(f"\n{number}: {it}, over {it.over_s - it.at_s:.3f} s after it")
            print(lines_of(steps_between(cluster.log, it.at_s, it.over_s)))
    gaps = [it.gap_s for it in found.done]
    figures = {
        "kills": len(gaps),
        "p50_s": round(quantile(gaps, 0.5), 3),
        "p99_s": round(quantile(gaps, 0.99), 3),
        "max_s": round(max(gaps), 3),
        "longest_read_s": round(found.longest_read_s, 3),
        "acknowledged": found.acknowledged,
        "errors": found.errors,
        "unread": found.unread,
        "twice": found.twice,
    }
    print(json.dumps(figures))
    slow = bool(arguments.p99_max) and figures["p99_s"] > arguments.p99_max
    return int(slow or found.errors + found.unread + found.twice > 0)


if __name__ == "__main__":
    sys.exit(main())
