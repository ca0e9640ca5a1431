"""Flights through a cluster while a host dies and a link is cut: what went in is what comes out.

`python -m runs.hosts_demo.demo FOLDER ROWS`, on a host of the cluster. Flights are appended in
batches; a streaming query on Spark's cluster copies them into another collection meanwhile.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pyarrow as pa
from hosts.kept_cluster import NoCluster, running_cluster
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from broker.client import Deadlines, connect
from broker.client.errors import TidemarkError
from runs.hosts_demo.copying import Copying
from runs.hosts_demo.story import Story, has_spark
from runs.quickstart import SCHEMA, flights

FLIGHTS, COPY, SHARDS = "flights", "flights_copy", 4
BATCHES = 100
COPIED = ("carrier", "flight", "arr_delay")
PATIENT = Deadlines(connect_s=180.0, append_s=180.0)
"""A host that dies makes callers wait, and nothing else."""
PACE_S = 0.3
"""Between two batches, so that there is something to do while hosts are away."""

Totals = dict[str, tuple[int, int, int]]
"""By carrier: flights, those that arrived, minutes of delay."""

console = Console(highlight=False, soft_wrap=True)


def main() -> int:
    """0 when all numbers are equal and no query of Spark failed."""
    folder, rows = Path(sys.argv[1]), int(sys.argv[2])
    table = flights()
    table = table.slice(0, rows or len(table))
    try:
        story = Story(folder, running_cluster(folder), console.print)
        with TemporaryDirectory(dir=folder, prefix="demo-") as work:
            return play(story, table, Path(work))
    except (NoCluster, TidemarkError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1


def play(story: Story, table: pa.Table, work: Path, pace_s: float = PACE_S) -> int:
    """Append, copy, count; the exit code. Raises NoCluster, TidemarkError, SystemExit."""
    servers = story.state.servers
    anyio.run(make_collections, servers)
    copying = Copying(story.state, work, COPIED) if has_spark(story.state) else None
    try:
        if copying is not None:
            console.print(f"Spark copies {FLIGHTS} into {COPY}, on {story.state.spark}")
            copying.begin(FLIGHTS, COPY)
        story.began_s = time.monotonic()
        waits = anyio.run(append, servers, table, story, pace_s)
        found = {"read by the client": anyio.run(counted, servers, FLIGHTS)}
        if copying is not None:
            batches = copying.finish(FLIGHTS, COPY)
            console.print(f"Spark: {batches} micro-batches, {copying.retries} tasks tried again, "
                          f"{len(copying.failures)} failed queries")  # fmt: skip
            found["copied by Spark"] = copying.totals(COPY)
    finally:
        if copying is not None:
            copying.end()
    console.print(f"The longest append of a batch took {max(waits):.1f} s, the median "
                  f"{sorted(waits)[len(waits) // 2] * 1000:.0f} ms; no call failed.")  # fmt: skip
    wrong = verdict(totals_of([table]), found)
    return wrong or told(copying.failures if copying is not None else ())


async def make_collections(servers: str) -> None:
    """Both empty: an earlier demo may have been here."""
    copied = pa.schema([SCHEMA.field(it) for it in COPIED])
    async with connect(servers, deadlines=PATIENT) as log:
        there = {it.name for it in await log.collections.list()}
        for name, schema in ((FLIGHTS, SCHEMA), (COPY, copied)):
            if name in there:
                await log.collections.drop(name)
            await log.collections.create(name, shards=SHARDS, schema=schema)


async def append(servers: str, table: pa.Table, story: Story, pace_s: float) -> list[float]:
    """Append all flights while the story goes on; how long each batch took, in seconds."""
    size = max(1, -(-len(table) // BATCHES))
    waits = []
    async with connect(servers, deadlines=PATIENT) as log:
        for at in range(0, len(table), size):
            began_s = time.monotonic()
            await log.append_arrow(FLIGHTS, table.slice(at, size), key="flight")
            waits.append(time.monotonic() - began_s)
            await story.goes_on(log, (at + size) / len(table))
            await anyio.sleep(pace_s)
    console.print(f"{len(table):,} flights are durable")
    return waits


async def counted(servers: str, name: str) -> Totals:
    """The totals of what a reader gets."""
    async with connect(servers, deadlines=PATIENT) as log:
        columns = ("carrier", "arr_delay")
        return totals_of([it async for it in log.read_arrow(name, columns=columns, until="now")])


def totals_of(tables: list[pa.Table | pa.RecordBatch]) -> Totals:
    """Of the columns `carrier` and `arr_delay`."""
    totals: Totals = {}
    for table in tables:
        columns = [table.column(it).to_pylist() for it in ("carrier", "arr_delay")]
        for carrier, delay in zip(*columns, strict=True):
            flights_, arrived, minutes = totals.get(carrier, (0, 0, 0))
            late = (arrived, minutes) if delay is None else (arrived + 1, minutes + delay)
            totals[carrier] = (flights_ + 1, *late)
    return totals


def verdict(sent: Totals, found: Mapping[str, Totals]) -> int:
    """Show each number beside what was sent; 0 when all are equal."""
    table = Table("carrier", "sent", *found, "", title="flights, and minutes of delay, by carrier")
    wrong = 0
    for carrier in sorted({*sent, *[name for each in found.values() for name in each]}):
        wanted = sent.get(carrier)
        others = [each.get(carrier) for each in found.values()]
        equal = all(it == wanted for it in others)
        wrong += not equal
        mark = "[green]equal[/green]" if equal else "[red]differs[/red]"
        table.add_row(carrier, *[_shown(it) for it in (wanted, *others)], mark)
    console.print(table)
    total = sum([count for count, _, _ in sent.values()])
    if wrong:
        console.print(f"[red]{wrong} of {len(sent)} carriers differ.[/red]")
        return 1
    places = " and ".join(found)
    console.print(f"[green]Checked:[/green] {total:,} flights of {len(sent)} carriers, {places}")
    return 0


def told(failures: Sequence[str]) -> int:
    """Say why queries failed; 0 when none did. A host that dies is no reason: tasks are retried."""
    for error in failures:
        console.print(f"[red]A query of Spark failed:[/red] {escape(error)}")
    return int(bool(failures))


def _shown(totals: tuple[int, int, int] | None) -> str:
    return "none" if totals is None else f"{totals[0]:,} / {totals[2]:+,}"


if __name__ == "__main__":
    sys.exit(main())
