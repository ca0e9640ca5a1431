"""One query in a Spark of its own, as another process: over Connect, or on several executors.

A process has one Spark session of one kind, so tests run this as a script. It prints one JSON line:
the rows read by a batch query, and those of each micro-batch of a streaming query.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def main() -> None:
    """Arguments: connect or cluster, the broker's address, a collection, a folder."""
    kind, address, collection, folder = sys.argv[1:]
    spark = session(kind, Path(folder))
    options = {"server": address, "subscribe": collection, "columns": "n", "minPartitions": "4"}
    frame = spark.read.format("tidemark").options(**options).load()
    batch = [[row["n"], row["_vchannel"]] for row in frame.collect()]
    query = (
        spark.readStream.format("tidemark")
        .options(**options, startingOffsets="earliest", maxRowsPerTrigger="40")
        .load()
        .writeStream.format("parquet")
        .option("path", f"{folder}/out")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120), "the query did not finish"
    streamed = [row["n"] for row in spark.read.parquet(f"{folder}/out").collect()]
    executors = 0
    if kind == "cluster":  # tasks of a barrier run at the same time, so one on each core
        both = spark.sparkContext.range(0, 2, 1, 2).barrier().mapPartitions(pids)
        executors = len(set(both.collect()))
    found = {"batch": batch, "streamed": streamed, "executors": executors}
    sys.stdout.write(json.dumps(found) + "\n")
    spark.stop()


def pids(_: Any) -> list[int]:
    """Of the executor that runs this."""
    return [os.getppid()]


def session(kind: str, folder: Path) -> SparkSession:
    """A quiet one on loopback."""
    builder = SparkSession.builder
    if kind == "connect":
        builder = builder.remote("local[2]")
    else:
        builder = builder.master("local-cluster[2,1,1024]")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


if __name__ == "__main__":
    main()
