"""What a request for an index changes."""

import pytest

from broker.core.master.index_rules import dropped_indexes, indexed_field, planned_index
from broker.model.failure import Refused
from broker.model.master.ddl import CreateIndex, DropIndex
from broker.model.master.fields import Field, FieldType
from broker.model.master.table_change import Index

VECTOR = Field(101, "v", FieldType.FLOAT_VECTOR, (("dim", "8"),))
TEXT = Field(102, "t", FieldType.VARCHAR)
FLAT, HNSW = (("index_type", "FLAT"),), (("M", "8"), ("index_type", "HNSW"))


def wanted(params: tuple[tuple[str, str], ...], name: str = "") -> CreateIndex:
    return CreateIndex("c", "v", params, name)


def test_only_a_vector_field_that_exists_can_have_an_index() -> None:
    assert indexed_field("v", [VECTOR, TEXT]) == VECTOR
    with pytest.raises(Refused, match="no field 'x'; the fields are: v, t"):
        indexed_field("x", [VECTOR, TEXT])
    with pytest.raises(Refused, match="no field 'x'; the fields are: none"):
        indexed_field("x", [])
    with pytest.raises(Refused, match="'t' has type VARCHAR"):
        indexed_field("t", [VECTOR, TEXT])


def test_a_new_index_has_the_default_name_and_sorted_parameters() -> None:
    index, renamed = planned_index(wanted(HNSW[::-1]), VECTOR, [], 7)
    assert index == Index(7, "_default_idx", "v", 101, HNSW)
    assert renamed is None


def test_equal_parameters_are_the_index_that_exists_under_the_new_name() -> None:
    known = Index(3, "old", "v", 101, HNSW)
    index, renamed = planned_index(wanted(HNSW, "new"), VECTOR, [known], 7)
    assert (index.id, index.name, renamed) == (3, "new", None)
    other_field = Field(103, "w", FieldType.FLOAT_VECTOR)
    assert planned_index(wanted(HNSW, "new"), other_field, [known], 7)[0].id == 7


def test_another_index_of_that_name_gets_a_free_one() -> None:
    known = [Index(3, "i", "v", 101, HNSW), Index(4, "i_bak", "v", 101, (("M", "9"),))]
    index, renamed = planned_index(wanted(FLAT, "i"), VECTOR, known, 7)
    assert (index.id, index.name) == (7, "i")
    assert renamed is not None
    assert (renamed.id, renamed.name) == (3, "i_bak_bak")


@pytest.mark.parametrize(
    ("params", "name", "text"),
    [
        ((), "", "no parameters"),
        (tuple((f"k{at}", "") for at in range(65)), "", "has 65 parameters"),
        ((("k", "v" * 5000),), "", "index parameter 'k' has more than"),
        ((("k", "1"), ("k", "2")), "", "named more than once"),
        (FLAT, "a/b", "index name 'a/b'"),
    ],
)
def test_bad_parameters_and_names_are_refused(
    params: tuple[tuple[str, str], ...], name: str, text: str
) -> None:
    with pytest.raises(Refused, match=text):
        planned_index(wanted(params, name), VECTOR, [], 7)


def test_a_name_for_which_no_room_can_be_made_is_refused() -> None:
    long = "i" * 254
    with pytest.raises(Refused, match="is taken"):
        planned_index(wanted(FLAT, long), VECTOR, [Index(3, long, "v", 101, HNSW)], 7)


def test_a_dropped_index_is_named_or_the_only_one_and_an_unknown_one_is_none() -> None:
    known = [Index(3, "a", "v", 101, HNSW), Index(4, "b", "v", 101, FLAT)]
    assert dropped_indexes(DropIndex("c", "v", "a"), known) == (3,)
    assert dropped_indexes(DropIndex("c", "v"), known[:1]) == (3,)
    assert dropped_indexes(DropIndex("c", "w"), known) == ()
    assert dropped_indexes(DropIndex("c", "v", "x"), known) == ()
    with pytest.raises(Refused, match="has 2 indexes: a, b"):
        dropped_indexes(DropIndex("c", "v"), known)
