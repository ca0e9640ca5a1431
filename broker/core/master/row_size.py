"""The estimated size of one row, by the types of its fields."""

from collections.abc import Iterable
from typing import Final

FIELD_BYTES: Final = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 10: 4, 11: 8, 20: 125, 21: 125}
"""By the numbers of `milvus.proto.schema.DataType`: Bool, Int8, … Double, String, VarChar."""
BINARY_VECTOR: Final = 100
FLOAT_VECTOR: Final = 101
OTHER_BYTES: Final = 125
"""Of any other type: as for a text."""


def row_bytes(fields: Iterable[tuple[int, int]]) -> int:
    """The size of a row with these fields, given as data type and dimension; 0 without fields."""
    return sum([_field_bytes(kind, dimension) for kind, dimension in fields])


def _field_bytes(kind: int, dimension: int) -> int:
    if kind == FLOAT_VECTOR:
        return 4 * dimension
    if kind == BINARY_VECTOR:
        return dimension // 8
    return FIELD_BYTES.get(kind, OTHER_BYTES)
