"""Measures Spark's source and sink on one filled broker; prints a table, writes a JSON file.

The broker is filled once. Then each subject reads everything, round after round, through Spark's
workers into `noop`, or into another collection (staged, committed and synced). The time of a
stream is the sum of its micro-batches as Spark reports them (`triggerExecution`, with planning),
because starting a query takes a second or two whatever it reads. The time of a batch query is all
of it; the rate without the start is the difference in rows of a large and a small query, divided
by the difference of their times. Bytes sent are the broker's own metric of bytes consumed.
"""

import argparse
import asyncio
import json
import os
import platform
import time
import urllib.request
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from local_spark import local_spark
from rich.console import Console
from rich.table import Table
from served_broker import served_broker

from broker.client import connect

SHARDS = 4
BATCH_ROWS = 1_000
MESSAGE_BYTES = 100
FEWER = 5
"""The smaller of the two batch queries reads 1/FEWER of the rows."""
KEPT_PROGRESS = "spark.sql.streaming.numRecentProgressUpdates"
SYNCED = "each append was synced (fdatasync) before its answer; reading waits for no sync"
PACKAGES = ("tidemark", "pyspark", "pyarrow", "grpclib", "uvloop")
WAIT_S = 300
console = Console(width=100)


@dataclass(slots=True)
class Subject:
    """One way to read, and the results of its rounds.

    `topic`: the collection that the rows are written to; "" for `noop`. `batch`: a batch query
    instead of a stream, over 1/`share` of the rows.
    """

    name: str
    collection: str
    options: dict[str, str] = field(default_factory=dict)
    topic: str = ""
    batch: bool = False
    share: int = 1
    rows: int = 0
    seconds: list[float] = field(default_factory=list)
    sent_bytes: list[int] = field(default_factory=list)

    @property
    def rows_per_s(self) -> float:
        return self.rows / median(self.seconds)

    @property
    def bytes_per_row(self) -> float:
        return median(self.sent_bytes) / self.rows


FEW = Subject("Arrow, batch query of a fifth", "narrow", batch=True, share=FEWER)
ALL = Subject("Arrow, batch query", "narrow", batch=True)
SUBJECTS = (
    Subject("Arrow, one micro-batch", "narrow"),
    Subject("Arrow, 50,000 rows a micro-batch", "narrow", {"maxRowsPerTrigger": "50000"}),
    FEW,
    ALL,
    Subject("Arrow, 10 columns", "wide"),
    Subject("Arrow, 2 of 10 columns", "wide", {"columns": "c0,c1"}),
    Subject("messages, all columns", "plain"),
    Subject("messages, `value` alone", "plain", {"columns": "value"}),
    Subject("Arrow, into the sink", "narrow", topic="narrow_out"),
    Subject("messages, into the sink", "plain", {"columns": "value"}, topic="plain_out"),
)


@dataclass(frozen=True, slots=True)
class Place:
    """A filled broker: its addresses, its rows, and the tick at the end of the first part."""

    address: str
    meters: str
    rows: int
    part_tick: int = 0


def main() -> int:
    """Fill, measure, print, write a JSON file. Ends with 1 when a subject misses rows."""
    options = parsed()
    words = [word.lower() for word in options.only.split("|") if word]
    subjects = [
        it for it in SUBJECTS if not words or any(word in it.name.lower() for word in words)
    ]
    options.out.mkdir(parents=True, exist_ok=True)
    with (
        TemporaryDirectory(dir=options.out) as name,
        served_broker(Path(name) / "data", "--http-port", "0") as broker,
    ):
        tick = asyncio.run(fill(broker.address, options.rows))
        place = Place(broker.address, f"{broker.http}/metrics", options.rows, tick)
        spark = local_spark(Path(name), {KEPT_PROGRESS: "10000"})
        try:
            for number in range(options.rounds + 1):
                for subject in subjects:
                    once(spark, place, subject, keep=number > 0)
        finally:
            spark.stop()
    console.print(table(subjects, options))
    console.print(settings(), style="dim", highlight=False)
    found: dict[str, Any] = {"about": about(options), "subjects": [summary(it) for it in subjects]}
    if FEW in subjects and ALL in subjects:
        rate = between(FEW, ALL)
        found["batch_query_without_its_start_rows_per_s"] = rate
        told = f"{rate:,.0f} rows/s" if rate else "unknown: the larger query took no longer"
        console.print(f"Batch query without its start: {told}")
    (options.out / "bench_spark.json").write_text(json.dumps(found, indent=1) + "\n")
    console.print(f"bench_spark.json is in {options.out.resolve()}")
    return 0


