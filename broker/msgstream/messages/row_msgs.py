"""Messages with rows, Insert and Delete: each row has a timestamp and a hash key of its own."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, Self

from broker.msgstream.messages.body_msg import B, BodyMsg, header
from broker.msgstream.messages.msg_type import MsgType
from schemas.generated.milvus.proto import common, msg, schema


class RowMsg(BodyMsg[B], ABC, Generic[B]):
    """A message whose span is that of its rows."""

    __slots__ = ()

    def _span(self) -> tuple[int, int]:
        stamps = self.body.timestamps
        return (min(stamps), max(stamps)) if stamps else (0, 0)

    @property
    @abstractmethod
    def columns(self) -> dict[str, int]:
        """How many entries each column has."""

    @abstractmethod
    def picked(self, row: int) -> Self:
        """One row as a message; its header has the timestamp of the row."""

    def _base_of(self, timestamp: int) -> common.MsgBase:
        base = self.body.base
        return common.MsgBase(
            msg_type=base.msg_type,
            msg_id=base.msg_id,
            timestamp=timestamp,
            source_id=base.source_id,
            target_id=base.target_id,
            properties=dict(base.properties),
        )


class InsertMsg(RowMsg[msg.InsertRequest]):
    """Rows to insert; `row_data` are opaque bytes."""

    __slots__ = ()
    kind = MsgType.INSERT
    body_type: ClassVar[Any] = msg.InsertRequest

    @classmethod
    def of_rows(
        cls,
        rows: Sequence[bytes],
        *,
        row_ids: Sequence[int],
        timestamps: Sequence[int],
        hash_keys: Sequence[int],
        base: common.MsgBase | None = None,
        collection_name: str = "",
    ) -> Self:
        """A message with these rows; the sequences have one entry for each."""
        body = msg.InsertRequest(
            base=base or header(max(timestamps, default=0)),
            collection_name=collection_name,
            timestamps=list(timestamps),
            row_i_ds=list(row_ids),
            row_data=[common.Blob(value=row) for row in rows],
            num_rows=len(rows),
        )
        return cls(body, hash_keys=hash_keys)

    @property
    def rows(self) -> list[bytes]:
        """The bytes of each row."""
        return [it.value for it in self.body.row_data]

    @property
    def columns(self) -> dict[str, int]:
        """How many entries each column has."""
        body = self.body
        return {
            "timestamps": len(body.timestamps),
            "row ids": len(body.row_i_ds),
            "rows": len(body.row_data),
        }

    def picked(self, row: int) -> Self:
        """See RowMsg."""
        body = self.body
        one = msg.InsertRequest(
            base=self._base_of(body.timestamps[row]),
            shard_name=body.shard_name,
            db_name=body.db_name,
            collection_name=body.collection_name,
            partition_name=body.partition_name,
            db_id=body.db_id,
            collection_id=body.collection_id,
            partition_id=body.partition_id,
            segment_id=body.segment_id,
            timestamps=[body.timestamps[row]],
            row_i_ds=[body.row_i_ds[row]],
            row_data=[body.row_data[row]],
            num_rows=1,
        )
        return type(self)(one, hash_keys=[self.hash_keys[row]])


class DeleteMsg(RowMsg[msg.DeleteRequest]):
    """Primary keys of rows to delete: integers, or strings in `primary_keys`."""

    __slots__ = ()
    kind = MsgType.DELETE
    body_type: ClassVar[Any] = msg.DeleteRequest

    @classmethod
    def of_keys(
        cls,
        keys: Sequence[int],
        *,
        timestamps: Sequence[int],
        hash_keys: Sequence[int],
        base: common.MsgBase | None = None,
        collection_name: str = "",
    ) -> Self:
        """A message that deletes the rows with these primary keys."""
        body = msg.DeleteRequest(
            base=base or header(max(timestamps, default=0)),
            collection_name=collection_name,
            int64_primary_keys=list(keys),
            timestamps=list(timestamps),
            num_rows=len(keys),
        )
        return cls(body, hash_keys=hash_keys)

    @property
    def keys(self) -> list[int] | list[str]:
        """The primary keys."""
        ids = self.body.primary_keys
        if ids is None:
            return self.body.int64_primary_keys
        if ids.str_id is not None:
            return ids.str_id.data
        return ids.int_id.data if ids.int_id is not None else []

    @property
    def columns(self) -> dict[str, int]:
        """How many entries each column has."""
        return {"timestamps": len(self.body.timestamps), "primary keys": len(self.keys)}

    def picked(self, row: int) -> Self:
        """See RowMsg."""
        body = self.body
        key = self.keys[row]
        one = msg.DeleteRequest(
            base=self._base_of(body.timestamps[row]),
            shard_name=body.shard_name,
            db_name=body.db_name,
            collection_name=body.collection_name,
            partition_name=body.partition_name,
            db_id=body.db_id,
            collection_id=body.collection_id,
            partition_id=body.partition_id,
            segment_id=body.segment_id,
            timestamps=[body.timestamps[row]],
            num_rows=1,
        )
        if isinstance(key, str):
            one.primary_keys = schema.IDs(str_id=schema.StringArray(data=[key]))
        elif body.primary_keys is not None:
            one.primary_keys = schema.IDs(int_id=schema.LongArray(data=[key]))
        else:
            one.int64_primary_keys = [key]
        return type(self)(one, hash_keys=[self.hash_keys[row]])
