"""A streaming query on Spark's standalone cluster that copies one collection into another."""

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from handover import SCRIPTS
from hosts.kept_cluster import ClusterState
from local_spark import LOG_SETTINGS
from pyspark.errors import StreamingQueryException

from runs.hosts_demo.seats import DRIVER

ROOT = SCRIPTS.parent
END_S_MAX = 240.0
BATCH_ROWS_MAX = 40_000
LOG_LEVEL = "fatal"
"""Not errors: executors whose broker dies have some, and try again."""


class Copying:
    """A session on the cluster, and its query. `columns`: of both collections.

    `failures`: the errors of queries that ended by themselves; another query went on in their
    place. `retries`: tasks that failed and were tried again.
    """

    def __init__(self, state: ClusterState, folder: Path, columns: tuple[str, ...]) -> None:
        self._state, self._columns = state, columns
        self._checkpoint = str(folder / "checkpoint")
        self._spark = _session(state, folder)
        self._query: Any = None
        self.failures: list[str] = []
        self.retries = 0

    def begin(self, source: str, sink: str) -> None:
        """Copy whatever comes, in micro-batches."""
        self._query = self._start(source, sink, processingTime="1 second")

    def finish(self, source: str, sink: str) -> int:
        """Copy what is left, and end; the number of micro-batches with rows. SystemExit."""
        batches = self._ended()
        self._query = self._start(source, sink, availableNow=True)
        until_s = time.monotonic() + END_S_MAX
        with suppress(StreamingQueryException):
            while self._query.isActive and time.monotonic() < until_s:
                self._query.awaitTermination(1)
        if self._query.isActive:
            raise SystemExit(f"the query of Spark did not end within {END_S_MAX:g} s")
        return batches + self._ended()

    def totals(self, name: str) -> dict[str, tuple[int, int, int]]:
        """By carrier: flights, those with a delay, and its sum, as Spark counts them."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        rows = self._spark.read.format("tidemark").option("server", self._state.servers).load(name)
        found = rows.groupBy("carrier").agg(
            F.count("*"), F.count("arr_delay"), F.coalesce(F.sum("arr_delay"), F.lit(0))
        )
        return {it[0]: (it[1], it[2], it[3]) for it in found.collect()}

    def end(self) -> None:
        """End the session, also one whose query still runs."""
        self._spark.stop()

    def _start(self, source: str, sink: str, **trigger: Any) -> Any:
        rows = (
            self._spark.readStream.format("tidemark")
            .option("server", self._state.servers)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .option("columns", ",".join(self._columns))
            .option("maxRowsPerTrigger", str(BATCH_ROWS_MAX))
            .load()
        )
        return (
            rows.select(*self._columns)
            .writeStream.format("tidemark")
            .option("server", self._state.servers)
            .option("topic", sink)
            .option("checkpointLocation", self._checkpoint)
            .trigger(**trigger)
            .start()
        )

    def _ended(self) -> int:
        """Stop the query and note what became of it. One after it goes on from its checkpoint."""
        query = self._query
        error = query.exception()
        if error is not None:
            self.failures.append(str(error))
        query.stop()
        self.retries += self._failed_tasks(str(query.runId))
        return sum([1 for it in query.recentProgress if it["numInputRows"]])

    def _failed_tasks(self, run: str) -> int:
        """Of the jobs of a run of a query, as far as Spark remembers them."""
        tracker = self._spark.sparkContext.statusTracker()
        jobs = [tracker.getJobInfo(it) for it in tracker.getJobIdsForGroup(run)]
        stages = {number for it in jobs if it is not None for number in it.stageIds}
        found = [tracker.getStageInfo(it) for it in stages]
        return sum([it.numFailedTasks for it in found if it is not None])


def _session(state: ClusterState, folder: Path) -> Any:
    from pyspark.sql import SparkSession  # noqa: PLC0415

    log_settings = folder / "log4j2.properties"
    log_settings.write_text(LOG_SETTINGS.format(level=LOG_LEVEL))
    own = state.addresses[DRIVER]
    quiet = f"-Dlog4j2.configurationFile=file:{log_settings} -XX:+UseSerialGC"
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP=own, SPARK_SUBMIT_OPTS=quiet)
    paths = os.pathsep.join(map(str, [ROOT, ROOT / "broker" / "spark"]))
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.driver.host": own,
        "spark.driver.bindAddress": own,
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": quiet,
        "spark.executorEnv.PYTHONPATH": paths,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    builder = SparkSession.builder.master(state.spark).appName("flights")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
