"""How long a broker takes from its start to its first append, with much log in one pchannel.

Run by `scripts/bench.py --reopen 1GiB`. Each round kills the broker (kill -9) and starts it on the
same folder: as it is, with its snapshot; without any snapshot, so that the whole log is read; and,
for comparison, on an empty folder. The log lies in the page cache, so the disk is not measured.
"""

import argparse
import asyncio
import re
import signal
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from broker.client import ChannelInfo, Message, connect

VCHANNEL = "by-dev-rootcoord-dml_0_1v0"
BODY = bytes(range(256)) * 4
BATCH = 500
TXN_EVERY = 10
FILL_S_MAX = 1200
SETTLE_S_MAX = 60
READY_S_MAX = 600
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
console = Console(width=100)


def main() -> int:
    """Fill, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--reopen", type=size_of, default="1GiB", help="bytes of log: 64MiB, 1GiB")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with TemporaryDirectory(dir=Path.cwd()) as name:
        full, empty = Path(name) / "full", Path(name) / "empty"
        with broker(full) as address:
            asyncio.run(asyncio.wait_for(fill(address, options.reopen), FILL_S_MAX))
            report_log(asyncio.run(asyncio.wait_for(settled(address), SETTLE_S_MAX)))
        figures: dict[str, list[float]] = {"empty log": [], "snapshot": [], "no snapshot": []}
        for _ in range(options.rounds):
            figures["empty log"].append(first_append_s(empty))
            figures["snapshot"].append(first_append_s(full))
            forget(full)
            figures["no snapshot"].append(first_append_s(full))
    report(figures)
    return 0


def size_of(text: str) -> int:
    """`64MiB`, `1GiB`, or a number of bytes."""
    found = re.fullmatch(r"(\d+)\s*([KMG]iB|)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 64MiB or 1GiB")
    return int(found[1]) * UNITS[found[2]]


async def fill(address: str, size_bytes: int) -> None:
    """1 KiB messages, every tenth batch as a transaction."""
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
    """The channel, once a snapshot reaches what was written."""
    async with connect(address) as log:
        while True:
            (channel,) = await log.channels()
            if channel.checkpoint_lag <= BATCH:
                return channel
            await asyncio.sleep(0.2)


def first_append_s(folder: Path) -> float:
    """Seconds from starting the process to the answer to its first append."""
    started = time.perf_counter()
    with broker(folder) as address:
        asyncio.run(asyncio.wait_for(append_once(address), READY_S_MAX))
        return time.perf_counter() - started


async def append_once(address: str) -> None:
    """One durable message."""
    async with connect(address) as log:
        await log.append(VCHANNEL, BODY)


def forget(folder: Path) -> None:
    """Take the snapshots away; what they were made of is still in the log."""
    with sqlite3.connect(folder / "meta.sqlite") as connection:
        connection.execute("DELETE FROM entries WHERE key LIKE 'recovery/%'")
    connection.close()


@contextmanager
def broker(folder: Path) -> Iterator[str]:
    """A broker with one pchannel; killed at the end, as a power cut would."""
    command = ("-m", "broker", "serve", "--data-dir", str(folder), "--listen", "127.0.0.1:0")
    process = subprocess.Popen(
        [sys.executable, *command, "--pchannels", "1"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        if not ready.startswith("tidemark ready"):
            raise SystemExit("The broker did not start; its own message stands above.")
        yield dict(word.split("=", 1) for word in ready.split()[2:])["listen"]
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def report_log(channel: ChannelInfo) -> None:
    """What is to be reopened."""
    console.print(
        f"log: {channel.size_bytes:,} bytes, {channel.next_id - channel.first_id:,} messages;"
        f" the snapshot leaves {channel.checkpoint_lag:,} of them to read"
    )


def report(figures: dict[str, list[float]]) -> None:
    """Medians, and what the log adds to an empty one."""
    table = Table(title="from the start of the process to its first durable append")
    table.add_column("", no_wrap=True)
    for heading in ("median s", "min", "max", "more than empty"):
        table.add_column(heading, justify="right", no_wrap=True)
    nothing = statistics.median(figures["empty log"])
    for name, found in figures.items():
        median = statistics.median(found)
        spread = (f"{median:.2f}", f"{min(found):.2f}", f"{max(found):.2f}")
        table.add_row(name, *spread, f"{median - nothing:+.2f}")
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
