"""Lets Spark find `format("tidemark")` without registration: Spark imports every `pyspark_*`
module.

If one of them fails to import, Spark finds no Python source at all, so this one imports nothing but
pyspark until a query is made.

What is sent to executors is pickled with the code of this module in it. So it can be unpickled by a
Python that lacks Tidemark, which then says so in one line.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import Filter, WriterCommitMessage
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


class DefaultSource(DataSource):
    """The `tidemark` format: a source and a sink, of batches and of streams."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        _refuse_hidden_packages()

    @classmethod
    def name(cls) -> str:
        return "tidemark"

    def schema(self) -> StructType:
        from broker.spark.refusals import told_to_spark
        from broker.spark.source.source_options import parse_either
        from broker.spark.source.subscribed import declared
        from broker.spark.table_options import of_new_table, with_options

        of_table = of_new_table(self.options)
        # Checked here: what `streamReader` raises, Spark replaces by an error of its own.
        with told_to_spark():
            if of_table is None:
                return declared(parse_either(self.options))
            return with_options(declared(parse_either(of_table, of_table=True)), of_table)

    def reader(self, schema: StructType) -> DataSourceReader:
        from broker.spark.source.batch_reader import BatchReader
        from broker.spark.source.source_options import parse
        from broker.spark.source.subscribed import Subscribed
        from broker.spark.table_options import with_options_of_table

        given, of_table = with_options_of_table(self.options, schema)
        options = parse(given, streaming=False, of_table=of_table)
        reader = BatchReader(Subscribed(options, schema))
        # Spark refuses a reader that takes filters where its setting is off.
        return _FilteringReader(reader) if _takes_filters() else _Reader(reader)

    # Spark passes arguments by keyword here and in `streamWriter`: their names cannot change.
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from broker.spark.source.source_options import parse
        from broker.spark.source.stream_reader import StreamReader
        from broker.spark.source.subscribed import Subscribed
        from broker.spark.table_options import with_options_of_table

        given, of_table = with_options_of_table(self.options, schema)
        options = parse(given, streaming=True, of_table=of_table)
        return _StreamReader(StreamReader(Subscribed(options, schema)))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from broker.spark.sink.sink_options import parse_target
        from broker.spark.sink.writers import BatchWriter

        options = parse_target(self.options, schema, streaming=False)
        return _Writer(BatchWriter(options, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        from broker.spark.sink.sink_options import parse_target
        from broker.spark.sink.writers import StreamWriter

        options = parse_target(self.options, schema, streaming=True)
        return _StreamWriter(StreamWriter(options, overwrite=overwrite))


def _refuse_hidden_packages() -> None:
    """Name the file, if a module of the program hides a package of ours."""
    # A checkout has no `tidemark_command`, which a wheel has beside `broker`.
    for name in ("tidemark_command", "broker.own_packages"):
        try:
            import_module(name).refuse_hidden()
        except ModuleNotFoundError:
            continue
        return


class _Sent:
    """Holds a value of Tidemark's own; pickled so that any Python can unpickle the holder."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self._packed = b""

    def __getstate__(self) -> dict[str, Any]:
        if self._value is not None:
            self._packed = cloudpickle.dumps(self._value)  # type: ignore[no-untyped-call]
        return {"_value": None, "_packed": self._packed}

    @property
    def value(self) -> Any:
        """The value. Raises RuntimeError, in one line, where Tidemark cannot be imported."""
        if self._value is None:
            try:
                self._value = cloudpickle.loads(self._packed)
            except (AttributeError, ImportError, TypeError) as error:
                raise RuntimeError(_misfit(error)) from None
        return self._value


def _misfit(error: Exception) -> str:
    """Return what is wrong with the Tidemark of this executor, in one line."""
    import sys

    python = f"the Python of this executor, {sys.executable}, has"
    name = getattr(error, "name", None) or ""
    # A module inside of ours is missing where another release is installed.
    if isinstance(error, ModuleNotFoundError) and "." not in name:
        what = "tidemark" if name in ("broker", "schemas", "actors") else name
        return (
            f"[TIDEMARK_NOT_INSTALLED] {python} no package {what!r}; install Tidemark there (pip"
            " install '.[spark]' in Tidemark's folder), or send it along with spark.archives"
        )
    if type(error).__name__ == "HiddenPackage":
        return f"[TIDEMARK_NOT_INSTALLED] on this executor, {error}"
    return (
        f"[TIDEMARK_OTHER_RELEASE] {python} another release of tidemark than the driver: {error};"
        " install the same one"
    )


class _Partition(_Sent, InputPartition):
    """One partition."""


class _Reader(_Sent, DataSourceReader):
    """Plans on the driver, and reads in executors."""

    def partitions(self) -> Sequence[InputPartition]:
        return [_Partition(it) for it in self.value.partitions()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # For a query without partitions Spark makes one of its own.
        own = partition.value if isinstance(partition, _Partition) else partition
        return self.value.read(own)  # type: ignore[no-any-return]


class _FilteringReader(_Reader):
    """A reader that takes filters."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 - Spark's name
        return self.value.push(filters)  # type: ignore[no-any-return]


class _StreamReader(_Sent, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans beside the driver, and reads in executors."""

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name, as those below
        self.value.prepareForTriggerAvailableNow()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self.value.initialOffset()  # type: ignore[no-any-return]

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return self.value.getDefaultReadLimit()  # type: ignore[no-any-return]

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        return self.value.latestOffset(start, limit)  # type: ignore[no-any-return]

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return self.value.reportLatestOffset()  # type: ignore[no-any-return]

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [_Partition(it) for it in self.value.partitions(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        own = partition.value if isinstance(partition, _Partition) else partition
        return self.value.read(own)  # type: ignore[no-any-return]

    def commit(self, end: dict[str, Any]) -> None:
        self.value.commit(end)

    def stop(self) -> None:
        self.value.stop()


class _Writer(_Sent, DataSourceArrowWriter):
    """Writes in executors, and commits on the driver."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.value.write(iterator)  # type: ignore[no-any-return]

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.value.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.value.abort(messages)


class _StreamWriter(_Sent, DataSourceStreamArrowWriter):
    """Writes in executors, and commits on the driver."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.value.write(iterator)  # type: ignore[no-any-return]

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        self.value.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        self.value.abort(messages, batchId)


def _takes_filters() -> bool:
    """Return whether Spark is about to push filters: only then it runs the module that does.

    The setting itself, spark.sql.python.filterPushdown.enabled, is not visible here.
    """
    import sys

    pushing = "pyspark.sql.worker.data_source_pushdown_filters"
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return pushing in sys.modules or getattr(main, "name", "") == pushing
