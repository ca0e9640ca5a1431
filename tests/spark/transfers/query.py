"""A program of Spark that runs until it is killed: it adds up each micro-batch of transfers.

    python tests/spark/transfers/query.py SERVER CHECKPOINT one|each

The vchannels share `one` offset, as they do when one source reads them all. Or `each` has its own:
the query is the same, but it has a source a vchannel, and Spark asks each in turn where it ends.
Each micro-batch is a file in SUMS beside the checkpoint, there before Spark commits it. One that
is made again has another file.
"""

import json
import os
import sys
from functools import reduce
from pathlib import Path

from tests.spark.driver_session import quick_session
from tests.spark.transfers.load import NAMES, delta

ONE, EACH = "one", "each"
SUMS = "sums"
SMALL = {
    "spark.sql.adaptive.enabled": "false",  # nothing to adapt in so few rows,
    "spark.sql.codegen.wholeStage": "false",  # and nothing to compile for them
}
ROWS_MAX = 100
"""More than come between two micro-batches, so this is reached after a kill only."""


def main(server: str, checkpoint: str, offsets: str) -> None:
    """Never returns, unless the query fails."""
    sums = Path(checkpoint).with_name(SUMS)
    sums.mkdir(exist_ok=True)
    spark = quick_session(sums.with_name("warehouse"), SMALL)
    spark.sparkContext.setLogLevel("ERROR")
    from pyspark.sql import DataFrame  # noqa: PLC0415 - after the session is there

    def add_up(rows: DataFrame, number: int) -> None:
        found = rows.collect()
        if not found:
            return  # an idle query makes an empty one now and then
        told = {
            "batch": number,
            "rows": len(found),
            "sum": sum(delta(bytes(it["value"]), it["vchannel"]) for it in found),
            "tick": max(it["time_tick"] for it in found),
        }
        begun = sums / f"{number}-{os.getpid()}.begun"
        begun.write_text(json.dumps(told))
        begun.rename(begun.with_suffix(".json"))

    source = (
        spark.readStream.format("tidemark")
        .options(server=server, columns="value,vchannel,time_tick")
        .option("startingOffsets", "earliest")
    )
    if offsets == ONE:
        rows = source.load(subscribe=",".join(NAMES), maxRowsPerTrigger=ROWS_MAX)
    else:
        rows = reduce(DataFrame.union, [source.load(subscribe=it) for it in NAMES])
    (
        rows.writeStream.foreachBatch(add_up)
        .option("checkpointLocation", checkpoint)
        .start()
        .awaitTermination()
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
