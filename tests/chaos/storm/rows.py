"""The rows that a storm appends to a collection with a schema."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from broker.client import Message
from broker.model.message import MessageType
from schemas.generated.milvus.proto import messages

NAME = "name"
"""The column that tells rows apart."""


def schema_of_rows() -> Any:
    return pa.schema([pa.field(NAME, pa.string()), pa.field("size", pa.int64())])


def creation_of_rows() -> Message:
    """What Milvus appends to make a vchannel a collection's."""
    header = messages.CreateCollectionMessageHeader(collection_id=7000, partition_ids=[7001])
    return Message(b"", type=MessageType.CREATE_COLLECTION, header=bytes(header))


def rows_of(names: Sequence[str]) -> Any:
    return pa.record_batch([names, [*map(len, names)]], schema=schema_of_rows())
