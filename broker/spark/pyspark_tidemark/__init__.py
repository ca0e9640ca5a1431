"""Lets Spark find `format("tidemark")` without registration: Spark imports every `pyspark_*`
module.

If one of them fails to import, Spark finds no Python source at all, so this one imports nothing but
pyspark until a query is made.
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
        from broker.spark.refusals import told_to_spark
        from broker.spark.source.source_options import parse_either
        from broker.spark.source.subscribed import declared

        # Checked here: what `streamReader` raises, Spark replaces by an error of its own.
        with told_to_spark():
            return declared(parse_either(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        from broker.spark.source.batch_reader import BatchReader
        from broker.spark.source.source_options import parse
        from broker.spark.source.subscribed import Subscribed

        return BatchReader(Subscribed(parse(self.options, streaming=False), schema))

    # Spark passes arguments by keyword here and in `streamWriter`: their names cannot change.
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from broker.spark.source.source_options import parse
        from broker.spark.source.stream_reader import StreamReader
        from broker.spark.source.subscribed import Subscribed

        return StreamReader(Subscribed(parse(self.options, streaming=True), schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from broker.spark.sink.sink_options import parse_sink
        from broker.spark.sink.writers import BatchWriter

        return BatchWriter(parse_sink(self.options, streaming=False), overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        from broker.spark.sink.sink_options import parse_sink
        from broker.spark.sink.writers import StreamWriter

        return StreamWriter(parse_sink(self.options, streaming=True), overwrite=overwrite)
