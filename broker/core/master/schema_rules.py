"""Which fields a collection may have when its schema comes in Milvus's form."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from broker.core.master.table_names import checked_field, shown
from broker.model.failure import invalid_argument
from broker.model.master.fields import VECTORS, Field, FieldType

FIELDS_MAX: Final = 64
DIM_MAX: Final = 32_768


def check_fields(fields: Sequence[Field], *, auto_id: bool) -> None:
    """Refused(INVALID_ARGUMENT) names the first field that is wrong, and why."""
    if not 1 <= len(fields) <= FIELDS_MAX:
        raise invalid_argument(
            f"the schema has {len(fields)} fields; 1 to {FIELDS_MAX} are allowed"
        )
    for field in fields:
        checked_field(field.name)
        _check_vector(field)
    twice = [name for name, count in Counter(it.name for it in fields).items() if count > 1]
    if twice:
        raise invalid_argument(f"field {shown(twice[0])} is named more than once; name it once")
    _check_primary([it for it in fields if it.primary], auto_id=auto_id)


def _check_primary(primary: Sequence[Field], *, auto_id: bool) -> None:
    if auto_id and not primary:
        return
    if len(primary) != 1:
        names = ", ".join(it.name for it in primary) or "none"
        raise invalid_argument(f"a schema needs exactly one primary key; this one has {names}")
    (key,) = primary
    if key.type not in (FieldType.INT64, FieldType.VARCHAR):
        raise invalid_argument(
            f"primary key {key.name!r} has type {key.type.name}; use INT64 or VARCHAR"
        )


def _check_vector(field: Field) -> None:
    if field.type not in VECTORS or field.type is FieldType.SPARSE_FLOAT_VECTOR:
        return
    text = field.dim
    if text is None:
        raise invalid_argument(f"vector field {field.name!r} has no parameter dim; set it")
    dim = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    if not 1 <= dim <= DIM_MAX:
        raise invalid_argument(
            f"vector field {field.name!r} has dim {shown(text)}; use 1 to {DIM_MAX}"
        )
    if field.type is FieldType.BINARY_VECTOR and dim % 8:
        raise invalid_argument(
            f"binary vector field {field.name!r} has dim {dim}; use a multiple of 8"
        )
