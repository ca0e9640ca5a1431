"""Reads changes of the master's table from messages: ours, and those of Milvus's clients."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from broker.codec.announced import ARROW, COMPACTION, RETENTION, are_rows, said_beside
from broker.codec.milvus_schemas import pairs, read_schema
from broker.core.master.table_names import NAME_LENGTH_MAX, shown
from broker.core.naming import is_control_channel
from broker.model.collection import RowSchema
from broker.model.ids import CollectionId, PartitionId, VChannelName
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
from broker.model.message import MessageType
from broker.model.retention.compaction import Compaction
from broker.model.retention.policy import Retention
from broker.ports.headers import BadHeader
from schemas.encoding.base64_text import read_base64
from schemas.generated.milvus.proto import messages, msg
from schemas.message_bytes import encoded, parsed_bounded
from schemas.stored import header_of, payload_of

More = Mapping[str, Any]


class BadName(BadHeader):
    """A name that may not become a key."""


def read_change(kind: int, body: bytes, vchannels: Sequence[VChannelName]) -> TableChange | None:
    """See `broker.ports.master.ddl_messages.DdlMessages.decode`."""
    reader = _READERS.get(kind)
    if reader is None:
        return None
    name = MessageType(kind).name
    try:
        more = said_beside(body) or {}
        change = reader(header_of(body), payload_of(body), more, vchannels)
        names = [] if change is None else _names(change)
    except Exception as error:
        # The parser raises what it stumbles over: struct, value, index and unicode errors.
        raise BadHeader(f"the {name} cannot be decoded: {error}") from error
    if not all(isinstance(it, str) for it in names):
        # The parser takes a number where a text belongs.
        raise BadHeader(f"the {name} cannot be decoded: a name is not a text")
    for it in names:
        # Names become keys of records, and parts of other keys.
        if "/" in it or len(it) > NAME_LENGTH_MAX:
            raise BadName(
                f"the {name} has the name {shown(it)}: a name has at most {NAME_LENGTH_MAX}"
                " characters and no '/'"
            )
    return change


def _names(change: TableChange) -> list[str]:
    found = [getattr(change, it, "") for it in ("name", "database", "alias", "collection_name")]
    match change:
        case AddCollection(partitions=partitions):
            found += [name for name, _ in partitions]
        case PutIndex(index=index):
            found += [index.name, index.field]
        case _:
            pass
    return found


def _add_collection(
    header: bytes, payload: bytes, more: More, vchannels: Sequence[VChannelName]
) -> TableChange | None:
    head = parsed_bounded(messages.CreateCollectionMessageHeader, header)
    request = parsed_bounded(msg.CreateCollectionRequest, payload)
    id = head.collection_id or request.collection_id
    if not id or not request.collection_name:
        return None
    own = [VChannelName(it) for it in request.virtual_channel_names]
    given = own or [it for it in vchannels if not is_control_channel(it)]
    ids = head.partition_ids or request.partition_i_ds
    names = [*request.partition_names, *[""] * len(ids)]
    schema = request.collection_schema
    as_bytes = request.schema if schema is None else encoded(schema)
    return AddCollection(
        _database(request.db_name),
        request.collection_name,
        CollectionId(id),
        tuple(given),
        # Older clients send the IDs alone; a partition then gets its ID as its name.
        tuple((names[at] or f"_{each}", PartitionId(each)) for at, each in enumerate(ids)),
        _rows(more),
        read_schema(as_bytes) if as_bytes else None,
        _retention(more) or Retention(),
        _compaction(more),
    )


def _remove_collection(
    header: bytes, payload: bytes, _: More, __: Sequence[VChannelName]
) -> TableChange | None:
    request = parsed_bounded(msg.DropCollectionRequest, payload)
    head = parsed_bounded(messages.DropCollectionMessageHeader, header)
    id = head.collection_id or request.collection_id
    if not id:
        return None
    return RemoveCollection(CollectionId(id), request.collection_name, _database(request.db_name))


def _alter_collection(
    header: bytes, payload: bytes, more: More, _: Sequence[VChannelName]
) -> TableChange | None:
    head = parsed_bounded(messages.AlterCollectionMessageHeader, header)
    updates = parsed_bounded(messages.AlterCollectionMessageBody, payload).updates
    if updates is None or not head.collection_id:
        return None
    retention = _retention(more)
    if retention is not None:
        name, database = updates.collection_name, _database(updates.db_name)
        return AlterRetention(CollectionId(head.collection_id), name, database, retention)
    if COMPACTION in more:
        name, database = updates.collection_name, _database(updates.db_name)
        return AlterCompaction(CollectionId(head.collection_id), name, database, _compaction(more))
    if updates.schema is None:
        return None
    return AlterSchema(
        CollectionId(head.collection_id),
        updates.collection_name,
        _database(updates.db_name),
        _rows(more),
        read_schema(bytes(updates.schema)),
    )


def _change_schema(
    header: bytes, payload: bytes, more: More, _: Sequence[VChannelName]
) -> TableChange | None:
    head = parsed_bounded(messages.SchemaChangeMessageHeader, header)
    schema = parsed_bounded(messages.SchemaChangeMessageBody, payload).schema
    if schema is None or not head.collection_id:
        return None
    return AlterSchema(
        CollectionId(head.collection_id),
        schema.name,
        _database(schema.db_name),
        _rows(more),
        read_schema(encoded(schema)),
    )


def _add_partition(
    header: bytes, payload: bytes, more: More, _: Sequence[VChannelName]
) -> TableChange | None:
    head = parsed_bounded(messages.CreatePartitionMessageHeader, header)
    request = parsed_bounded(msg.CreatePartitionRequest, payload)
    if not head.collection_id or not head.partition_id:
        return None
    return AddPartition(
        CollectionId(head.collection_id),
        request.collection_name,
        _database(request.db_name),
        request.partition_name or f"_{head.partition_id}",
        PartitionId(head.partition_id),
        are_rows(more),
    )


def _remove_partition(
    header: bytes, payload: bytes, more: More, _: Sequence[VChannelName]
) -> TableChange | None:
    head = parsed_bounded(messages.DropPartitionMessageHeader, header)
    request = parsed_bounded(msg.DropPartitionRequest, payload)
    if not head.collection_id or not head.partition_id:
        return None
    return RemovePartition(
        CollectionId(head.collection_id),
        request.collection_name,
        _database(request.db_name),
        request.partition_name,
        PartitionId(head.partition_id),
        are_rows(more),
    )


def _point_alias(
    header: bytes, _: bytes, __: More, ___: Sequence[VChannelName]
) -> TableChange | None:
    head = parsed_bounded(messages.AlterAliasMessageHeader, header)
    if not head.alias or not head.collection_id:
        return None
    id = CollectionId(head.collection_id)
    return PointAlias(_database(head.db_name), head.alias, id, head.collection_name)


def _remove_alias(
    header: bytes, _: bytes, __: More, ___: Sequence[VChannelName]
) -> TableChange | None:
    head = parsed_bounded(messages.DropAliasMessageHeader, header)
    return RemoveAlias(_database(head.db_name), head.alias) if head.alias else None


def _put_index(
    header: bytes, payload: bytes, more: More, _: Sequence[VChannelName]
) -> TableChange | None:
    head = parsed_bounded(messages.CreateIndexMessageHeader, header)
    field_index = parsed_bounded(messages.CreateIndexMessageBody, payload).field_index
    info = None if field_index is None else field_index.index_info
    if not head.collection_id or not head.index_id:
        return None
    params = () if info is None else pairs(info.user_index_params or info.index_params)
    name, field = head.index_name, str(more.get("field", ""))
    index = Index(head.index_id, name, field, head.field_id, params)
    renamed = more.get("renamed")
    return PutIndex(
        CollectionId(head.collection_id),
        str(more.get("collection", "")),
        str(more.get("database", "")),
        index,
        None if renamed is None else read_index(renamed),
    )


def _remove_indexes(
    header: bytes, _: bytes, more: More, __: Sequence[VChannelName]
) -> TableChange | None:
    head = parsed_bounded(messages.DropIndexMessageHeader, header)
    if not head.collection_id:
        return None
    names = str(more.get("collection", "")), str(more.get("database", ""))
    return RemoveIndexes(CollectionId(head.collection_id), *names, tuple(head.index_ids))


def _add_database(
    header: bytes, _: bytes, __: More, ___: Sequence[VChannelName]
) -> TableChange | None:
    head = parsed_bounded(messages.CreateDatabaseMessageHeader, header)
    name = _database(head.db_name)
    return AddDatabase(name, head.db_id) if name else None


def _remove_database(
    header: bytes, _: bytes, __: More, ___: Sequence[VChannelName]
) -> TableChange | None:
    head = parsed_bounded(messages.DropDatabaseMessageHeader, header)
    name = _database(head.db_name)
    return RemoveDatabase(name, head.db_id) if name else None


def read_index(fields: Mapping[str, Any]) -> Index:
    """An index from its JSON form."""
    return Index(
        id=int(fields["id"]),
        name=str(fields["name"]),
        field=str(fields["field"]),
        field_id=int(fields["field_id"]),
        params=tuple((str(key), str(value)) for key, value in fields["params"]),
    )


def _rows(more: More) -> RowSchema | None:
    if ARROW not in more:
        return None
    return RowSchema(read_base64(str(more[ARROW])), tuple(int(it) for it in more["widths"]))


def _retention(more: More) -> Retention | None:
    if RETENTION not in more:
        return None
    age_ms, size = (int(it) for it in more[RETENTION])
    if age_ms < 0 or size < 0:
        raise ValueError(f"a limit of its retention is negative: {age_ms} ms, {size} bytes")
    return Retention(bytes_max=size, age_ms_max=age_ms)


def _compaction(more: More) -> Compaction | None:
    if not more.get(COMPACTION):
        return None
    lag_ms, tombstone_ms = (int(it) for it in more[COMPACTION])
    if lag_ms < 0 or tombstone_ms < 0:
        raise ValueError(f"a time of its compaction is negative: {lag_ms}, {tombstone_ms} ms")
    return Compaction(lag_ms, tombstone_ms)


def _database(name: str) -> str:
    return "" if name == DEFAULT_DATABASE else name


_Reader = Callable[[bytes, bytes, More, Sequence[VChannelName]], TableChange | None]
_READERS: Final[Mapping[int, _Reader]] = {
    MessageType.CREATE_COLLECTION: _add_collection,
    MessageType.DROP_COLLECTION: _remove_collection,
    MessageType.ALTER_COLLECTION: _alter_collection,
    MessageType.SCHEMA_CHANGE: _change_schema,
    MessageType.CREATE_PARTITION: _add_partition,
    MessageType.DROP_PARTITION: _remove_partition,
    MessageType.ALTER_ALIAS: _point_alias,
    MessageType.DROP_ALIAS: _remove_alias,
    MessageType.CREATE_INDEX: _put_index,
    MessageType.DROP_INDEX: _remove_indexes,
    MessageType.CREATE_DATABASE: _add_database,
    MessageType.DROP_DATABASE: _remove_database,
}
