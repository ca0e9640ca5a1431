"""The fields of a collection's rows, as Milvus numbers and types them."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum


class FieldType(IntEnum):
    """Numbers of `milvus.proto.schema.DataType`."""

    NONE = 0
    BOOL = 1
    INT8 = 2
    INT16 = 3
    INT32 = 4
    INT64 = 5
    FLOAT = 10
    DOUBLE = 11
    STRING = 20
    VARCHAR = 21
    ARRAY = 22
    JSON = 23
    GEOMETRY = 24
    TEXT = 25
    TIMESTAMPTZ = 26
    MOL = 27
    BINARY_VECTOR = 100
    FLOAT_VECTOR = 101
    FLOAT16_VECTOR = 102
    BFLOAT16_VECTOR = 103
    SPARSE_FLOAT_VECTOR = 104
    INT8_VECTOR = 105
    ARRAY_OF_VECTOR = 106
    ARRAY_OF_STRUCT = 200
    STRUCT = 201


VECTORS = frozenset(
    {
        FieldType.BINARY_VECTOR,
        FieldType.FLOAT_VECTOR,
        FieldType.FLOAT16_VECTOR,
        FieldType.BFLOAT16_VECTOR,
        FieldType.SPARSE_FLOAT_VECTOR,
        FieldType.INT8_VECTOR,
    }
)
"""The types that an index can be built on."""

FIRST_USER_FIELD_ID = 100
"""Smaller ids are of the system fields: RowID 0 and Timestamp 1."""


@dataclass(frozen=True, slots=True)
class Field:
    """One user field. `params`: of its type, such as `dim` and `max_length`; sorted by key."""

    id: int
    name: str
    type: FieldType
    params: tuple[tuple[str, str], ...] = ()
    nullable: bool = False
    primary: bool = False
    auto_id: bool = False
    element: FieldType = FieldType.NONE

    @property
    def dim(self) -> str | None:
        """The dimension of a vector, as it was given."""
        named: Mapping[str, str] = dict(self.params)
        return named.get("dim")


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The fields of a collection. `milvus`: a serialised CollectionSchema with the system fields.

    `version` grows with each change.
    """

    fields: tuple[Field, ...]
    milvus: bytes
    version: int = 0
