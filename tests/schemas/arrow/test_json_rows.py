"""Rows as JSON objects: every type has one form, and it is JSON."""

import json

import pyarrow as pa

from schemas.arrow.json_rows import rows_as_json
from schemas.arrow.rows import encode_rows
from tests.schemas.some_rows import SCHEMA, rows


def test_each_type_has_its_form() -> None:
    full, empty = [json.loads(it) for it in rows_as_json(encode_rows(rows(2)), 0, 2)]
    assert full == {
        "truth": True, "small": -5, "large": 2**64 - 1, "real": 0.5, "exact": "12.34",
        "day": 19000, "at": 1_700_000_000_123_456_789, "took": 7,
        "text": "é\n", "bytes": "AP8=", "fixed": "YWI=", "list": [1, None, 3],
        "vector": [1.0, 2.0, 3.0], "struct": {"a": 1, "b": None}, "map": [["k", 1]],
        "nothing": None,
    }  # fmt: skip
    assert empty == dict.fromkeys(SCHEMA.names)


def test_some_of_the_rows_are_made_alone() -> None:
    body = encode_rows(pa.record_batch({"n": list(range(10))}))
    assert rows_as_json(body, 3, 5) == [b'{"n": 3}', b'{"n": 4}']


def test_numbers_that_json_has_not_are_text() -> None:
    column = pa.array([{"x": [float("nan"), float("inf"), 1.5]}])
    (row,) = rows_as_json(encode_rows(pa.record_batch({"n": column})), 0, 1)
    assert json.loads(row) == {"n": {"x": ["nan", "inf", 1.5]}}
