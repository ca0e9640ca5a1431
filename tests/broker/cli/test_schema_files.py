"""Schemas that are described in JSON: every type is written and read back the same."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from broker.cli.schema_files import BadType, columns_of, schema_like, schema_of, type_named

TYPES = [
    pa.int64(), pa.uint8(), pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.string(),
    pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(16), pa.date32(), pa.date64(),
    pa.time32("s"), pa.time64("ns"), pa.timestamp("us"), pa.timestamp("ms", "Europe/Berlin"),
    pa.duration("ms"), pa.decimal128(10, 2), pa.decimal256(40, -3), pa.list_(pa.int64()),
    pa.large_list(pa.string()), pa.map_(pa.string(), pa.list_(pa.int8())),
    pa.struct([("a", pa.list_(pa.decimal128(3, 1))), ("b", pa.struct([("c", pa.string())]))]),
]  # fmt: skip


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_type_is_named_as_it_is_printed(kind: pa.DataType) -> None:
    assert type_named(str(kind)).equals(kind)


@pytest.mark.parametrize("text", ["int65", "", "list<>", "map<int8>", "struct<a>", "decimal128(x)"])
def test_a_text_that_is_no_type_is_refused(text: str) -> None:
    with pytest.raises(BadType):
        type_named(text)


def test_a_schema_is_written_and_read_back_the_same(tmp_path: Path) -> None:
    schema = pa.schema([pa.field(f"c{at}", it, at % 2 == 0) for at, it in enumerate(TYPES)])
    file = tmp_path / "columns.json"
    file.write_text(json.dumps(columns_of(schema)))
    assert schema_of(file).equals(schema)
    file.write_text('{"k": "int64"}')
    assert schema_of(file).equals(pa.schema([("k", pa.int64())]))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.json", [{"name": "k", "type": "int65"}], "column 'k': 'int65' is no Arrow type"),
        ("a.json", [{"name": "k", "typ": "int64"}], r"column 'k' has \['typ'\]"),
        ("a.json", [{"name": "k"}], "name and type are texts"),
        ("a.json", 5, "columns are a list such as"),
        ("a.txt", 5, r"its name must end in one of \.json, "),
        ("a.parquet", 5, "cannot take columns from"),
    ],
)
def test_a_file_that_describes_no_schema_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: Any, said: str
) -> None:
    file = tmp_path / name
    file.write_text(json.dumps(content))
    with pytest.raises(SystemExit):
        schema_of(file)
    shown = capsys.readouterr().err
    assert str(file) in shown
    assert re.search(said, shown), shown


def test_a_column_without_a_value_has_no_type(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"k": 1, "n": null}\n')
    with pytest.raises(SystemExit):
        schema_like(file)
    assert "column 'n' has no value that tells its type" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        schema_like(tmp_path / "none.csv")
    assert "none.csv: No such file or directory" in capsys.readouterr().err
