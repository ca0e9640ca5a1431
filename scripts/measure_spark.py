"""The measurement itself, run inside the environment that `scripts/bench_spark.py` made.

A broker is filled once; then each subject reads all of it, round after round, from the broker
through Spark's workers into `noop`, or into another collection: staged, committed and synced. The
time is that of the micro-batches alone (`addBatch`), as Spark tells it: starting a query takes a
second or two whatever it reads. What the broker sends for some columns is counted by its own meter
of bytes that consumers were given.
"""

import argparse
import asyncio
import json
import os
import platform
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from broker.client import connect

SHARDS = 4
BATCH_ROWS = 1_000
MESSAGE_BYTES = 100
SYNCED = "the broker syncs each append (fdatasync) before its answer; reading waits for no sync"
PACKAGES = ("tidemark", "pyspark", "pyarrow", "grpclib", "uvloop")
WAIT_S = 300
console = Console(width=100)


@dataclass(slots=True)
class Subject:
    """One way to read, and what each round of it gave.

    `topic`: the collection that the rows are written to; "" for nowhere.
    """

    name: str
    collection: str
    options: dict[str, str] = field(default_factory=dict)
    topic: str = ""
    rows: int = 0
    seconds: list[float] = field(default_factory=list)
    sent_bytes: list[int] = field(default_factory=list)

    @property
    def rows_per_s(self) -> float:
        return self.rows / median(self.seconds)

    @property
    def bytes_per_row(self) -> float:
        return median(self.sent_bytes) / self.rows


SUBJECTS = (
    Subject("Arrow, 1,000 rows of 100 B a batch", "narrow"),
    Subject("the same, 50,000 rows a micro-batch", "narrow", {"maxRowsPerTrigger": "50000"}),
    Subject("Arrow, all of 10 columns", "wide"),
    Subject("Arrow, 2 of 10 columns", "wide", {"columns": "c0,c1"}),
    Subject("messages of 100 B, all columns", "plain"),
    Subject("messages, `value` alone", "plain", {"columns": "value"}),
    Subject("Arrow, through the sink", "narrow", topic="narrow_out"),
    Subject("messages, through the sink", "plain", {"columns": "value"}, topic="plain_out"),
)


