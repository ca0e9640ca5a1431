"""Schemas of collections: what they may hold, how they grow, what fits them."""

from typing import Any

import pyarrow as pa
import pytest

from schemas.arrow import columns
from schemas.arrow.columns import (
    Misfit,
    NoArrow,
    added,
    arrow,
    check_columns,
    decode_schema,
    encode_schema,
    fitting_width,
    flat,
)
from schemas.arrow.ipc import BadArrow
from tests.schemas.some_rows import SCHEMA

DEEP = pa.int8()
for _ in range(9):
    DEEP = pa.list_(DEEP)


def test_a_schema_is_read_as_it_was_written_without_notes_of_its_maker() -> None:
    noted = SCHEMA.with_metadata({"pandas": "x" * 100})
    assert decode_schema(encode_schema(noted)).equals(SCHEMA, check_metadata=True)
    check_columns(SCHEMA)
    assert len(list(flat(SCHEMA))) == 23


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ([], "0 columns"),
        ([(f"c{at}", pa.int8()) for at in range(1025)], "1025 columns"),
        ([("a", pa.int8()), ("a", pa.int16())], "more than once"),
        ([("", pa.int8())], "a name has 1 to 256 bytes"),
        ([("é" * 129, pa.int8())], "a name has 1 to 256 bytes"),
        ([("_a", pa.int8())], "reserved"),
        ([("a", DEEP)], "deeper than 8"),
        ([("a", pa.dictionary(pa.int8(), pa.string()))], "cannot have"),
        ([("a", pa.dense_union([pa.field("x", pa.int8())]))], "cannot have"),
        ([("a", pa.string_view())], "cannot have"),
        ([("a", pa.float16())], "cannot have"),
        ([("a", pa.list_(pa.null()))], "cannot have"),
        ([("a", pa.struct([]))], "cannot have"),
        ([("a", pa.binary(0))], "cannot have"),
        ([("a", pa.list_(pa.int8(), 0))], "cannot have"),
        ([("a", pa.run_end_encoded(pa.int32(), pa.int8()))], "cannot have"),
        ([("a", pa.uuid())], "cannot have"),
    ],
)
def test_what_a_collection_cannot_have_is_told_by_its_column(columns: Any, says: str) -> None:
    with pytest.raises(BadArrow, match=says):
        check_columns(pa.schema(columns))


def test_rows_fit_every_version_and_nothing_between_them() -> None:
    schema = pa.schema([("a", pa.int8()), ("b", pa.string()), ("c", pa.int8())])
    widths = (1, 3)
    assert fitting_width(schema, widths, pa.schema([("a", pa.int8())])) == 1
    assert fitting_width(schema, widths, schema) == 2
    strict = pa.schema([pa.field("a", pa.int8(), nullable=False)])
    assert fitting_width(schema, widths, strict) == 1
    with pytest.raises(Misfit, match=r"version 2.*'c' .int8. is missing.*the first 1, 3 columns"):
        fitting_width(schema, widths, pa.schema(list(schema)[:2]))


def test_a_schema_grows_at_its_end_and_a_repeat_changes_nothing() -> None:
    schema = pa.schema([("a", pa.int8())])
    grown = added(schema, pa.schema([("a", pa.int8()), ("b", pa.string())]))
    assert grown.names == ["a", "b"]
    assert added(grown, pa.schema([("b", pa.string())])).equals(grown)


def test_bytes_that_are_no_schema_are_told_as_such() -> None:
    for raw in (b"", b"x" * 100, encode_schema(SCHEMA)[:40], b"x" * 70_000):
        with pytest.raises(BadArrow, match="schema"):
            decode_schema(raw)


def test_without_the_library_one_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(columns, "import_module", missing)
    arrow.cache_clear()
    try:
        with pytest.raises(NoArrow, match=r"pyarrow .*pip install '\.\[arrow\]'"):
            arrow()
    finally:
        monkeypatch.undo()
        arrow.cache_clear()
