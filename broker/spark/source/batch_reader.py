"""The batch source: everything between two cuts, both fixed when the query is planned."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from broker.spark.refusals import told_to_spark
from broker.spark.source.planning import plan
from broker.spark.source.reading import SpanPartition, read_span
from broker.spark.source.subscribed import Subscribed

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader(DataSourceReader):
    """Reads from the start to the end that the options give."""

    def __init__(self, subscribed: Subscribed) -> None:
        self._subscribed = subscribed

    @told_to_spark()
    def partitions(self) -> Sequence[InputPartition]:
        options = self._subscribed.options
        start = self._subscribed.at(options.starting)
        return plan(self._subscribed, start, self._subscribed.at(options.ending))

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Yield one partition's rows. For a query without rows Spark makes an empty partition."""
        return read_span(partition) if isinstance(partition, SpanPartition) else iter(())