def parsed() -> argparse.Namespace:
    """The parsed command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows in each collection")
    parser.add_argument(
        "--out", type=Path, default=Path(), help="the folder for the results; made when missing"
    )
    parser.add_argument("--only", default="", help="A|B|…: subjects with one of these in the name")
    options = parser.parse_args()
    least = BATCH_ROWS * SHARDS * FEWER
    if options.rounds < 1 or options.rows % least or options.rows < least:
        parser.error(f"--rounds must be 1 or more, and --rows a multiple of {least:,}")
    return options


async def fill(address: str, rows: int) -> int:
    """Append the same rows to each collection; the tick after 1/`FEWER` of the first one."""
    narrow = pa.record_batch(
        {
            "number": pa.array(range(BATCH_ROWS)),
            "name": pa.array([f"name-{it:07d}" for it in range(BATCH_ROWS)]),
            "payload": pa.array([os.urandom(80) for _ in range(BATCH_ROWS)]),
        }
    )
    wide = pa.record_batch({f"c{at}": pa.array(range(BATCH_ROWS)) for at in range(10)})
    messages = [os.urandom(MESSAGE_BYTES) for _ in range(BATCH_ROWS)]
    each = rows // BATCH_ROWS // SHARDS
    async with connect(address) as log:
        made = await log.collections.create("narrow", shards=SHARDS, schema=narrow.schema)
        part = each // FEWER
        await appended(made.vchannels, part, lambda to: log.append_arrow(to, narrow))
        tick = (await log.cut(made.vchannels)).tick
        await appended(made.vchannels, each - part, lambda to: log.append_arrow(to, narrow))
        made = await log.collections.create("wide", shards=SHARDS, schema=wide.schema)
        await appended(made.vchannels, each, lambda to: log.append_arrow(to, wide))
        made = await log.collections.create("plain", shards=SHARDS)
        await appended(made.vchannels, each, lambda to: log.append_batch(to, messages))
        await log.collections.create("narrow_out", shards=SHARDS, schema=narrow.schema)
        await log.collections.create("plain_out", shards=SHARDS)
    return int(tick)


async def appended(
    vchannels: Sequence[str], times: int, append: Callable[[str], Awaitable[Any]]
) -> None:
    """Append that many batches to each vchannel, one after the other."""

    async def on(vchannel: str) -> None:
        for _ in range(times):
            await append(vchannel)

    async with asyncio.TaskGroup() as group:
        for vchannel in vchannels:
            group.create_task(on(vchannel))


def once(spark: Any, place: Place, subject: Subject, *, keep: bool) -> None:
    """Read everything once; with `keep` False the result does not count (Spark warms up)."""
    before = sent_bytes(place.meters)
    rows, took_s = (queried if subject.batch else streamed)(spark, place, subject, keep)
    wanted = place.rows // subject.share
    if rows != wanted:
        raise SystemExit(f"{subject.name}: {rows:,} rows were read where there are {wanted:,}")
    subject.rows = rows
    if keep:
        subject.seconds.append(took_s)
        subject.sent_bytes.append(sent_bytes(place.meters) - before)
        rate = f"{rows / took_s:,.0f} rows/s in {took_s:.2f} s"
        console.print(f"{subject.name}: {rate}", style="dim", highlight=False)


def streamed(spark: Any, place: Place, subject: Subject, _keep: bool) -> tuple[int, float]:
    """Read everything in micro-batches: the number of rows, and the seconds they took."""
    reader = spark.readStream.format("tidemark").options(**subject.options)
    frame = (
        reader.option("server", place.address)
        .option("subscribe", subject.collection)
        .option("startingOffsets", "earliest")
        .load()
    )
    own = frame.drop(*[name for name in frame.columns if name.startswith("_")])
    with TemporaryDirectory() as checkpoint:
        writer = frame.writeStream.format("noop")
        if subject.topic:
            writer = own.writeStream.format("tidemark")
            writer = writer.option("server", place.address).option("topic", subject.topic)
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        if not query.awaitTermination(WAIT_S) or query.exception() is not None:
            query.stop()
            raise SystemExit(f"{subject.name}: {query.exception() or 'took too long'}")
        batches = [json.loads(it.json) for it in query.recentProgress]
    with_rows = [it for it in batches if it["numInputRows"]]
    took_ms = sum(it["durationMs"]["triggerExecution"] for it in with_rows)
    return sum(it["numInputRows"] for it in with_rows), took_ms / 1000


def queried(spark: Any, place: Place, subject: Subject, keep: bool) -> tuple[int, float]:
    """Run a batch query; only with `keep` False are rows counted, because `noop` counts none."""
    reader = spark.read.format("tidemark").options(**subject.options)
    if subject.share > 1:
        reader = reader.option("endingTick", str(place.part_tick))
    began_s = time.perf_counter()
    frame = reader.option("server", place.address).option("subscribe", subject.collection).load()
    frame.write.format("noop").mode("overwrite").save()
    took_s = time.perf_counter() - began_s
    return place.rows // subject.share if keep else frame.count(), took_s


def between(few: Subject, all: Subject) -> float:
    """The rate of the rows that `all` reads more than `few`; 0 when they took no more time."""
    more_s = median(all.seconds) - median(few.seconds)
    return (all.rows - few.rows) / more_s if more_s > 0 else 0.0


def sent_bytes(meters: str) -> int:
    """Bytes that the broker has sent to consumers so far."""
    with urllib.request.urlopen(meters, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return round(sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(CONSUMED)))


CONSUMED = "tidemark_streamingnode_consume_bytes_total{"


def table(subjects: Sequence[Subject], options: argparse.Namespace) -> Table:
    """A table of medians, with the slowest and the fastest round."""
    rounds = "one round" if options.rounds == 1 else f"the median of {options.rounds} rounds"
    made = Table(title=f"Spark reads {options.rows:,} rows from Tidemark: {rounds}")
    made.add_column("into noop, but for the sink", no_wrap=True)
    for name in ("rows/s", "slowest", "fastest", "s a round", "sent, B a row"):
        made.add_column(name, justify="right", no_wrap=True)
    for it in subjects:
        slowest, fastest = it.rows / max(it.seconds), it.rows / min(it.seconds)
        rates = [f"{rate:,.0f}" for rate in (it.rows_per_s, slowest, fastest)]
        made.add_row(it.name, *rates, f"{median(it.seconds):.2f}", f"{it.bytes_per_row:,.1f}")
    return made


def settings() -> str:
    """The conditions of the measurement in one sentence, below the table."""
    return (
        f"local[2], {os.cpu_count()} CPUs; {SHARDS} shards; appended in batches of {BATCH_ROWS:,}; "
        f"Arrow: 3 columns of 100 B a row, or 10 of 8 B; messages: {MESSAGE_BYTES} B; {SYNCED}; "
        "the first round, which warms up, does not count; streams: availableNow"
    )


def summary(subject: Subject) -> dict[str, Any]:
    """One subject for the JSON file."""
    figures = {"rows_per_s": subject.rows_per_s, "bytes_per_row": subject.bytes_per_row}
    return asdict(subject) | figures


def about(options: argparse.Namespace) -> dict[str, Any]:
    """The conditions of the measurement for the JSON file."""
    return {
        "rounds": options.rounds,
        "rows": options.rows,
        "only": options.only,
        "settings": settings(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "packages": {name: release(name) for name in PACKAGES},
    }


def release(package: str) -> str:
    """The version of an installed package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


if __name__ == "__main__":
    raise SystemExit(main())
