"""Lets Spark find `format("tidemark")` without registering: it imports every `pyspark_*` module.

One of these that fails to import breaks the lookup of every Python source, so nothing but pyspark
is imported until a query is made. Next: broker/spark/stream_reader.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """The `tidemark` format: a source and a sink, of batches and of streams."""

    @classmethod
    def name(cls) -> str:
        return "tidemark"

    def schema(self) -> StructType:
        from broker.spark.options import parse_either
        from broker.spark.refusals import told_to_spark
        from broker.spark.subscription import declared

        # Checked here: what `streamReader` raises, Spark replaces by an error of its own.
        with told_to_spark():
            return declared(parse_either(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        from broker.spark.batch_reader import BatchReader
        from broker.spark.options import parse
        from broker.spark.subscription import Subscribed

        return BatchReader(Subscribed(parse(self.options, streaming=False), schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from broker.spark.options import parse
        from broker.spark.stream_reader import StreamReader
        from broker.spark.subscription import Subscribed

        return StreamReader(Subscribed(parse(self.options, streaming=True), schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from broker.spark.sink import BatchWriter
        from broker.spark.sink_options import parse_sink

        return BatchWriter(parse_sink(self.options, streaming=False), overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        from broker.spark.sink import StreamWriter
        from broker.spark.sink_options import parse_sink

        return StreamWriter(parse_sink(self.options, streaming=True), overwrite=overwrite)
