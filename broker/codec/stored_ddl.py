"""Changes of the master's table as Milvus's messages, encoded for broadcasts.

What Milvus's messages have no room for, such as an Arrow schema, lies in a property of ours beside
them, so that Milvus's readers understand the message and ours understand all of it.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, assert_never

from betterproto2 import Message

from broker.codec.announced import ARROW, COMPACTION, OF_ROWS, RETENTION
from broker.codec.milvus_schemas import key_values
from broker.codec.read_ddl import read_change
from broker.model.collection import RowSchema
from broker.model.master.table_change import (
    DEFAULT_DATABASE,
    AddCollection,
    AddDatabase,
    AddPartition,
    AlterCompaction,
    AlterRetention,
    AlterSchema,
    Index,
    PointAlias,
    PutIndex,
    RemoveAlias,
    RemoveCollection,
    RemoveDatabase,
    RemoveIndexes,
    RemovePartition,
    TableChange,
)
from broker.model.message import ANNOUNCED, MessageType
from broker.model.retention.compaction import Compaction
from broker.model.retention.policy import Retention
from broker.ports.master.ddl_messages import EncodedChange
from schemas.encoding.base64_text import base64_text
from schemas.encoding.entries import write_entry
from schemas.encoding.fields import field
from schemas.encoding.varint import varint
from schemas.generated.google import protobuf
from schemas.generated.milvus.proto import common, index, messages, msg, schema
from schemas.message_bytes import encoded, parsed

# Milvus writes these four in version 1 of its message format, the others in version 2.
_FIRST_FORM: Final = frozenset(
    {
        MessageType.CREATE_COLLECTION,
        MessageType.DROP_COLLECTION,
        MessageType.CREATE_PARTITION,
        MessageType.DROP_PARTITION,
    }
)
_PROPERTY: Final = b"\x1a"
_PAYLOAD: Final = b"\x12"
RETENTION_PROPERTIES: Final = ("tidemark.retention.ms", "tidemark.retention.bytes")
CLEANUP_PROPERTY: Final = "tidemark.cleanup"
_COLLECTION_SCHEMA: Final = 0x6A
"""The field of a CreateCollectionRequest: a CollectionSchema."""


class StoredDdl:
    """See `broker.ports.master.ddl_messages.DdlMessages`."""

    def encode(self, change: TableChange) -> EncodedChange:
        """See DdlMessages."""
        match change:
            case AddCollection() | RemoveCollection() | AlterSchema():
                return _of_collection(change)
            case AlterRetention():
                return _of_retention(change)
            case AlterCompaction():
                return _of_compaction(change)
            case AddPartition() | RemovePartition():
                return _of_partition(change)
            case PointAlias() | RemoveAlias():
                return _of_alias(change)
            case PutIndex() | RemoveIndexes():
                return _of_index(change)
            case AddDatabase() | RemoveDatabase():
                return _of_database(change)
            case _:
                assert_never(change)

    decode = staticmethod(read_change)


def _of_collection(change: AddCollection | RemoveCollection | AlterSchema) -> EncodedChange:
    match change:
        case AddCollection():
            return _added(change)
        case RemoveCollection(id, name, database):
            return _encoded(
                MessageType.DROP_COLLECTION,
                messages.DropCollectionMessageHeader(collection_id=id),
                msg.DropCollectionRequest(
                    base=_base(101),
                    db_name=_shown(database),
                    collection_name=name,
                    collection_id=id,
                ),
            )
        case AlterSchema(id, name, database, rows, table):
            updates = messages.AlterCollectionMessageUpdates(
                db_name=_shown(database),
                collection_name=name,
                schema=parsed(schema.CollectionSchema, table.milvus),
            )
            mask = protobuf.FieldMask(paths=["schema"])
            return _encoded(
                MessageType.ALTER_COLLECTION,
                messages.AlterCollectionMessageHeader(collection_id=id, update_mask=mask),
                messages.AlterCollectionMessageBody(updates=updates),
                _rows(rows),
            )
        case _:
            assert_never(change)


def _added(change: AddCollection) -> EncodedChange:
    names, ids = [name for name, _ in change.partitions], [id for _, id in change.partitions]
    request = msg.CreateCollectionRequest(
        base=_base(100),
        db_name=_shown(change.database),
        collection_name=change.name,
        collection_id=change.id,
        virtual_channel_names=list(change.vchannels),
        physical_channel_names=[name.rpartition("_")[0] for name in change.vchannels],
        partition_names=names,
        partition_i_ds=list(ids),
    )
    payload = encoded(request)
    if change.table is not None:
        # As it is: to decode and encode it takes longer than all else.
        payload += field(_COLLECTION_SCHEMA, change.table.milvus)
    header = messages.CreateCollectionMessageHeader(
        collection_id=change.id, partition_ids=list(ids)
    )
    more = _rows(change.schema)
    if not change.retention.keeps_all:
        more[RETENTION] = _limits(change.retention)
    if change.compaction is not None:
        more[COMPACTION] = _times(change.compaction)
    return _encoded(MessageType.CREATE_COLLECTION, header, payload, more)


def _of_compaction(change: AlterCompaction) -> EncodedChange:
    cleanup = "delete" if change.compaction is None else "compact"
    updates = messages.AlterCollectionMessageUpdates(
        db_name=_shown(change.database),
        collection_name=change.name,
        properties=key_values({CLEANUP_PROPERTY: cleanup}),
    )
    mask = protobuf.FieldMask(paths=["properties"])
    return _encoded(
        MessageType.ALTER_COLLECTION,
        messages.AlterCollectionMessageHeader(collection_id=change.id, update_mask=mask),
        messages.AlterCollectionMessageBody(updates=updates),
        {COMPACTION: _times(change.compaction)},
    )


def _of_retention(change: AlterRetention) -> EncodedChange:
    limits = _limits(change.retention)
    updates = messages.AlterCollectionMessageUpdates(
        db_name=_shown(change.database),
        collection_name=change.name,
        properties=key_values(dict(zip(RETENTION_PROPERTIES, map(str, limits), strict=True))),
    )
    mask = protobuf.FieldMask(paths=["properties"])
    return _encoded(
        MessageType.ALTER_COLLECTION,
        messages.AlterCollectionMessageHeader(collection_id=change.id, update_mask=mask),
        messages.AlterCollectionMessageBody(updates=updates),
        {RETENTION: limits},
    )


def _of_partition(change: AddPartition | RemovePartition) -> EncodedChange:
    names: dict[str, Any] = {
        "db_name": _shown(change.database),
        "collection_name": change.collection_name,
        "partition_name": change.name,
    }
    ids: dict[str, Any] = {"collection_id": change.collection, "partition_id": change.id}
    more = {OF_ROWS: True} if change.of_rows else {}
    if isinstance(change, AddPartition):
        return _encoded(
            MessageType.CREATE_PARTITION,
            messages.CreatePartitionMessageHeader(**ids),
            msg.CreatePartitionRequest(base=_base(200), **names, **ids),
            more,
        )
    return _encoded(
        MessageType.DROP_PARTITION,
        messages.DropPartitionMessageHeader(**ids),
        msg.DropPartitionRequest(base=_base(201), **names, **ids),
        more,
    )


def _of_alias(change: PointAlias | RemoveAlias) -> EncodedChange:
    database = _shown(change.database)
    if isinstance(change, PointAlias):
        header = messages.AlterAliasMessageHeader(
            db_name=database,
            collection_id=change.collection,
            collection_name=change.collection_name,
            alias=change.alias,
        )
        return _encoded(MessageType.ALTER_ALIAS, header)
    return _encoded(
        MessageType.DROP_ALIAS,
        messages.DropAliasMessageHeader(db_name=database, alias=change.alias),
    )


def _of_index(change: PutIndex | RemoveIndexes) -> EncodedChange:
    names = {"collection": change.collection_name, "database": change.database}
    if isinstance(change, RemoveIndexes):
        gone = messages.DropIndexMessageHeader(
            collection_id=change.collection, index_ids=list(change.ids)
        )
        return _encoded(MessageType.DROP_INDEX, gone, b"", names)
    it = change.index
    header = messages.CreateIndexMessageHeader(
        collection_id=change.collection,
        field_id=it.field_id,
        index_id=it.id,
        index_name=it.name,
    )
    info = index.IndexInfo(
        collection_id=change.collection,
        field_id=it.field_id,
        index_name=it.name,
        index_id=it.id,
        index_params=key_values(dict(it.params)),
        user_index_params=key_values(dict(it.params)),
    )
    more: dict[str, Any] = {**names, "field": it.field}
    if change.renamed is not None:
        more["renamed"] = _index_fields(change.renamed)
    body = messages.CreateIndexMessageBody(field_index=index.FieldIndex(index_info=info))
    return _encoded(MessageType.CREATE_INDEX, header, body, more)


def _of_database(change: AddDatabase | RemoveDatabase) -> EncodedChange:
    if isinstance(change, AddDatabase):
        return _encoded(
            MessageType.CREATE_DATABASE,
            messages.CreateDatabaseMessageHeader(db_name=change.name, db_id=change.id),
        )
    return _encoded(
        MessageType.DROP_DATABASE,
        messages.DropDatabaseMessageHeader(db_name=change.name, db_id=change.id),
    )


def _index_fields(it: Index) -> dict[str, Any]:
    return {
        "id": it.id,
        "name": it.name,
        "field": it.field,
        "field_id": it.field_id,
        "params": list(it.params),
    }


def _times(it: Compaction | None) -> list[int]:
    return [] if it is None else [it.lag_ms, it.tombstone_ms]


def _limits(retention: Retention) -> list[int]:
    return [retention.age_ms_max, retention.bytes_max]


def _rows(rows: RowSchema | None) -> dict[str, Any]:
    if rows is None:
        return {}
    return {ARROW: base64_text(rows.arrow), "widths": list(rows.widths)}


def _base(kind: int) -> common.MsgBase:
    return common.MsgBase(msg_type=common.MsgType(kind))


def _shown(database: str) -> str:
    return database or DEFAULT_DATABASE


def _encoded(
    kind: MessageType,
    header: Message,
    body: Message | bytes = b"",
    more: Mapping[str, Any] | None = None,
) -> EncodedChange:
    payload = body if isinstance(body, bytes) else encoded(body)
    properties = {
        "_t": str(int(kind)),
        "_v": "1" if kind in _FIRST_FORM else "2",
        "_h": base64_text(encoded(header)),
    }
    properties[ANNOUNCED] = json.dumps(more or {}, separators=(",", ":"))
    parts = [_PAYLOAD + varint(len(payload)) + payload]
    parts += [write_entry(_PROPERTY, key, value) for key, value in properties.items()]
    size = len(payload) + sum(len(key) + len(value) for key, value in properties.items())
    return EncodedChange(int(kind), b"".join(parts), size)
