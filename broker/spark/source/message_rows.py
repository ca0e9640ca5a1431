"""Messages without a schema as the record batches of a query.

Arrays are built with explicit types: inferred ones would differ for a column of nulls.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812 - its name in every program
from pyspark.sql.pandas.types import to_arrow_schema

from broker.spark.refusals import BadColumns, BadOption
from broker.spark.source.columns import timestamps

if TYPE_CHECKING:
    from broker.client import BatchScanner, Client, MessageBatch

KEY_PROPERTY: Final = "tidemark.key"
COLUMNS: Final = T.StructType(
    [
        T.StructField("key", T.BinaryType()),
        T.StructField("value", T.BinaryType()),
        T.StructField("collection", T.StringType()),
        T.StructField("vchannel", T.StringType()),
        T.StructField("message_id", T.LongType()),
        T.StructField("time_tick", T.LongType()),
        T.StructField("timestamp", T.TimestampType()),
        T.StructField("properties", T.MapType(T.StringType(), T.StringType())),
    ]
)


def declared(chosen: Sequence[str] | None, *, include_properties: bool) -> T.StructType:
    """Return the schema of a query over messages. Raises BadOption for an unknown column."""
    names = list(COLUMNS.names if chosen is None else chosen)
    strange = [name for name in names if name not in COLUMNS.names]
    if strange:
        raise BadOption(
            "columns", ",".join(names), f"unknown columns {strange}; use some of {COLUMNS.names}"
        )
    if chosen is None and not include_properties:
        names.remove("properties")
    return T.StructType([COLUMNS[name] for name in names])


class MessageShape:
    """Messages as a query declared them. Raises BadColumns when it declared something else.

    `collections`: the subscribed name of each vchannel; null for a vchannel subscribed by its own
    name.
    """

    def __init__(self, collections: Mapping[str, str], declared: T.StructType) -> None:
        # Not whole fields: those of a table carry its options as metadata.
        known = {field.name: (field.dataType, field.nullable) for field in COLUMNS}
        found = [
            f"there is no column {field.simpleString()}, only {COLUMNS.simpleString()}"
            for field in declared
            if known.get(field.name) != (field.dataType, field.nullable)
        ]
        if found:
            raise BadColumns(found)
        self.schema = to_arrow_schema(declared, timezone="UTC")
        self._collections = dict(collections)

    def open(self, client: "Client", vchannels: Sequence[str], **bounds: Any) -> "BatchScanner":
        """Return a scanner whose batches go to `shaped`. Call it on the client's loop."""
        return client.read_batches(vchannels, **bounds)

    def places(self, batch: "MessageBatch") -> tuple[Sequence[int], Sequence[int]]:
        """Return the ticks and the ids of the messages."""
        return batch.ticks, batch.ids

    def shaped(self, batch: "MessageBatch") -> pa.RecordBatch:
        """Return the messages as the query declared them, one row each."""
        arrays = [_array(batch, field, self._collections) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _array(batch: "MessageBatch", field: pa.Field, collections: Mapping[str, str]) -> pa.Array:
    if field.name == "timestamp":
        return timestamps(pa.array(batch.ticks, pa.int64()))
    return pa.array(_values(batch, field.name, collections), field.type)


def _values(batch: "MessageBatch", name: str, collections: Mapping[str, str]) -> Sequence[Any]:
    match name:
        case "key":
            return batch.keys
        case "value":
            return batch.payloads
        case "collection":
            return [collections.get(batch.vchannel)] * len(batch)
        case "vchannel":
            return [batch.vchannel] * len(batch)
        case "message_id":
            return batch.ids
        case "time_tick":
            return batch.ticks
        case _:
            return [_own(tags) for tags in batch.tags]


def _own(tags: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the sender's own properties, without the reserved ones."""
    return [it for it in tags.items() if it[0][:1] != "_" and it[0] != KEY_PROPERTY]
