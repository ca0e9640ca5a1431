"""Measures broadcasts, and checks that conflicting ones have one order everywhere.

Runs a broker in this process, with its data below --folder.
"""

import argparse
import asyncio
import random
import statistics
import sys
import time
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop

from broker.app import bind, run_broker
from broker.app.logs import configure_logs
from broker.client import Client, ResourceKey, connect
from broker.client.cluster.targets import NewVChannel
from broker.data_folder import hold
from broker.process_settings import Settings

KEYS = 8
AT_ONCE = 64
WAIT_S = 300.0


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--vchannels", type=int, default=16)
    parser.add_argument("--broadcasts", type=int, default=300)
    parser.add_argument("--conflicting", type=int, default=1000)
    parser.add_argument("--folder", type=Path, default=Path())
    options = parser.parse_args()
    configure_logs("warning", "console")
    uvloop.run(measure(options))
    return 0


async def measure(options: argparse.Namespace) -> None:
    """Measure all three figures on one broker."""
    with TemporaryDirectory(dir=options.folder) as name:
        pchannels = max(16, options.vchannels)
        settings = Settings(data_dir=Path(name), listen="127.0.0.1:0", pchannels=pchannels)
        names = [
            NewVChannel(f"{settings.cluster}-rootcoord-dml_{it}_1v{it}")
            for it in range(options.vchannels)
        ]
        with bind(settings.listen) as bound, hold(settings.data_dir) as folder:
            running = run_broker(settings, folder, bound)
            async with running as broker, connect(broker.address) as log:
                await one_by_one(log, names, options.broadcasts)
                await at_once(log, names, options.broadcasts)
                await conflicting(log, names, options.conflicting)


async def one_by_one(log: Client, vchannels: Sequence[str], count: int) -> None:
    """Measure broadcasts of which each waits for the one before."""
    taken_s = [await timed(log, vchannels, number) for number in range(count)]
    report(f"{count} broadcasts to {len(vchannels)} vchannels, one by one", taken_s)


async def at_once(log: Client, vchannels: Sequence[str], count: int) -> None:
    """Measure sixteen concurrent broadcasts, with keys that do not conflict."""
    numbers = iter(range(count))
    taken_s: list[float] = []

    async def worker() -> None:
        for number in numbers:
            took_s = await timed(log, vchannels, count + number)
            taken_s.append(took_s)

    started = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(16):
            tasks.create_task(worker())
    rate = count / (time.perf_counter() - started)
    report(f"the same, 16 at once ({rate:.0f} a second)", taken_s)


async def timed(log: Client, vchannels: Sequence[str], number: int) -> float:
    """Seconds from the call until the broadcast is on every vchannel."""
    started = time.perf_counter()
    await log.broadcast.append(vchannels, b"ddl", keys=[ResourceKey.collection(f"c{number}")])
    return time.perf_counter() - started


async def conflicting(log: Client, vchannels: Sequence[str], count: int) -> None:
    """Broadcast with random keys out of eight to random vchannels; compare conflicting pairs."""
    chosen = random.Random(count)
    keys = [frozenset(chosen.sample(range(KEYS), chosen.randint(1, 3))) for _ in range(count)]
    targets = [chosen.sample(list(vchannels), chosen.randint(2, 6)) for _ in range(count)]
    ids: dict[int, int] = {}
    waiting = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        named = [ResourceKey.collection(f"k{it}") for it in keys[number]]
        async with waiting:
            done = await log.broadcast.append(
                targets[number], b"order %d" % number, keys=named, deadline_s=WAIT_S
            )
        ids[number] = done.id

    started = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for number in range(count):
            tasks.create_task(one(number))
    took_s = time.perf_counter() - started
    pairs = await compare(log, vchannels, keys, ids)
    print(f"{count} broadcasts with conflicting keys: {took_s:.1f} s; {pairs:,} pairs compared,")
    print("all in the order of their ids on every vchannel they have in common")


async def compare(
    log: Client, vchannels: Sequence[str], keys: Sequence[frozenset[int]], ids: dict[int, int]
) -> int:
    """The number of pairs compared. Raises SystemExit at the first one that is out of order."""
    pairs = 0
    for vchannel in vchannels:
        found = [it.payload async for it in log.read(vchannel, until="now").messages()]
        order = [int(it.split()[1]) for it in found if it.startswith(b"order")]
        for first, second in combinations(order, 2):
            if keys[first] & keys[second]:
                pairs += 1
                if ids[first] >= ids[second]:
                    raise SystemExit(f"{vchannel}: {first} before {second}, against their ids")
    return pairs


def report(what: str, taken_s: list[float]) -> None:
    """Print median and 99th percentile, in milliseconds."""
    cuts = statistics.quantiles(taken_s, n=100)
    print(f"{what}: p50 {cuts[49] * 1000:.1f} ms, p99 {cuts[98] * 1000:.1f} ms")


if __name__ == "__main__":
    sys.exit(main())
