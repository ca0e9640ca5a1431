"""Measures the time from a broker's start to its first append, with a large log in one pchannel.

Run by `scripts/bench.py --reopen 1GiB`. Each round kills the broker (kill -9) and starts it again:
on an empty folder; on the full folder, with its snapshot; and without any snapshot, so that it
reads the whole log. The log is in the page cache, so the disk is not measured.
"""

import asyncio
import sqlite3
import statistics
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table
from served_broker import ServedBroker, killed, served_broker

from benchmark.options import parsed
from broker.client import Message, connect
from broker.client.cluster import ChannelInfo
from broker.client.cluster.targets import NewVChannel

VCHANNEL = NewVChannel("by-dev-rootcoord-dml_0_1v0")
BODY = bytes(range(256)) * 4
BATCH = 500
TXN_EVERY = 10
FILL_S_MAX = 1200
SETTLE_S_MAX = 60
READY_S_MAX = 600
console = Console(width=100)


def main() -> int:
    """Fill, measure, print."""
    options = parsed(sys.argv[1:], "")
    options.out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=options.out) as name:
        full, empty = Path(name) / "full", Path(name) / "empty"
        with one_pchannel(full) as broker:
            asyncio.run(asyncio.wait_for(fill(broker.address, options.reopen), FILL_S_MAX))
            report_log(asyncio.run(asyncio.wait_for(settled(broker.address), SETTLE_S_MAX)))
        figures: dict[str, list[float]] = {"empty log": [], "snapshot": [], "no snapshot": []}
        for _ in range(options.rounds):
            figures["empty log"].append(first_append_s(empty))
            figures["snapshot"].append(first_append_s(full))
            delete_snapshots(full)
            figures["no snapshot"].append(first_append_s(full))
    report(figures)
    return 0


async def fill(address: str, size_bytes: int) -> None:
    """Append 1 KiB messages, every tenth batch as a transaction."""
    batch = [Message(BODY)] * BATCH
    batches = max(1, size_bytes // (BATCH * len(BODY)))
    async with connect(address) as log:
        await log.append(VCHANNEL, BODY)
        started = time.perf_counter()
        for number in range(batches):
            await log.append_messages(VCHANNEL, batch, atomic=number % TXN_EVERY == 0)
    rate = batches * BATCH / (time.perf_counter() - started)
    console.print(f"filled with {batches * BATCH:,} messages at {rate:,.0f} msg/s")


async def settled(address: str) -> ChannelInfo:
    """Wait until a snapshot covers the log; the channel."""
    async with connect(address) as log:
        while True:
            (channel,) = await log.admin.channels()
            if channel.checkpoint_lag <= BATCH:
                return channel
            await asyncio.sleep(0.2)


def first_append_s(folder: Path) -> float:
    """Seconds from starting the process to the answer to its first append."""
    started = time.perf_counter()
    with one_pchannel(folder) as broker:
        asyncio.run(asyncio.wait_for(append_once(broker.address), READY_S_MAX))
        return time.perf_counter() - started


async def append_once(address: str) -> None:
    """Append one durable message."""
    async with connect(address) as log:
        await log.append(VCHANNEL, BODY)


def delete_snapshots(folder: Path) -> None:
    """Delete the snapshots; everything in them is still in the log."""
    with sqlite3.connect(folder / "meta.sqlite") as connection:
        connection.execute("DELETE FROM entries WHERE key LIKE 'recovery/%'")
    connection.close()


def one_pchannel(folder: Path) -> AbstractContextManager[ServedBroker]:
    """A broker with one pchannel, killed at the end as by a power cut."""
    return served_broker(folder, "--pchannels", "1", stop=killed)


def report_log(channel: ChannelInfo) -> None:
    """Print the size of the log that is reopened."""
    console.print(
        f"log: {channel.size_bytes:,} bytes, {channel.next_id - channel.first_id:,} messages;"
        f" {channel.checkpoint_lag:,} of them after the snapshot"
    )


def report(figures: dict[str, list[float]]) -> None:
    """Print medians, and the difference to an empty log."""
    table = Table(title="From the start of the process to its first durable append")
    table.add_column("", no_wrap=True)
    for heading in ("median s", "min", "max", "above empty"):
        table.add_column(heading, justify="right", no_wrap=True)
    nothing = statistics.median(figures["empty log"])
    for name, found in figures.items():
        median = statistics.median(found)
        spread = (f"{median:.2f}", f"{min(found):.2f}", f"{max(found):.2f}")
        table.add_row(name, *spread, f"{median - nothing:+.2f}")
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
