"""Shares the flights of 2013 among four workers, of which one dies and one is slow; checks each.

The exit code is 1 when one flight was not processed or was twice, or when the poison message is not
in the dead letters.
"""

import argparse
import asyncio
import json
import logging
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import uvloop
from rich.console import Console
from served_broker import served_broker

from broker.client import Client, TidemarkError, connect
from runs.groups_demo.crew import QUICK_S, SLOW_S, Worker, crew_of
from runs.groups_demo.verdict import Outcome, PutAside, Share, problems, table_of
from runs.groups_demo.worker import DONE, FLIGHTS, GROUP, LEASE_S
from runs.groups_demo.worker import WORKER as WORKER_PROPERTY
from runs.master_demo.flights import flights_of_file

WORKERS = (("ann", QUICK_S), ("bob", QUICK_S), ("cid", SLOW_S), ("dan", QUICK_S))
VICTIM, SLOW = "bob", "cid"
SHARDS = 4
BATCH = 1000
DELIVERIES_MAX = 5
"""More often than a batch of flights is lost to a lease that ended."""
POISON = b"This is no flight."
LOOK_S, TELL_S = 0.2, 5.0
RUN_S_MAX = 240
console = Console(width=100)
Say = Callable[[str], None]


def main() -> int:
    """The exit code: 0 when every flight was processed once."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--flights", type=int, help="about so many flights; default: all")
    options = parser.parse_args()
    if options.flights is not None and options.flights < 1:
        parser.error(f"--flights must be at least 1, not {options.flights}")
    logging.getLogger("tidemark.client").setLevel(logging.ERROR)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        with TemporaryDirectory(prefix="demo-groups-") as folder:
            return demonstrate(Path(folder), flights_of_file(options.flights))
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


def demonstrate(folder: Path, flights: pa.Table) -> int:
    """Run everything in `folder`, print what happens; 0 when every flight was processed once."""
    say = partial(_say, time.monotonic())
    with (
        served_broker(folder / "data", "--pchannels", str(SHARDS)) as broker,
        crew_of(folder, WORKERS) as crew,
    ):
        play = _play(broker.address, crew, flights, say)
        found = uvloop.run(asyncio.wait_for(play, RUN_S_MAX))
    console.print(table_of(found))
    broken = list(problems(found))
    for each in broken:
        console.print(f"[red]{each}[/red]")
    if broken:
        return 1
    console.print(
        f"[green]Checked:[/green] {found.flights:,} flights, each processed once;"
        " the poison message is in the dead letters."
    )
    return 0


async def _play(server: str, crew: Sequence[Worker], flights: pa.Table, say: Say) -> Outcome:
    async with connect(server) as log:
        for name in (FLIGHTS, DONE):
            await log.collections.create(name, shards=SHARDS)
        group = log.group(GROUP)
        await group.create(FLIGHTS, lease_s=LEASE_S, deliveries_max=DELIVERIES_MAX)
        for each in crew:
            each.start(server)
        say(f"a broker runs, and {len(crew)} workers join the group {GROUP!r}")
        say(
            f"{SLOW} is slow: {SLOW_S:.0f} s for a batch; a lease ends after {LEASE_S:.0f} s, too"
            " early for a batch that waits behind another"
        )
        started = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_append(log, flights, say))
            await _story(log, crew, flights.num_rows, say)
        took_s = time.monotonic() - started
        say(f"nothing is left: {flights.num_rows / took_s:,.0f} flights a second")
        for each in crew:
            each.end()
        return await _outcome(log, crew, flights.num_rows)


async def _append(log: Client, flights: pa.Table, say: Say) -> None:
    """All flights, and the poison among them."""
    rows = flights.select(["number", "carrier", "flight", "arr_delay", "air_time"])
    numbers = range(flights.num_rows)
    poisoned = flights.num_rows // 3
    for at in range(0, flights.num_rows, BATCH):
        part = rows.slice(at, BATCH).to_pylist()
        payloads = [
            json.dumps(row | {"number": number}).encode()
            for row, number in zip(part, numbers[at : at + BATCH], strict=True)
        ]
        if at <= poisoned < at + BATCH:
            payloads.insert(len(payloads) // 2, POISON)
            say(f"among the flights is a message that is none: {POISON.decode()!r}")
        await log.append_batch(FLIGHTS, payloads)
    say(f"{flights.num_rows:,} flights are appended")


async def _story(log: Client, crew: Sequence[Worker], wanted: int, say: Say) -> None:
    """Watch what is processed; kill a worker when a quarter is; until nothing is left."""
    processed, told_s = 0, time.monotonic()
    victim = next(it for it in crew if it.name == VICTIM)
    reader = log.read_batches(DONE)
    async with reader:
        while processed < wanted:
            processed += len(await anext(reader))
            if victim.fate.startswith("worked") and processed >= wanted // 4:
                victim.kill()
                victim.fate = f"killed with kill -9 when {processed:,} were done"
                say(f"{VICTIM} is killed with kill -9: others get what it had")
            if processed and time.monotonic() - told_s >= TELL_S:
                told_s = time.monotonic()
                say(f"{processed:,} flights are processed so far")
            for each in crew:
                if each.crashed:
                    raise TimeoutError(f"worker {each.name} ended: {each.crashed}")
    say(f"all flights are processed; left are the poison and {SLOW}'s leases, until they end")
    while not await _nothing_left(log):  # noqa: ASYNC110 - of a broker
        await asyncio.sleep(LOOK_S)


async def _nothing_left(log: Client) -> bool:
    """Neither flights, nor what is on its way to the dead letters."""
    lag = await log.group(GROUP).lag(FLIGHTS)
    return not any(it.messages for it in lag.values()) and bool(await log.group(GROUP).dead())


async def _outcome(log: Client, crew: Sequence[Worker], flights: int) -> Outcome:
    """What the log has at the end, read from its first message on."""
    processed, by_worker = Counter[int](), Counter[str]()
    async for batch in log.read_batches(DONE, until="now"):
        processed.update([json.loads(it)["number"] for it in batch.payloads])
        by_worker.update([it[WORKER_PROPERTY] for it in batch.properties])
    dead = [PutAside(it.message.payload, it.cause) for it in await log.group(GROUP).dead()]
    slow = next(it for it in crew if it.name == SLOW)
    slow.fate = "slow: others did what it was late for"
    shares = [Share(it.name, by_worker[it.name], it.lost, it.fate) for it in crew]
    return Outcome(flights, processed, dead, POISON, shares)


def _say(began_s: float, line: str) -> None:
    told = f"[dim]{time.monotonic() - began_s:5.1f} s[/dim]  {line}"
    console.print(told, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
