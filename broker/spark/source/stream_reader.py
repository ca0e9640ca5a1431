"""The streaming source: micro-batches are planned beside the driver and read in workers.

What a reader holds after construction must pickle, so its subscription connects lazily.

Next: broker/spark/source/next_cut.py
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from broker.spark.refusals import BadCheckpoint, told_to_spark
from broker.spark.source.batch_limits import default_limit, limits_of
from broker.spark.source.bounds import AtCursor, AtGroup, Each
from broker.spark.source.cut_offsets import BEHIND, Offset, Position, at_cut, to_offset, to_position
from broker.spark.source.next_cut import NextCut
from broker.spark.source.planning import plan
from broker.spark.source.progress_report import ProgressReporter
from broker.spark.source.reading import SpanPartition, read_span
from broker.spark.source.subscribed import Subscribed

if TYPE_CHECKING:
    import pyarrow as pa


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches, each between two cuts, and reads their partitions."""

    def __init__(self, subscribed: Subscribed) -> None:
        self._subscribed = subscribed
        self._next = NextCut(subscribed)
        self._progress = ProgressReporter(subscribed.options.cursor)
        self._first: Position | None = None
        self._pin_start = False
        self._planned = False

    @told_to_spark()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name, as those below
        """Fix where this run ends: at what the broker holds now."""
        self._next.bound()

    @told_to_spark()
    def initialOffset(self) -> Offset:  # noqa: N802
        """Return where a new query starts. Spark asks twice and keeps neither answer, so we keep
        it.
        """
        if self._first is None:
            bound = self._subscribed.options.starting
            self._first = self._subscribed.start()
            self._pin_start = bound == "latest" or isinstance(bound, Each | AtCursor | AtGroup)
        return to_offset(self._first)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return default_limit(self._subscribed.options)

    @told_to_spark()
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return where the next micro-batch ends; `start` itself when there is nothing to read.

        A start that another moment would change, such as `latest`, is durable only after Spark has
        written an offset. So the first micro-batch of such a query is empty and ends where it
        starts.
        """
        limits = limits_of(limit, self._subscribed.options)
        begin = self._subscribed.position(start)
        # A micro-batch with rows was read before: the addresses are right.
        self._subscribed.proven = self._subscribed.proven or self._planned
        self._tell(begin)  # Spark asks for more when it has done all before
        if self._pin_start:
            self._pin_start = False
            return start
        end = self._next.behind(begin, limits)
        if end is None:
            self._tell(self._next.processed_with(begin))
            # The same object: Spark compares offsets as text, and another text starts another
            # micro-batch.
            return start
        return to_offset(end)

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """Return the newest known cut for the progress report, and what the last micro-batch left
        unread; from memory, because Spark asks often.
        """
        newest, unread = self._next.newest, self._next.unread
        if newest is None:
            return None
        offset = to_offset(at_cut(newest))
        if unread is not None:
            behind = {"ms": unread.milliseconds, "rows": unread.rows, "bytes": unread.size}
            offset = {BEHIND: behind, **offset}
        return offset

    @told_to_spark()
    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        begin, stop = self._subscribed.position(start), self._subscribed.position(end)
        planned = plan(self._subscribed, begin, stop)
        self._planned = self._planned or bool(planned)
        return planned

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        assert isinstance(partition, SpanPartition), partition
        return read_span(partition)

    def commit(self, end: Offset) -> None:
        """Report progress. Spark calls this one batch late; mostly `latestOffset` has reported
        before.
        """
        # An exception would end the query, and a lost report is made up for by the next one.
        with suppress(BadCheckpoint):
            self._tell(to_position(end))

    def stop(self) -> None:
        """End the client. Spark seldom calls this; the broker notices a reader that vanished."""
        self._subscribed.gateway.close()

    def _tell(self, position: Position) -> None:
        self._progress.processed(self._subscribed.gateway, list(position.ends), int(position.tick))