def main() -> int:
    """Fill, measure, print, write a JSON file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, default=Path())
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=options.out) as name, broker(Path(name)) as (address, meters):
        asyncio.run(fill(address, options.rows))
        spark = session(Path(name))
        try:
            for number in range(options.rounds + 1):
                for subject in SUBJECTS:
                    once(spark, address, meters, subject, keep=number > 0)
        finally:
            spark.stop()
    console.print(table(SUBJECTS))
    found = {"about": about(options), "subjects": [summary(it) for it in SUBJECTS]}
    (options.out / "bench_spark.json").write_text(json.dumps(found, indent=1) + "\n")
    return 0


@contextmanager
def broker(folder: Path) -> Iterator[tuple[str, str]]:
    """A broker on free ports: its address, and that of its meters."""
    command = [sys.executable, "-m", "broker", "serve", "--data-dir", str(folder / "data")]
    process = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", "--metrics-port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        words = dict(word.split("=", 1) for word in ready.split()[2:])
        yield words["listen"], words["metrics"]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


async def fill(address: str, rows: int) -> None:
    """The same rows in each collection, synced."""
    narrow = pa.record_batch(
        {
            "number": pa.array(range(BATCH_ROWS)),
            "name": pa.array([f"name-{it:07d}" for it in range(BATCH_ROWS)]),
            "payload": pa.array([os.urandom(80) for _ in range(BATCH_ROWS)]),
        }
    )
    wide = pa.record_batch({f"c{at}": pa.array(range(BATCH_ROWS)) for at in range(10)})
    messages = [os.urandom(MESSAGE_BYTES) for _ in range(BATCH_ROWS)]
    async with connect(address) as log:
        for name, batch in (("narrow", narrow), ("wide", wide)):
            made = await log.collections.create(name, shards=SHARDS, schema=batch.schema)
            for at in range(rows // BATCH_ROWS):
                await log.append_arrow(made.vchannels[at % SHARDS], batch)
        await log.collections.create("narrow_out", shards=SHARDS, schema=narrow.schema)
        await log.collections.create("plain_out", shards=SHARDS)
        made = await log.collections.create("plain", shards=SHARDS)
        for at in range(rows // BATCH_ROWS):
            await log.append_batch(made.vchannels[at % SHARDS], messages)


def once(spark: Any, address: str, meters: str, subject: Subject, *, keep: bool) -> None:
    """Read all of it; the first round warms Spark up and does not count."""
    before = sent_bytes(meters)
    reader = spark.readStream.format("tidemark").options(**subject.options)
    frame = (
        reader.option("server", address)
        .option("subscribe", subject.collection)
        .option("startingOffsets", "earliest")
        .load()
    )
    own = frame.drop(*[name for name in frame.columns if name.startswith("_")])
    with TemporaryDirectory() as checkpoint:
        writer = frame.writeStream.format("noop")
        if subject.topic:
            writer = own.writeStream.format("tidemark")
            writer = writer.option("server", address).option("topic", subject.topic)
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        if not query.awaitTermination(WAIT_S) or query.exception() is not None:
            raise SystemExit(f"{subject.name}: {query.exception() or 'took too long'}")
        batches = [json.loads(it.json) for it in query.recentProgress]
    with_rows = [it for it in batches if it["numInputRows"]]
    subject.rows = sum(it["numInputRows"] for it in with_rows)
    if keep:
        subject.seconds.append(sum(it["durationMs"]["addBatch"] for it in with_rows) / 1000)
        subject.sent_bytes.append(sent_bytes(meters) - before)


def sent_bytes(meters: str) -> int:
    """What consumers were given so far."""
    with urllib.request.urlopen(meters, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return round(sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(CONSUMED)))


CONSUMED = "tidemark_streamingnode_consume_bytes_total{"


def session(folder: Path) -> Any:
    """A quiet local Spark on two cores."""
    quiet = folder / "log4j2.properties"
    quiet.write_text(
        "rootLogger.level = error\nrootLogger.appenderRef.c.ref = c\n"
        "appender.c.type = Console\nappender.c.name = c\nappender.c.target = SYSTEM_ERR\n"
        "appender.c.layout.type = PatternLayout\nappender.c.layout.pattern = %p %m%n\n"
    )
    os.environ.update(
        PYSPARK_PYTHON=sys.executable,
        SPARK_LOCAL_IP="127.0.0.1",
        SPARK_SUBMIT_OPTS=f"-Dlog4j2.configurationFile=file:{quiet}",
    )
    from pyspark.sql import SparkSession  # noqa: PLC0415 - after the variables are set

    return (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )


def table(subjects: Sequence[Subject]) -> Table:
    """Medians, and how far single rounds were from them."""
    made = Table(title=f"Spark reads from Tidemark, local[2]; {SYNCED}")
    for name in ("", "rows/s", "slowest to fastest round", "sent by the broker, B a row"):
        made.add_column(name, justify="left" if not name else "right")
    for it in subjects:
        spread = f"{it.rows / max(it.seconds):,.0f} to {it.rows / min(it.seconds):,.0f}"
        made.add_row(it.name, f"{it.rows_per_s:,.0f}", spread, f"{it.bytes_per_row:,.1f}")
    return made


def summary(subject: Subject) -> dict[str, Any]:
    """For the JSON file."""
    figures = {"rows_per_s": subject.rows_per_s, "bytes_per_row": subject.bytes_per_row}
    return asdict(subject) | figures


def about(options: argparse.Namespace) -> dict[str, Any]:
    """What was measured, where."""
    return {
        "rounds": options.rounds,
        "rows": options.rows,
        "durability": SYNCED,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "packages": {name: release(name) for name in PACKAGES},
    }


def release(package: str) -> str:
    """Of what is installed; of a checkout nobody knows."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


if __name__ == "__main__":
    sys.exit(main())
