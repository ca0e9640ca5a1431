"""Schemas of rows, from the Arrow messages of callers: checked, and as fields for the log."""

from broker.codec.arrow_fields import arrow_fields
from broker.codec.milvus_schemas import table_schema
from broker.edge.rpc.arrow_library import require_arrow
from broker.model.collection import RowSchema
from broker.model.failure import Refused, StreamingCode, invalid_argument
from broker.model.master.fields import TableSchema
from schemas.arrow.columns import added, check_columns, decode_schema, encode_schema
from schemas.arrow.ipc import BadArrow
from schemas.generated.tidemark import v1

VERSIONS_MAX = 1024


async def defined_rows(name: str, message: bytes) -> tuple[RowSchema, TableSchema]:
    """The first version of a schema. Refused: INVALID_ARGUMENT; UNRECOVERABLE without pyarrow."""
    await require_arrow()
    try:
        schema = decode_schema(message)
        check_columns(schema)
        rows = RowSchema(encode_schema(schema), (len(schema),))
    except BadArrow as error:
        raise invalid_argument(f"bad schema: {error}") from error
    return rows, fields_of(name, rows)


def wire_schema(rows: RowSchema) -> v1.RowSchema:
    """The schema as answers have it."""
    return v1.RowSchema(arrow=rows.arrow, widths=list(rows.widths))


def extended_rows(before: RowSchema, columns: bytes) -> RowSchema:
    """The schema with the columns added; the same one when it has them all."""
    try:
        old = decode_schema(before.arrow)
        new = added(old, decode_schema(columns))
        if len(new) == len(old):
            return before
        if before.version == VERSIONS_MAX:
            raise invalid_argument(
                f"the schema has {VERSIONS_MAX} versions, the limit; create a new collection"
            )
        return RowSchema(encode_schema(new), (*before.widths, len(new)))
    except BadArrow as error:
        raise invalid_argument(f"bad columns: {error}") from error


async def adopted_fields(name: str, rows: RowSchema) -> TableSchema:
    """The fields of a stored schema. Refused: UNRECOVERABLE without pyarrow, or if damaged."""
    await require_arrow()
    try:
        return fields_of(name, rows)
    except BadArrow as error:
        cause = f"the stored schema of collection '{name}' cannot be read: {error}"
        raise Refused(StreamingCode.UNRECOVERABLE, cause) from error


def fields_of(name: str, rows: RowSchema) -> TableSchema:
    """The fields that stand for the columns; its version is that of the rows, counted from 0."""
    return table_schema(name, arrow_fields(decode_schema(rows.arrow)), version=rows.version - 1)
