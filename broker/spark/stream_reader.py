"""The streaming source: offsets are planned in the source runner, spans are read in the workers.

What is kept on the reader at construction must pickle: options, and a gateway that connects late.
Next: broker/spark/span_reader.py
"""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from broker.spark import offsets
from broker.spark.gateway import Gateway
from broker.spark.offsets import Offset, Subscription
from broker.spark.options import LATEST, Options
from broker.spark.span_reader import SpanPartition, plan, read_span

if TYPE_CHECKING:
    import pyarrow as pa

IDLE_WAIT_S = 0.1
IDLE_STEP_S = 0.02


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches and reads their spans."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._gateway = Gateway(options.server, options.cluster)
        self._names: Subscription | None = None
        self._first: Offset | None = None
        self._pin_start = False
        self._target: Offset | None = None
        self._newest: Offset | None = None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name, as those below
        """Fix where this run ends: at what the broker holds now."""
        self._target = self._latest()

    def initialOffset(self) -> Offset:  # noqa: N802
        """Where a new query starts. Spark asks twice and keeps neither answer, so we keep it."""
        if self._first is None:
            names = self._subscription()
            held = self._gateway.held(_vchannels(names))
            self._first = offsets.resolve("startingOffsets", self._options.starting, names, held)
            self._pin_start = self._starts_at_latest()
        return self._first

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.rows_max is not None:
            return ReadMaxRows(self._options.rows_max)
        if self._options.bytes_max is not None:
            return ReadMaxBytes(self._options.bytes_max)
        return ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Where the next micro-batch ends; `start` itself when there is nothing for it.

        A start at `latest` is only durable once Spark has written an offset, so the first
        micro-batch of such a query is empty and ends where it starts.
        """
        if self._pin_start:
            self._pin_start = False
            return start
        target = self._wait_for_news(start)
        end = self._limited(start, target, limit)
        return start if end == start else end

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """For the progress report: how far the log has come. From memory: Spark asks often."""
        return self._newest

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        return plan(self._gateway, self._options, start, end)

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        assert isinstance(partition, SpanPartition), partition
        return read_span(partition)

    def commit(self, end: Offset) -> None:
        """Nothing to do: the broker keeps no positions for Spark; its checkpoint does."""

    def stop(self) -> None:
        """Spark seldom calls this; the broker notices a vanished reader by its connection."""
        self._gateway.__exit__()

    def _subscription(self) -> Subscription:
        if self._names is None:
            self._names = self._gateway.subscription(self._options.subscribe)
        return self._names

    def _starts_at_latest(self) -> bool:
        bound = self._options.starting
        if isinstance(bound, int):
            return bound == LATEST
        return any(LATEST in shards.values() for shards in bound.values())

    def _latest(self) -> Offset:
        names = self._subscription()
        held = self._gateway.held(_vchannels(names))
        self._newest = offsets.resolve("endingOffsets", LATEST, names, held)
        return self._newest

    def _wait_for_news(self, start: Offset) -> Offset:
        """A short long-poll: an idle query would otherwise ask about a hundred times a second."""
        target = offsets.advance_to(start, self._target or self._latest())
        waited_s = 0.0
        while target == start and self._target is None and waited_s < IDLE_WAIT_S:
            time.sleep(IDLE_STEP_S)  # noqa: TID251 - Spark calls us synchronously
            waited_s += IDLE_STEP_S
            target = offsets.advance_to(start, self._latest())
        return target

    def _limited(self, start: Offset, target: Offset, limit: ReadLimit) -> Offset:
        if isinstance(limit, ReadMinRows) and _rows(start, target) < limit.min_rows:
            return start
        if isinstance(limit, ReadMaxRows):
            return self._within_bytes(start, offsets.share(start, target, limit.max_rows))
        if isinstance(limit, ReadMaxBytes):
            return self._within_bytes(start, target)
        return target

    def _within_bytes(self, start: Offset, target: Offset) -> Offset:
        if self._options.bytes_max is None:
            return target
        ahead = offsets.spans(start, target)
        budget = max(1, self._options.bytes_max // max(1, len(ahead)))
        reached = {
            (it.name, it.vchannel): self._gateway.advance(it.vchannel, it.start, it.end, budget)
            for it in ahead
        }
        return offsets.ordered(
            {
                name: {
                    vchannel: reached.get((name, vchannel), position)
                    for vchannel, position in shards.items()
                }
                for name, shards in start.items()
            }
        )


def _vchannels(names: Subscription) -> list[str]:
    return [vchannel for vchannels in names.values() for vchannel in vchannels]


def _rows(start: Offset, end: Offset) -> int:
    return sum(span.end - span.start for span in offsets.spans(start, end))
