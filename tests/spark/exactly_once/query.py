"""A program of Spark that runs until it is killed: numbers in, how many are in each window out.

    python tests/spark/exactly_once/query.py SERVER CHECKPOINT

A window's row comes once the watermark has passed it, so it rests on state over many micro-batches.
"""

import sys
import tempfile
from pathlib import Path

import pyarrow as pa

from tests.spark.driver_session import quick_session

NUMBERS, COUNTS = "once_numbers", "once_counts"
SHARDS = 3
WINDOW = 500
"""So many numbers share a window; each number is the second at which it happened."""
TOLD_S = 1
LATE = 4_000
"""By so many numbers one may come late, because the shards are filled beside each other."""
SCHEMA = pa.schema(
    [("first", pa.int64()), ("key", pa.string()), ("rows", pa.int64()), ("total", pa.int64())]
)


def main(server: str, checkpoint: str) -> None:
    """Never returns, unless the query fails."""
    with tempfile.TemporaryDirectory() as folder:
        spark = quick_session(Path(folder), {"spark.sql.session.timeZone": "UTC"})
        from pyspark.sql.functions import window  # noqa: PLC0415 - after the session is there

        numbers = (
            spark.readStream.format("tidemark")
            .options(server=server, subscribe=NUMBERS, startingOffsets="earliest")
            .load()
            .selectExpr("cast(key as string) key", "cast(cast(value as string) as long) number")
            .selectExpr("key", "number", "timestamp_seconds(number) at")
        )
        counts = (
            numbers.withWatermark("at", f"{LATE} seconds")
            .groupBy("key", window("at", f"{WINDOW} seconds").alias("w"))
            .agg({"*": "count", "number": "sum"})
            .selectExpr(
                "cast(w.start as long) first", "key", "`count(1)` rows", "`sum(number)` total"
            )
        )
        query = (
            counts.writeStream.format("tidemark")
            .options(server=server, topic=COUNTS, key="key", checkpointLocation=checkpoint)
            .outputMode("append")
            .trigger(processingTime="300 milliseconds")
            .start()
        )
        told = None
        while not query.awaitTermination(TOLD_S):
            newest = query.lastProgress
            if newest is not None and newest["batchId"] != told:
                told = newest["batchId"]
                steps = ", ".join(f"{step} {ms}" for step, ms in newest["durationMs"].items())
                rows = newest["numInputRows"]
                sys.stderr.write(f"micro-batch {told}: {rows} numbers; ms: {steps}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
