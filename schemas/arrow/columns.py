"""The columns of a collection: which types are allowed, how they change, which rows fit them.

A schema grows by nullable columns at its end, so every version is a number of first columns. Rows
are not looked at. Arrow's library is imported on first use.
"""

from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from importlib import import_module
from typing import Any, Final

from schemas.arrow.ipc import SCHEMA_BYTES_MAX, BadArrow

COLUMNS_MAX: Final = 1024
NAME_BYTES_MAX: Final = 256
DEPTH_MAX: Final = 8
RESERVED: Final = "_"
"""Prefix of columns that the reader adds: `_vchannel`, `_message_id`, `_time_tick`."""
_DIFFERENCES_MAX: Final = 20


class Misfit(BadArrow):
    """Valid rows that do not match the collection's schema."""


Schema = Any
"""A `pyarrow.Schema`; the library brings no types."""


class NoArrow(BadArrow):
    """pyarrow is not installed."""


@cache
def arrow() -> Any:
    """The module `pyarrow`. Raises NoArrow."""
    try:
        # `import pyarrow` leaves compute out; imported here, it never loads on an event loop.
        import_module("pyarrow.compute")
        return import_module("pyarrow")
    except ImportError:
        raise NoArrow(
            "pyarrow is not installed here; install Tidemark with it: pip install '.[arrow]'"
        ) from None


def arrow_is_loaded() -> bool:
    """Whether pyarrow is imported already; importing it takes up to a second."""
    # Not sys.modules, which has a module already while another thread imports it.
    return bool(arrow.cache_info().currsize)


def encode_schema(schema: Schema) -> bytes:
    """The schema as an Arrow message, without its metadata. Raises BadArrow."""
    pa = arrow()
    if not isinstance(schema, pa.Schema):
        raise BadArrow(f"{type(schema).__name__} is not a pyarrow.Schema")
    # Metadata may differ where the columns are equal; without it equal schemas are equal bytes.
    return bytes(schema.remove_metadata().serialize())


@lru_cache(maxsize=256)
def decode_schema(message: bytes) -> Schema:
    """The schema in a message; a repeat costs nothing. Raises BadArrow."""
    pa = arrow()
    if len(message) > SCHEMA_BYTES_MAX:
        raise BadArrow(f"the schema has {len(message)} bytes; the limit is {SCHEMA_BYTES_MAX}")
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(message))
        "".join([field.name for field in flat(schema)])  # raises for one that is not UTF-8
        return schema
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadArrow(f"the bytes are not an Arrow schema: {error}") from None


def check_columns(schema: Schema) -> None:
    """Whether a collection may have these columns. Raises BadArrow."""
    if not 0 < len(schema) <= COLUMNS_MAX:
        raise BadArrow(f"the schema has {len(schema)} columns; 1 to {COLUMNS_MAX} are allowed")
    for field in schema:
        _check_field(field, 1)
        if field.name.startswith(RESERVED):
            raise BadArrow(f"column {field.name!r}: names that begin with '_' are reserved")
    names = [field.name for field in schema]
    doubles = sorted({name for name in names if names.count(name) > 1})
    if doubles:
        raise BadArrow(f"columns {doubles[:8]} are named more than once")


def added(schema: Schema, columns: Schema) -> Schema:
    """The schema with columns added at its end; equal columns that it has already are skipped.

    Raises BadArrow for a column that is not nullable: older rows have no value for it.
    """
    for field in columns:
        at = schema.get_field_index(field.name)
        if at >= 0 and schema.field(at).equals(field):
            continue
        if at >= 0:
            raise BadArrow(f"column {field.name!r} is {_shown(schema.field(at))} already")
        if not field.nullable:
            raise BadArrow(f"column {field.name!r} must be nullable: older rows have no value")
        schema = schema.append(field.remove_metadata())
    check_columns(schema)
    return schema


