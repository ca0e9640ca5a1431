"""The batch source: one scan from startingOffsets to endingOffsets.

Next: broker/spark/span_reader.py
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from broker.spark import offsets
from broker.spark.gateway import Gateway
from broker.spark.options import Options
from broker.spark.span_reader import SpanPartition, plan, read_span

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader(DataSourceReader):
    """Reads what lies between two offsets, both fixed when the query is planned."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with Gateway(options.server, options.cluster) as gateway:
            names = gateway.subscription(options.subscribe)
            held = gateway.held([one for vchannels in names.values() for one in vchannels])
            start = offsets.resolve("startingOffsets", options.starting, names, held)
            end = offsets.resolve("endingOffsets", options.ending, names, held)
            return plan(gateway, options, start, end)

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        assert isinstance(partition, SpanPartition), partition
        return read_span(partition)
