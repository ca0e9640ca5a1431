"""Spark writes to collections and vchannels: each task stages its rows, one call commits them all.

Owns the name under which a micro-batch is written and the order of steps. A writer holds its
options alone, because Spark pickles it to every task; all else travels in commit messages.
Next: broker/spark/sink/staged_rows.py

Why a row is there once, whatever dies: what a task stages nobody reads. What the driver commits is
one micro-batch, named by the query and its number, which Spark keeps in the checkpoint; the broker
commits each of them once, and all of it or nothing. A task that is tried again, or a whole batch
that is, stages anew, and what was staged before is given up or expires: what an earlier life of the
driver left is given up where there must be room for the same batch.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from broker.client import StagedPart
from broker.model.stage import ONE_RUN_PREFIX, StageName
from broker.spark.refusals import NotSupported, told_to_spark
from broker.spark.sink.sink_options import SinkOptions
from broker.spark.sink.staged_rows import abort, commit, stage

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
"""What Spark tells its tasks; these names are its own affair, so they stand here alone."""


@dataclass
class StagedTask(WriterCommitMessage):
    """What one task has staged; small, it has no rows."""

    part: StagedPart


class StreamWriter(DataSourceStreamArrowWriter):
    """For one micro-batch, or a part of its life."""

    def __init__(self, options: SinkOptions, *, overwrite: bool) -> None:
        if overwrite:
            raise NotSupported(
                "outputMode complete: it would append the whole result once more with every"
                " micro-batch; use append, or foreachBatch"
            )
        self._options = options
        self._run = _new_run()

    @told_to_spark()
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """In a task. Raises BadColumns, BadRow, and Failed for what the broker refuses."""
        name = _name(self._options.app, None, self._run)
        return StagedTask(stage(self._options, name, iterator))

    @told_to_spark()
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """In the driver; may be asked for again, by this run of the query or the next one."""
        commit(self._options, _parts(messages), of_stream=True)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """In the driver; also after a commit that failed, which may take effect all the same."""
        abort(self._options, _parts(messages))


class BatchWriter(DataSourceArrowWriter):
    """For one `df.write`."""

    def __init__(self, options: SinkOptions, *, overwrite: bool) -> None:
        if overwrite:
            raise NotSupported("mode overwrite: a log is not overwritten; use append")
        self._options = options
        self._app = options.app or f"{ONE_RUN_PREFIX}spark-batch-{uuid4()}"
        self._run = _new_run()

    @told_to_spark()
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """As of `StreamWriter`."""
        name = _name(self._app, self._options.batch or 0, self._run)
        return StagedTask(stage(self._options, name, iterator))

    @told_to_spark()
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """As of `StreamWriter`."""
        commit(self._options, _parts(messages), of_stream=False)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """As of `StreamWriter`."""
        abort(self._options, _parts(messages))


def _new_run() -> int:
    """Taken in the driver, once for all tasks of a batch, also those that race each other.

    A clock that went back costs no row: what an earlier run has staged then expires by itself.
    """
    return time.time_ns() // 1_000_000  # noqa: TID251 - of another life of the driver


def _name(app: str, batch: int | None, run: int) -> StageName:
    """Of what the task that runs here stages; else the query's id, and its micro-batch."""
    context = TaskContext.get()
    assert context is not None, "Spark calls it in tasks"
    if batch is None:
        batch = int(context.getLocalProperty(BATCH_ID) or "0")
    app = app or context.getLocalProperty(QUERY_ID) or ""
    return StageName(app, batch, context.partitionId(), context.attemptNumber(), run)


def _parts(messages: Sequence[WriterCommitMessage | None]) -> list[StagedPart]:
    """None stands for a task that failed, or had not ended."""
    return [each.part for each in messages if isinstance(each, StagedTask)]
