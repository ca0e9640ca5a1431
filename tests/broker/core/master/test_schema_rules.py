"""Fields that a collection may have when its schema comes in Milvus's form."""

import pytest

from broker.core.master.schema_rules import check_fields
from broker.model.failure import Refused
from broker.model.master.fields import Field, FieldType

KEY = Field(100, "id", FieldType.INT64, primary=True)
VECTOR = Field(101, "v", FieldType.FLOAT_VECTOR, (("dim", "8"),))


def vector(kind: FieldType, dim: str | None) -> Field:
    return Field(101, "v", kind, () if dim is None else (("dim", dim),))


@pytest.mark.parametrize(
    "fields",
    [
        [KEY, VECTOR],
        [KEY, vector(FieldType.BINARY_VECTOR, "16")],
        [KEY, vector(FieldType.SPARSE_FLOAT_VECTOR, None)],
        [Field(100, "id", FieldType.VARCHAR, primary=True)],
        [KEY, vector(FieldType.FLOAT_VECTOR, "32768")],
    ],
)
def test_good_fields_pass(fields: list[Field]) -> None:
    check_fields(fields, auto_id=False)


def test_with_automatic_ids_there_need_be_no_primary_key() -> None:
    check_fields([VECTOR], auto_id=True)
    check_fields([KEY, VECTOR], auto_id=True)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ([], "has 0 fields"),
        ([Field(100 + at, f"f{at}", FieldType.BOOL) for at in range(65)], "has 65 fields"),
        ([KEY, KEY], "field 'id' is named more than once"),
        ([Field(100, "a b", FieldType.BOOL)], "field name 'a b'"),
        ([VECTOR], "exactly one primary key; this one has none"),
        ([KEY, Field(101, "k", FieldType.INT64, primary=True)], "this one has id, k"),
        ([Field(100, "id", FieldType.FLOAT, primary=True)], "'id' has type FLOAT"),
        ([KEY, vector(FieldType.FLOAT_VECTOR, None)], "no parameter dim"),
        ([KEY, vector(FieldType.FLOAT_VECTOR, "0")], "dim '0'"),
        ([KEY, vector(FieldType.FLOAT_VECTOR, "32769")], "dim '32769'"),
        ([KEY, vector(FieldType.FLOAT_VECTOR, "x")], "dim 'x'"),
        ([KEY, vector(FieldType.FLOAT_VECTOR, "9" * 5000)], "dim '999"),
        ([KEY, vector(FieldType.BINARY_VECTOR, "12")], "use a multiple of 8"),
    ],
)
def test_bad_fields_are_refused_with_the_first_that_is_wrong(
    fields: list[Field], text: str
) -> None:
    with pytest.raises(Refused, match=text):
        check_fields(fields, auto_id=False)
