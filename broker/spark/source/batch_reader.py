"""The batch source: everything between two cuts, both fixed when the query is planned."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from broker.spark.refusals import told_to_spark
from broker.spark.source.planning import plan
from broker.spark.source.pushed_filters import OF_MESSAGES, OF_ROWS, FilteredRange, pushed
from broker.spark.source.reading import SpanPartition, read_span
from broker.spark.source.subscribed import Subscribed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter


class BatchReader:
    """Reads from the start to the end that the options give, or less where filters allow it."""

    def __init__(self, subscribed: Subscribed) -> None:
        self._subscribed = subscribed
        self._range = FilteredRange()

    def push(self, filters: Sequence["Filter"]) -> list["Filter"]:
        """Take the filters on ticks, times and vchannels; return those that Spark must apply."""
        with told_to_spark():
            has_columns = self._subscribed.with_columns(self._subscribed.vchannels[0])
        self._range, left = pushed(filters, OF_ROWS if has_columns else OF_MESSAGES)
        return left

    @told_to_spark()
    def partitions(self) -> Sequence[InputPartition]:
        subscribed, wanted = self._subscribed, self._range
        start = subscribed.start(wanted.includes, wanted.after)
        end = subscribed.at(subscribed.options.ending)
        names = [name for name in end.ends if wanted.includes(name)]
        if not names:
            return []
        start, end = start.of_some(names), end.of_some(names).not_behind(wanted.until)
        if start.tick < wanted.after < end.tick:
            start = start.reached(subscribed.gateway.cut(names, wanted.after))
        return plan(subscribed, start, end) if wanted.after < end.tick else []

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Yield one partition's rows. For a query without rows Spark makes an empty partition."""
        return read_span(partition) if isinstance(partition, SpanPartition) else iter(())
