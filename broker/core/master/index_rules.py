"""What a request for an index changes, given the indexes of the collection."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from broker.core.master.table_names import checked_index, shown
from broker.model.failure import Refused, StreamingCode, invalid_argument
from broker.model.master.ddl import CreateIndex, DropIndex
from broker.model.master.fields import VECTORS, Field
from broker.model.master.table_change import Index

DEFAULT_INDEX: Final = "_default_idx"
PARAMS_MAX: Final = 64
PARAM_LENGTH_MAX: Final = 4096


def indexed_field(wanted: str, fields: Sequence[Field]) -> Field:
    """The field of this name. Refused when there is none, or when it has no vectors."""
    field = next((it for it in fields if it.name == wanted), None)
    if field is None:
        names = ", ".join(it.name for it in fields) or "none"
        raise invalid_argument(f"there is no field {shown(wanted)}; the fields are: {names}")
    if field.type not in VECTORS:
        raise invalid_argument(
            f"field {wanted!r} has type {field.type.name}; an index needs a vector field"
        )
    return field


def planned_index(
    wanted: CreateIndex, field: Field, known: Sequence[Index], new_id: int
) -> tuple[Index, Index | None]:
    """The index as it will be, and another one that gets a new name to make room for its name.

    The same field with the same parameters, in any order, is the index that exists already.
    Refused for parameters that are missing, repeated or too long.
    """
    params, name = _params(wanted), checked_index(wanted.name or DEFAULT_INDEX)
    same = next((it for it in known if it.field_id == field.id and it.params == params), None)
    index = Index(new_id, name, field.name, field.id, params)
    if same is not None:
        index = replace(same, name=name)
    other = next((it for it in known if it.name == name and it.id != index.id), None)
    return index, None if other is None else replace(other, name=_free_name(name, known))


def dropped_indexes(wanted: DropIndex, known: Sequence[Index]) -> tuple[int, ...]:
    """The index to drop; none when it is unknown. Refused when several could be meant."""
    found = [
        it for it in known if it.field == wanted.field and wanted.name in ("", it.name)
    ]  # fmt: skip
    if len(found) > 1:
        names = ", ".join(sorted(it.name for it in found))
        raise invalid_argument(
            f"field {wanted.field!r} has {len(found)} indexes: {names}; name the one to drop"
        )
    return tuple(it.id for it in found)


def _params(wanted: CreateIndex) -> tuple[tuple[str, str], ...]:
    params = tuple(sorted(wanted.params))
    if not params:
        raise invalid_argument("the index has no parameters; set at least index_type")
    if len(params) > PARAMS_MAX:
        raise invalid_argument(f"the index has {len(params)} parameters, at most {PARAMS_MAX}")
    long = next((key for key, value in params if len(key + value) > PARAM_LENGTH_MAX), None)
    if long is not None:
        raise invalid_argument(
            f"index parameter {shown(long)} has more than {PARAM_LENGTH_MAX} characters"
        )
    if len({key for key, _ in params}) < len(params):
        raise invalid_argument(f"index parameters are named more than once: {params}")
    return params


def _free_name(name: str, known: Sequence[Index]) -> str:
    taken = {it.name for it in known}
    free = f"{name}_bak"
    while free in taken:
        free += "_bak"
    if len(free) > 255:
        raise Refused(StreamingCode.INVALID_ARGUMENT, f"index name {shown(name)} is taken")
    return free
