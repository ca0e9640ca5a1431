"""The fields that stand for the columns of an Arrow schema.

Every Arrow type of a collection has a field type that Milvus's readers know. Where it says less, as
JSON does of a struct, the parameter `arrow_type` names the exact type.
"""

from collections.abc import Sequence
from typing import Any, Final

from broker.model.master.fields import FIRST_USER_FIELD_ID, Field, FieldType
from schemas.arrow.columns import Schema, arrow

VARCHAR_LENGTH_MAX: Final = 65_535
_EXACT: Final = {
    "bool": FieldType.BOOL,
    "int8": FieldType.INT8,
    "int16": FieldType.INT16,
    "int32": FieldType.INT32,
    "int64": FieldType.INT64,
    "float": FieldType.FLOAT,
    "double": FieldType.DOUBLE,
    "string": FieldType.VARCHAR,
}
_WIDER: Final = {
    "uint8": FieldType.INT16,
    "uint16": FieldType.INT32,
    "uint32": FieldType.INT64,
    "uint64": FieldType.INT64,
    "large_string": FieldType.VARCHAR,
    "date32[day]": FieldType.INT32,
}
"""Types whose values fit another one, or nearly so: the largest uint64 does not."""


def arrow_fields(schema: Schema) -> Sequence[Field]:
    """One field for each column, with the ids 100, 101, … in order."""
    return [_field(column, FIRST_USER_FIELD_ID + at) for at, column in enumerate(schema)]


def _field(column: Any, id: int) -> Field:
    kind, params, element = _typed(column.type)
    if kind is FieldType.VARCHAR:
        params["max_length"] = str(VARCHAR_LENGTH_MAX)
    ordered = tuple(sorted(params.items()))
    return Field(id, column.name, kind, ordered, nullable=column.nullable, element=element)


def _typed(kind: Any) -> tuple[FieldType, dict[str, str], FieldType]:
    types, text = arrow().types, str(kind)
    exact = _EXACT.get(text)
    if exact is not None:
        return exact, {}, FieldType.NONE
    named = {"arrow_type": text}
    if types.is_fixed_size_list(kind) and types.is_float32(kind.value_type):
        return FieldType.FLOAT_VECTOR, {"dim": str(kind.list_size)}, FieldType.NONE
    if types.is_fixed_size_binary(kind) and not types.is_decimal(kind):
        return FieldType.BINARY_VECTOR, {"dim": str(kind.byte_width * 8)}, FieldType.NONE
    if types.is_list(kind) and str(kind.value_type) in _EXACT:
        return FieldType.ARRAY, named, _EXACT[str(kind.value_type)]
    if types.is_timestamp(kind) or types.is_time(kind) or types.is_duration(kind):
        return FieldType.INT64, named, FieldType.NONE
    if types.is_date64(kind):
        return FieldType.INT64, named, FieldType.NONE
    return _WIDER.get(text, FieldType.JSON), named, FieldType.NONE