def fitting_width(schema: Schema, widths: Sequence[int], given: Schema) -> int:
    """The schema version, from 1, of rows with the schema `given`.

    Names, types and order must equal those of the collection; nullability is checked by value, not
    here. Raises Misfit, which names every difference.
    """
    for version, width in enumerate(widths, 1):
        if width == len(given) and all(
            _same(schema.field(at), given.field(at)) for at in range(width)
        ):
            return version
    differences = list(_differences(schema, widths, given))
    raise Misfit(
        f"the rows do not fit version {len(widths)} of the schema: "
        + "; ".join(differences[:_DIFFERENCES_MAX])
    )


def not_null_differences(schema: Schema, given: Schema) -> list[str]:
    """The columns that only one of both schemas allows to be null, one text for each."""
    return [
        f"column {field.name!r} may {'' if known.nullable else 'not '}be null"
        for field in given
        if (at := schema.get_field_index(field.name)) >= 0
        and (known := schema.field(at)).nullable != field.nullable
    ]


def _same(field: Any, given: Any) -> bool:
    return bool(field.name == given.name and field.type.equals(given.type))


def _differences(schema: Schema, widths: Sequence[int], given: Schema) -> Iterator[str]:
    order = [field.name for field in given if schema.get_field_index(field.name) >= 0]
    for field in schema:
        at = given.get_field_index(field.name)
        if at < 0:
            yield f"column {field.name!r} ({field.type}) is missing"
        elif not given.field(at).type.equals(field.type):
            yield f"column {field.name!r} is {given.field(at).type}, not {field.type}"
    for field in given:
        if schema.get_field_index(field.name) < 0:
            yield f"column {field.name!r} ({field.type}) is not in it; add_columns adds it"
    if order != [name for name in schema.names if name in order]:
        yield f"the order of the columns is {schema.names}"
    yield f"versions have the first {', '.join(map(str, widths))} columns"


def _check_field(field: Any, depth: int) -> None:
    name = field.name.encode("utf-8", "replace")
    if not name or len(name) > NAME_BYTES_MAX:
        raise BadArrow(f"column {field.name[:64]!r}: a name has 1 to {NAME_BYTES_MAX} bytes")
    if depth > DEPTH_MAX:
        raise BadArrow(f"column {field.name!r} is nested deeper than {DEPTH_MAX} levels")
    if not _is_known(field.type, depth):
        raise BadArrow(
            f"column {field.name!r} has type {field.type}, which a collection cannot have (no"
            " dictionaries, unions, views, extensions, half floats, nor what takes no room)"
        )
    for child in _children(field.type):
        _check_field(child, depth + 1)


def _is_known(kind: Any, depth: int) -> bool:
    """Types whose values take room in a buffer, so that there cannot be many in a few bytes."""
    types = arrow().types
    # A column of nulls has the batch's length; nested ones could claim any length in no bytes.
    if types.is_null(kind):
        return depth == 1
    if types.is_fixed_size_binary(kind):
        return bool(kind.byte_width > 0)
    if types.is_fixed_size_list(kind):
        return bool(kind.list_size > 0)
    if types.is_struct(kind):
        return bool(kind.num_fields > 0)
    return any(getattr(types, f"is_{name}")(kind) for name in _PLAIN)


_PLAIN: Final = (
    "boolean", "integer", "float32", "float64", "decimal", "date", "time", "timestamp", "duration",
    "string", "binary", "large_string", "large_binary", "list", "large_list", "map",
)  # fmt: skip


def _children(kind: Any) -> list[Any]:
    types = arrow().types
    if types.is_nested(kind):
        return [kind.field(at) for at in range(kind.num_fields)]
    return []


def flat(schema: Schema) -> Iterator[Any]:
    """Every field, nested ones after their parent: the order of the arrays in a record batch."""

    def within(field: Any) -> Iterator[Any]:
        yield field
        for child in _children(field.type):
            yield from within(child)

    for field in schema:
        yield from within(field)


def _shown(field: Any) -> str:
    return f"{field.type}{'' if field.nullable else ' not null'}"
