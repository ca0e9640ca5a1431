"""Loads the flights of 2013 while definitions change and processes die; checks each of them.

The exit code is 1 when one flight is missing, twice, or in the wrong partition or segment.
"""

import argparse
import asyncio
import logging
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import uvloop
from rich.console import Console

from broker.client import Client, TidemarkError, connect
from broker.client.net.deadlines import Deadlines
from runs.failover import whole
from runs.master_demo import story
from runs.master_demo.cluster import Cluster, running
from runs.master_demo.flights import flights_of_file, works
from runs.master_demo.flow import Flow
from runs.master_demo.proxy import COLLECTION, keep_promising, load
from runs.master_demo.reader import Reader
from runs.master_demo.story import PROXIES, WRITE_NODES, Scene
from runs.master_demo.verdict import Facts, months, problems, table_of
from runs.master_demo.write_node import WriteNode

NODES = 3
BATCH = 500
CALL_S = 60.0
"""Longer than a restart takes: calls wait for it."""
RUN_S_MAX = 600
console = Console(width=100)


def main() -> int:
    """The exit code: 0 when every flight is where it belongs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--flights", type=int, help="about so many flights; default: all")
    parser.add_argument(
        "--rate", type=int, default=12_000, help="flights a second; default: %(default)s"
    )
    options = parser.parse_args()
    for name in ("flights", "rate"):
        value = getattr(options, name)
        if value is not None and value < 1:
            parser.error(f"--{name} must be at least 1, not {value}")
    logging.getLogger("tidemark.client").setLevel(logging.ERROR)  # what it waits for is told here
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        with TemporaryDirectory(prefix="demo-master-") as folder:
            return demonstrate(Path(folder), flights_of_file(options.flights), options.rate)
    except (TidemarkError, TimeoutError, ExceptionGroup) as error:
        console.print(f"[red]The demonstration ended early:[/red] {_told(error)}", soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print("Interrupted; all processes are stopped and their data removed.")
        return 130


def _told(error: Exception) -> str:
    """The first error of a group. Raises what is no error of the broker."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if not isinstance(error, TidemarkError | TimeoutError):
        raise error
    return str(error) or f"it took longer than {RUN_S_MAX} s"


def demonstrate(folder: Path, flights: pa.Table, rate: int) -> int:
    """Run everything in `folder`, print what happens; 0 when every flight is where it belongs."""
    say = partial(_say, time.monotonic())
    with running(folder, NODES) as cluster:
        say(f"a coordinator and {NODES} nodes start, each a process of its own")
        facts = uvloop.run(asyncio.wait_for(_play(cluster, flights, folder, rate, say), RUN_S_MAX))
    lines = list(months(facts))
    console.print(table_of(lines))
    found = list(problems(facts))
    for each in found:
        console.print(f"[red]{each}[/red]")
    if found or not all(it.good for it in lines):
        console.print("[red]The flights are not where they belong.[/red]")
        return 1
    console.print(
        f"[green]Checked:[/green] {flights.num_rows:,} flights, each in the partition of its month"
        f" and in one segment, once; {facts.reader.ticks:,} time ticks kept their promise."
    )
    return 0


async def _play(
    cluster: Cluster, flights: pa.Table, folder: Path, rate: int, say: story.Say
) -> Facts:
    reader, flow = Reader(), Flow(works(flights, BATCH))
    async with AsyncExitStack() as stack:

        async def client() -> Client:
            """One for each program: they share nothing but the cluster."""
            deadlines = Deadlines(connect_s=CALL_S, call_s=CALL_S, append_s=CALL_S)
            return await stack.enter_async_context(connect(cluster.address, deadlines=deadlines))

        log = await client()
        await whole(log, NODES)
        say("every channel is served")
        scene = Scene(log, cluster, flow, say)
        await story.define(scene)
        write_nodes = [
            WriteNode(number, list(scene.channels[at :: len(WRITE_NODES)]), folder / "binlogs")
            for at, number in enumerate(WRITE_NODES)
        ]
        async with asyncio.TaskGroup() as reading:
            reading.create_task(reader.run(await client(), COLLECTION, flow))
            for each in write_nodes:
                reading.create_task(each.run(await client(), flow))
            await story.rehearse(scene, flights)
            await _load(scene, [await client() for _ in PROXIES], rate)
            segments = await story.finish(scene)
        for each in write_nodes:
            await each.acknowledge(log)
        say(f"write nodes acknowledged {sum(it.acknowledged for it in write_nodes)} segments")
    stored = Counter[int]()
    for each in write_nodes:
        stored.update(each.stored)
    return Facts(flights, scene.partitions, segments, reader, stored, scene.rehearsal)


async def _load(scene: Scene, clients: Sequence[Client], rate: int) -> None:
    """Append everything while the story happens; until the time ticks have passed it all."""
    proxies = list(zip(PROXIES, clients, strict=True))
    batches_a_s = rate / BATCH / len(proxies)
    async with asyncio.TaskGroup() as loading:
        loading.create_task(story.open_months(scene))
        loading.create_task(story.happen(scene))
        for number, log in proxies:
            loading.create_task(load(log, number, scene.flow, batches_a_s))
    scene.say(f"{scene.flow.done:,} flights are appended")
    async with asyncio.TaskGroup() as promising:
        idle = [promising.create_task(keep_promising(log, it)) for it, log in proxies]
        await story.promised(scene)
        for task in idle:
            task.cancel()
    scene.say("the time ticks of the proxies have passed them all")


def _say(began_s: float, line: str) -> None:
    told = f"[dim]{time.monotonic() - began_s:5.1f} s[/dim]  {line}"
    console.print(told, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
