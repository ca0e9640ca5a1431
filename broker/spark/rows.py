"""Messages as Arrow record batches, with exactly the types Spark expects of the source's schema.

Spark compares the Arrow schema with the declared one field by field, so both are made here, side by
side, and every column is nullable. Arrays are built with explicit types: guessing would differ for
an all-null column.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from broker.client import Received

TICK_LOGICAL_BITS = 18
COLUMNS = (
    "key binary, value binary, collection string, vchannel string, message_id bigint, "
    "time_tick bigint, timestamp timestamp"
)
PROPERTIES = ", properties map<string,string>"


def ddl(*, include_properties: bool) -> str:
    """The schema as Spark SQL text."""
    return COLUMNS + (PROPERTIES if include_properties else "")


def arrow_schema(*, include_properties: bool) -> pa.Schema:
    """The schema as Arrow sees it; time in microseconds, UTC."""
    fields = [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("collection", pa.string()),
        pa.field("vchannel", pa.string()),
        pa.field("message_id", pa.int64()),
        pa.field("time_tick", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    ]
    if include_properties:
        fields.append(pa.field("properties", pa.map_(pa.string(), pa.string())))
    return pa.schema(fields)


def record_batch(
    messages: Sequence["Received"], collection: str | None, *, include_properties: bool
) -> pa.RecordBatch:
    """One row a message, in order. `collection` is null for a vchannel read by its own name."""
    schema = arrow_schema(include_properties=include_properties)
    columns: list[Sequence[object]] = [
        [message.key for message in messages],
        [message.payload for message in messages],
        [collection] * len(messages),
        [message.vchannel for message in messages],
        [message.id for message in messages],
        [message.tick for message in messages],
        [(message.tick >> TICK_LOGICAL_BITS) * 1000 for message in messages],
    ]
    if include_properties:
        columns.append([list(message.properties.items()) for message in messages])
    arrays = [
        pa.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
