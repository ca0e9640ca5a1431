"""One query in a Spark of its own, as another process: over Connect, or on several executors.

A process has one Spark session of one kind, so tests run this as a script. It prints one JSON line:
what was read by a batch query, and what a streaming query has written.
"""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

QUIET = """rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %m%n
"""


def main() -> None:
    """Arguments: connect, cluster or bare; the broker's address, a collection, a folder."""
    kind, address, collection, folder = sys.argv[1:]
    spark = session(kind, Path(folder))
    options = {"server": address, "subscribe": collection, "columns": "n", "minPartitions": "4"}
    frame = spark.read.format("tidemark").options(**options).load()
    try:
        found: dict[str, Any] = {
            "batch": [[row["n"], row["_vchannel"]] for row in frame.collect()],
            "error": "",
        }
    except PySparkException as error:
        found = {"batch": [], "error": str(error)}
    if kind != "bare":
        rows = (
            spark.readStream.format("tidemark")
            .options(**options, startingOffsets="earliest", maxRowsPerTrigger="100")
            .load()
        )
        found["streamed"] = through_sink(spark, rows.select("n"), kind, address, Path(folder))
    if kind == "cluster":  # tasks of a barrier run at the same time, so one on each core
        both = spark.sparkContext.range(0, 2, 1, 2).barrier().mapPartitions(executor)
        found["executors"] = len(set(both.collect()))
    sys.stdout.write(json.dumps(found) + "\n")
    spark.stop()


def through_sink(
    spark: SparkSession, rows: DataFrame, kind: str, address: str, folder: Path
) -> list[int]:
    """Write the stream into the collection `copied_KIND`; return what that holds afterwards.

    On a cluster the executor of one task is killed when it has passed some rows on.
    """
    flag = str(folder / "killed")

    def passed_on(batches: Iterator[Any]) -> Iterator[Any]:
        for number, batch in enumerate(batches):
            yield batch
            if number == 0 and kind == "cluster" and batch.num_rows:
                try:
                    os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    continue
                os.kill(next(executor(())), signal.SIGKILL)

    topic = f"copied_{kind}"
    query = (
        rows.mapInArrow(passed_on, "n long")
        .writeStream.format("tidemark")
        .option("server", address)
        .option("topic", topic)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(600), "the query did not finish"
    assert kind != "cluster" or Path(flag).exists(), "no executor was killed"
    copy = spark.read.format("tidemark").option("server", address).load(topic)
    return [row["n"] for row in copy.collect()]


def executor(_: Any) -> Iterator[int]:
    """The process that runs this task: the worker's parent forks workers for it."""
    status = Path(f"/proc/{os.getppid()}/stat").read_text(encoding="ascii")
    yield int(status.rpartition(")")[2].split()[1])


def session(kind: str, folder: Path) -> SparkSession:
    """A quiet one on loopback."""
    (folder / "log4j2.properties").write_text(QUIET)
    quiet = f"-Dlog4j2.configurationFile=file:{folder / 'log4j2.properties'}"
    os.environ["SPARK_SUBMIT_OPTS"] = f"{quiet} -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    builder = SparkSession.builder
    if kind == "connect":
        builder = builder.remote("local[2]")
    else:
        builder = builder.master("local-cluster[2,1,1024]")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        # Read by the Python of the test for an executor without Tidemark.
        "spark.executorEnv.ON_DRIVER": "",
    }
    if kind == "connect":
        settings["spark.connect.grpc.binding.port"] = str(own_connect_port())
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def own_connect_port() -> int:
    """The port of CONNECT_PORT, which the client of this process takes, too.

    By itself a local server listens at 15002, and a second one on the machine fails.
    """
    from pyspark.sql.connect.client import DefaultChannelBuilder  # noqa: PLC0415 - needs grpc

    port = int(os.environ["CONNECT_PORT"])
    DefaultChannelBuilder.default_port = staticmethod(lambda: port)  # type: ignore[method-assign]
    return port


if __name__ == "__main__":
    main()
