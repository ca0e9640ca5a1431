"""Sends flights through message streams, both tick barriers and a kill; checks each of them.

The exit code is 1 when a flight is missing, comes twice, or is in no window.
"""

import argparse
import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import uvloop
from local_spark import local_spark
from rich.console import Console
from served_broker import served_broker

from broker.client import Client, TidemarkError, connect
from broker.client.master import TickOrigin
from broker.msgstream import LogPack, TidemarkMsgStreamFactory
from runs.master_demo.flights import flights_of_file
from runs.msgstream_demo.pack_reader import lines_of
from runs.msgstream_demo.proxy import COLLECTION, join, load
from runs.msgstream_demo.verdict import Outcome, problems, table_of
from runs.msgstream_demo.write_node import WriteNode

PROXIES, WRITE_NODES, SHARDS = (1, 2), (1, 2), 2
K2S = "k2s"
BATCH = 250
INTERVAL_MS = 200
LOOK_S = 0.1
K2S_S_MAX = 30.0
RUN_S_MAX = 600
FLIGHTS = 20_000
console = Console(width=100)
Say = Callable[[str], None]


def main() -> int:
    """The exit code: 0 when the reader has read what was sent."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--flights", type=int, default=FLIGHTS, help="about so many flights")
    options = parser.parse_args()
    if options.flights < 100:
        parser.error(f"--flights must be at least 100, not {options.flights}")
    for name in ("tidemark.client", "tidemark.msgstream"):  # they tell of a slow machine
        logging.getLogger(name).setLevel(logging.ERROR)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        with TemporaryDirectory(prefix="demo-msgstream-") as folder:
            return demonstrate(Path(folder), flights_of_file(options.flights))
    except (TidemarkError, TimeoutError, ExceptionGroup) as error:
        console.print(f"[red]The demonstration ended early:[/red] {error}", soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print("Interrupted; all processes are stopped and their data removed.")
        return 130


def demonstrate(folder: Path, flights: pa.Table, *, spark: bool = True) -> int:
    """Run everything in `folder`, print what happens; 0 when all is as it was sent."""
    say = partial(_say, time.monotonic())
    rows = flights.select(["number", "carrier", "flight"]).to_pylist()
    with served_broker(folder / "data", "--pchannels", str(SHARDS + 1)) as broker:
        play = _play(broker.address, rows, folder / "packs.jsonl", say)
        found, offset = uvloop.run(asyncio.wait_for(play, RUN_S_MAX))
        by_spark = _read_by_spark(broker.address, folder, offset) if spark else found.by_spark
        say(f"Spark continues behind the pack, and reads {by_spark:,} messages")
    seen = Outcome(
        found.flights, found.packs, found.lives, found.held, found.late, found.k2s,
        found.before_pack, by_spark, found.in_log,
    )  # fmt: skip
    console.print(table_of(seen))
    broken = list(problems(seen))
    for each in broken:
        console.print(f"[red]{each}[/red]")
    if broken:
        return 1
    console.print(
        f"[green]Checked:[/green] {len(seen.flights):,} flights, each inserted and deleted in the"
        " packs of the reader as it was sent, once."
    )
    return 0


async def _play(
    server: str, rows: Sequence[dict[str, Any]], path: Path, say: Say
) -> tuple[Outcome, dict[str, Any]]:
    async with connect(server) as log:
        await _set_up(log)
        say("both barriers are set: proxies 1 and 2, write nodes 1 and 2")
        batches = iter([rows[at : at + BATCH] for at in range(0, len(rows), BATCH)])
        nodes = [WriteNode(number) for number in WRITE_NODES]
        loaded = asyncio.Event()
        last: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        async with asyncio.TaskGroup() as tasks:
            for proxy in PROXIES:
                tasks.create_task(load(log, proxy, batches, loaded))
            applying = [tasks.create_task(node.run(log, last)) for node in nodes]
            one_pack = tasks.create_task(_one_pack(log, len(rows) // 3))
            lives = await _read(server, path, len(rows), say)
            say("the reader has everything")
            last.set_result(lines_of(path)[-1]["end"])
            # Proxies go on: packs end with ticks of theirs.
            await asyncio.wait(applying)
            loaded.set()
        flights = [row["number"] for row in rows]
        before, offset = one_pack.result()
        in_log = await _count(log, COLLECTION)
        held, late = [it.rows for it in nodes], sum(it.late for it in nodes)
        k2s = await _passed(log)
        found = Outcome(
            flights, lines_of(path), lives, held, late, k2s, before, in_log - before, in_log
        )
        return found, offset


async def _set_up(log: Client) -> None:
    await log.collections.create(COLLECTION, shards=SHARDS)
    await log.collections.create(K2S, shards=1)
    for proxy in PROXIES:
        await join(log, proxy)
    channels = await log.collections.resolve([COLLECTION, K2S])
    set_ticks = log.master.set_time_ticks
    await set_ticks(TickOrigin.PROXIES, PROXIES, channels[COLLECTION], interval_ms=INTERVAL_MS)
    await set_ticks(TickOrigin.WRITE_NODES, WRITE_NODES, channels[K2S])


async def _read(server: str, path: Path, wanted: int, say: Say) -> int:
    """Run the reader, kill it in the middle, and run it again until it has all; its lives."""

    def count() -> int:
        return sum(len(it["inserted"]) for it in lines_of(path))

    with _reader(server, path) as process:
        await _until(lambda: count() >= wanted // 3)
        process.kill()
        process.wait()
    before = count()
    say(f"the reader is killed with kill -9 when it had {before:,} flights")
    with _reader(server, path):
        await _until(lambda: count() >= wanted and _is_behind_all(path))
    return 2


def _is_behind_all(path: Path) -> bool:
    """Whether the tick behind the last deletions has come, too."""
    packs = lines_of(path)
    return not packs[-1]["inserted"] and not packs[-1]["deleted"]


@contextmanager
def _reader(server: str, path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-m", "runs.msgstream_demo.pack_reader", server, str(path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


async def _one_pack(log: Client, wanted: int) -> tuple[int, dict[str, Any]]:
    """The messages up to the end of the pack in which there are so many, and its offset."""
    stream = TidemarkMsgStreamFactory(log).new_tt_msg_stream()
    await stream.as_consumer([COLLECTION], "one-pack")
    await stream.start()
    before, offset = 0, dict[str, Any]()
    while before < wanted:
        pack = await stream.consume()
        assert isinstance(pack, LogPack)
        before, offset = before + len(pack), await stream.spark_offset(pack)
    await stream.close()
    return before, offset


async def _passed(log: Client) -> int:
    """How many ticks the channel behind the hard barrier has; they come behind their reports."""
    end_s = time.monotonic() + K2S_S_MAX
    while not (found := await _count(log, K2S)) and time.monotonic() < end_s:  # noqa: ASYNC110
        await asyncio.sleep(LOOK_S)
    return found


async def _count(log: Client, name: str) -> int:
    return sum([len(it) async for it in log.read_batches(name, until="now")])


def _read_by_spark(server: str, folder: Path, offset: dict[str, Any]) -> int:
    starts = {name: {"tick": offset["tick"] + 1} for name in offset["ends"]}
    session = local_spark(folder, {})
    try:
        rows = session.read.format("tidemark").option("server", server)
        rows = rows.option("subscribe", COLLECTION).option("startingOffsets", json.dumps(starts))
        return int(rows.load().count())
    finally:
        session.stop()


async def _until(reached: Callable[[], bool]) -> None:
    while not reached():  # noqa: ASYNC110 - of other processes
        await asyncio.sleep(LOOK_S)


def _say(began_s: float, line: str) -> None:
    told = f"[dim]{time.monotonic() - began_s:5.1f} s[/dim]  {line}"
    console.print(told, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
