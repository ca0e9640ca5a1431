"""Spark's writers: each task stages its rows, and one call of the driver commits them all.

A writer holds only its options, because Spark pickles it to every task; everything else travels in
commit messages.

Why each row is written once, whatever dies: nobody reads staged rows. The driver commits one micro-
batch under the id of the query and the number of the batch, which Spark keeps in the checkpoint;
the broker commits each number once, and all of it or nothing. A task or batch that is retried
stages again, and what was staged before is aborted or expires. Rows left by an earlier life of the
driver are aborted when the same batch is staged again, so that they do not fill the limit.
"""

import time
from collections.abc import Callable, Iterator, Sequence
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
"""Local properties that Spark sets for its tasks; internal to Spark, so used only here."""


@dataclass
class StagedTask(WriterCommitMessage):
    """What one task has staged: names, no rows."""

    part: StagedPart


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes one micro-batch; Spark may make a new writer for a retry."""

    def __init__(self, options: SinkOptions, *, overwrite: bool) -> None:
        if overwrite:
            raise NotSupported(
                "outputMode complete would append the whole result again in every micro-batch; use"
                " append, or foreachBatch"
            )
        self._options = options
        self._run = _new_run()

    @told_to_spark()
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """Runs in a task. Raises BadColumns, BadRow, and Failed for what the broker refuses."""
        name = _name(self._options.app, None, self._run)
        return StagedTask(stage(self._options, name, iterator, proven=name.batch > 0))

    @told_to_spark()
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Runs in the driver; may be repeated, by this run of the query or the next one."""
        commit(self._options, _parts(messages), of_stream=True)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Runs in the driver, also after a failed commit, which may still take effect."""
        abort(self._options, _parts(messages))


class BatchWriter(DataSourceArrowWriter):
    """Writes one `df.write`."""

    def __init__(self, options: SinkOptions, *, overwrite: bool) -> None:
        if overwrite:
            raise NotSupported("mode overwrite: a log cannot be overwritten; use append")
        self._options = options
        self._app = options.app or f"{ONE_RUN_PREFIX}spark-batch-{uuid4()}"
        self._run = _new_run()

    @told_to_spark()
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """See StreamWriter."""
        name = _name(self._app, self._options.batch or 0, self._run)
        return StagedTask(stage(self._options, name, iterator))

    @told_to_spark()
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """See StreamWriter."""
        commit(self._options, _parts(messages), of_stream=False)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """See StreamWriter."""
        abort(self._options, _parts(messages))


def _new_run() -> int:
    """Return the number of this run; called in the driver, once for all tasks of a batch.

    If the clock went back, the rows of an earlier run are not aborted but expire; none is lost.
    """
    return time.time_ns() // 1_000_000  # noqa: TID251 - of another life of the driver


def _name(app: str, batch: int | None, run: int) -> StageName:
    """Return the name under which the calling task stages rows; by default the query's id and
    micro-batch.
    """
    context = TaskContext.get()
    assert context is not None, "Spark calls it in tasks"
    if batch is None:
        app, batch = micro_batch(app, context.getLocalProperty)
    return StageName(app, batch, context.partitionId(), context.attemptNumber(), run)


def micro_batch(app: str, property_of: Callable[[str], str | None]) -> tuple[str, int]:
    """Return the name and the number under which the micro-batch of a task is committed.

    `app`: option appId; "" takes the id of the query. Raises NotSupported when Spark has not set
    the task's properties: with a made-up number every micro-batch would be taken for a repeat.
    """
    # Spark gives `write` no number; these properties are the only place where a task finds it.
    number = property_of(BATCH_ID)
    if number is None or not number.isdecimal():
        raise NotSupported(
            f"Spark has not set the task property {BATCH_ID!r} (it is {number!r}), the number of"
            " the micro-batch; nothing was written. Write in foreachBatch, with options appId and"
            " batchId"
        )
    name = app or property_of(QUERY_ID)
    if not name:
        raise NotSupported(
            f"Spark has not set the task property {QUERY_ID!r}, the query's id; nothing was"
            " written. Give option appId"
        )
    return name, int(number)


def _parts(messages: Sequence[WriterCommitMessage | None]) -> list[StagedPart]:
    """Return what the tasks staged; None stands for a task that failed or had not ended."""
    return [each.part for each in messages if isinstance(each, StagedTask)]
