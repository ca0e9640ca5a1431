"""Milvus's CollectionSchema: fields to bytes and back, and the checks of given ones."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from broker.model.master.fields import FIRST_USER_FIELD_ID, Field, FieldType, TableSchema
from schemas.generated.milvus.proto import common, schema
from schemas.message_bytes import encoded, parsed_bounded

ROW_ID: Final = "RowID"
TIMESTAMP: Final = "Timestamp"


class BadSchema(ValueError):
    """The bytes are no CollectionSchema, or name a field or type that is not known."""


def table_schema(
    name: str, fields: Sequence[Field], *, version: int = 0, auto_id: bool = True
) -> TableSchema:
    """A schema of these fields, as bytes with the system fields too."""
    return _table(
        schema.CollectionSchema(name=name, auto_id=auto_id, version=version), tuple(fields)
    )


def given_schema(data: bytes) -> tuple[str, TableSchema]:
    """The name and the schema in the bytes of a CollectionSchema; user fields get new ids.

    Raises BadSchema.
    """
    given = _parsed(data)
    user = [it for it in given.fields if it.name not in (ROW_ID, TIMESTAMP)]
    fields = [_field(it, FIRST_USER_FIELD_ID + at) for at, it in enumerate(user)]
    # What else a field says stays: its index parameters, its default value.
    given.fields = [_numbered(it, at) for it, at in zip(user, fields, strict=True)]
    return given.name, TableSchema(
        tuple(fields), encoded(_with_system_fields(given)), given.version
    )


def read_schema(data: bytes) -> TableSchema:
    """A schema as it was broadcast; fields of types that are not known are NONE. BadSchema."""
    given = _parsed(data)
    fields = [
        _field(it, it.field_id, strict=False)
        for it in given.fields
        if it.field_id >= FIRST_USER_FIELD_ID
    ]
    return TableSchema(tuple(fields), data, given.version)


def user_schema(data: bytes) -> bytes:
    """The bytes of a schema without the system fields."""
    given = _parsed(data)
    given.fields = [it for it in given.fields if it.field_id >= FIRST_USER_FIELD_ID]
    return encoded(given)


def _parsed(data: bytes) -> schema.CollectionSchema:
    try:
        return parsed_bounded(schema.CollectionSchema, data)
    except Exception as error:  # noqa: BLE001 - see the next line
        # The parser raises what it stumbles over: struct, value, index and unicode errors.
        raise BadSchema(f"the bytes are not a CollectionSchema: {error}") from None


def _table(base: schema.CollectionSchema, fields: tuple[Field, ...]) -> TableSchema:
    base.fields = [_encoded(it) for it in fields]
    return TableSchema(fields, encoded(_with_system_fields(base)), base.version)


def _with_system_fields(base: schema.CollectionSchema) -> schema.CollectionSchema:
    int64 = schema.DataType(int(FieldType.INT64))
    base.fields = [
        *base.fields,
        schema.FieldSchema(field_id=0, name=ROW_ID, description="row id", data_type=int64),
        schema.FieldSchema(field_id=1, name=TIMESTAMP, description="time stamp", data_type=int64),
    ]
    return base


def _numbered(given: schema.FieldSchema, field: Field) -> schema.FieldSchema:
    given.field_id = field.id
    return given


def _field(given: schema.FieldSchema, id: int, *, strict: bool = True) -> Field:
    return Field(
        id=id,
        name=given.name,
        type=_type(given.name, int(given.data_type), strict=strict),
        params=pairs(given.type_params),
        nullable=given.nullable,
        primary=given.is_primary_key,
        auto_id=given.auto_id,
        element=_type(given.name, int(given.element_type), strict=False),
    )


def _type(name: str, number: int, *, strict: bool) -> FieldType:
    try:
        kind = FieldType(number)
    except ValueError:
        kind = FieldType.NONE
    if strict and kind is FieldType.NONE:
        known = ", ".join(f"{it.name} {int(it)}" for it in FieldType if it)
        raise BadSchema(f"field {name!r} has type {number}; use one of: {known}")
    return kind


def _encoded(field: Field) -> schema.FieldSchema:
    return schema.FieldSchema(
        field_id=field.id,
        name=field.name,
        is_primary_key=field.primary,
        data_type=schema.DataType(int(field.type)),
        type_params=key_values(dict(field.params)),
        auto_id=field.auto_id,
        element_type=schema.DataType(int(field.element)),
        nullable=field.nullable,
    )


def pairs(params: Iterable[common.KeyValuePair]) -> tuple[tuple[str, str], ...]:
    """Parameters sorted by key."""
    return tuple(sorted((it.key, it.value) for it in params))


def key_values(params: Mapping[str, str]) -> list[common.KeyValuePair]:
    """Parameters on the wire."""
    return [common.KeyValuePair(key=key, value=value) for key, value in params.items()]
