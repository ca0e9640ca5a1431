"""The columns of a collection as Spark sees them, and its rows as the batches that Spark expects.

Spark compares the Arrow schema of a batch with the declared one field by field, so each batch is
built from the declared schema. Every column is nullable, because rows are older than columns added
later. Values are cast a batch at a time, and only where Spark has another type of the same meaning.
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa
from pyarrow import compute
from pyspark.sql import types as T  # noqa: N812 - its name in every program
from pyspark.sql.pandas.types import to_arrow_schema

from broker.spark.refusals import BadColumns, BadOption

if TYPE_CHECKING:
    from broker.client import Client
    from broker.client.read.row_scanner import RowScanner

TICK_LOGICAL_BITS: Final = 18
_SHIFT: Final = pa.Array.from_buffers(
    pa.int64(), 1, [None, pa.py_buffer(TICK_LOGICAL_BITS.to_bytes(8, sys.byteorder))]
)[0]
"""The same, without `pyarrow.scalar`: that would load pandas in each worker, for a second."""
DECIMAL_DIGITS_MAX: Final = 38
UINT64_DIGITS: Final = 20
ROWS: Final = 8192
SIZE_BYTES: Final = 1024 * 1024
"""Of one batch for Spark; about as many as Spark itself puts into one."""
ADDED: Final = T.StructType(
    [
        T.StructField("_vchannel", T.StringType()),
        T.StructField("_message_id", T.LongType()),
        T.StructField("_time_tick", T.LongType()),
        T.StructField("_timestamp", T.TimestampType()),
    ]
)
"""What every row has beside its own columns."""

_PLAIN: Final = (
    (("is_boolean",), T.BooleanType),
    (("is_int8",), T.ByteType),
    (("is_int16", "is_uint8"), T.ShortType),
    (("is_int32", "is_uint16"), T.IntegerType),
    (("is_int64", "is_uint32"), T.LongType),
    (("is_float32",), T.FloatType),
    (("is_float64",), T.DoubleType),
    (("is_string", "is_large_string"), T.StringType),
    (("is_binary", "is_large_binary", "is_fixed_size_binary"), T.BinaryType),
    (("is_date",), T.DateType),
    (("is_duration",), T.DayTimeIntervalType),
    (("is_null",), T.NullType),
)
"""Arrow's unsigned numbers get the next type that holds them all."""


def declared(columns: pa.Schema, chosen: Sequence[str] | None) -> T.StructType:
    """Return the schema of a query over these columns, or over the chosen ones.

    Raises BadColumns for a column that Spark has no type for, BadOption for an unknown one.
    """
    names = columns.names if chosen is None else list(chosen)
    strange = [name for name in names if name not in columns.names]
    if strange:
        raise BadOption(
            "columns", ",".join(names), f"unknown columns {strange}; use some of {columns.names}"
        )
    fields = [T.StructField(name, spark_type(columns.field(name))) for name in names]
    return T.StructType([*fields, *ADDED.fields])


def spark_type(field: pa.Field) -> T.DataType:
    """Return Spark's type for a column of this Arrow type. Raises BadColumns when there is none."""
    kind = field.type
    for tests, found in _PLAIN:
        if any(getattr(pa.types, test)(kind) for test in tests):
            return found()
    if pa.types.is_uint64(kind):
        return T.DecimalType(UINT64_DIGITS, 0)
    if pa.types.is_decimal(kind) and 0 <= kind.scale <= kind.precision <= DECIMAL_DIGITS_MAX:
        return T.DecimalType(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return T.TimestampNTZType() if kind.tz is None else T.TimestampType()
    if pa.types.is_map(kind):
        return T.MapType(spark_type(kind.key_field), spark_type(kind.item_field))
    if pa.types.is_struct(kind):
        parts = [kind.field(at) for at in range(kind.num_fields)]
        return T.StructType([T.StructField(part.name, spark_type(part)) for part in parts])
    if pa.types.is_nested(kind):  # lists of every kind
        return T.ArrayType(spark_type(kind.value_field))
    raise BadColumns(
        [f"column {field.name!r} is {kind}, for which Spark has no type; omit it: `columns`"]
    )


class RowShape:
    """Rows of a collection as a query declared them. Raises BadColumns when they do not fit."""

    def __init__(self, columns: pa.Schema, declared: T.StructType) -> None:
        self.schema = to_arrow_schema(declared, timezone="UTC")
        self._columns = columns
        self._asked = [field.name for field in declared if field.name not in ADDED.names]
        _refuse_misfits(columns, declared)

    def open(self, client: "Client", vchannels: Sequence[str], **bounds: Any) -> "_Gathering":
        """Return a scanner whose batches go to `shaped`. Call it on the client's loop."""
        return _Gathering(
            client.read_arrow(vchannels, columns=self._asked, schema=self._columns, **bounds)
        )

    def places(self, rows: pa.RecordBatch) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return the ticks and the ids of the rows."""
        return _Numbers(rows.column("_time_tick")), _Numbers(rows.column("_message_id"))

    def shaped(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows as the query declared them."""
        arrays = [self._array(rows, field) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _array(self, rows: pa.RecordBatch, field: pa.Field) -> pa.Array:
        if field.name == "_timestamp":
            return timestamps(rows.column("_time_tick"))
        array = rows.column(field.name)
        return array if array.type.equals(field.type) else cast(array, field)


class _Gathering:
    """Joins small batches of a scanner: every column of every batch has a fixed cost in Spark."""

    def __init__(self, scanner: "RowScanner") -> None:
        self._scanner = scanner

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> pa.RecordBatch:
        return await self._scanner.gathered(ROWS, SIZE_BYTES)

    async def close(self) -> None:
        await self._scanner.close()


class _Numbers(Sequence[int]):
    """An Arrow array as a sequence, to look up a few values."""

    def __init__(self, array: pa.Array) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, at: Any) -> Any:
        return self._array[at].as_py()


def timestamps(ticks: pa.Array) -> pa.Array:
    """Return the wall time of each tick, in milliseconds."""
    # Arrow reads a number in the unit of the target type, so the cast to Spark's unit is a second
    # one.
    milliseconds = compute.shift_right(ticks, _SHIFT)
    return milliseconds.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))


def cast(array: pa.Array, field: pa.Field) -> pa.Array:
    """Cast to Spark's type; nanoseconds become whole microseconds. Raises BadColumns."""
    options = compute.CastOptions(field.type, allow_time_truncate=True)
    try:
        return array.cast(options=options)
    except pa.ArrowException as error:
        raise BadColumns([f"column {field.name!r}: {error}"]) from error


def _refuse_misfits(columns: pa.Schema, declared: T.StructType) -> None:
    known = {field.name: field.dataType for field in ADDED}
    found = []
    for field in declared:
        name = field.name
        if name not in known and name not in columns.names:
            found.append(f"there is no column {name!r}, only {[*columns.names, *known]}")
            continue
        kind = known[name] if name in known else spark_type(columns.field(name))
        if field.dataType != kind or not field.nullable:
            shown = f"{field.dataType.simpleString()}{'' if field.nullable else ' not null'}"
            found.append(f"column {name!r} is {kind.simpleString()}, the query has {shown}")
    if found:
        raise BadColumns(found)
