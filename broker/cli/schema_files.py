"""Schemas for `tidemark collection create`: of a file that describes columns, or like a data file.

The JSON form, which `tidemark collection list --json` prints as `schema`, is a list of columns:

    [{"name": "k", "type": "int64", "nullable": false}, {"name": "at", "type": "timestamp[ms]"}]

or, for columns that may all be null, `{"k": "int64", "at": "timestamp[ms]"}`. Types are written as
pyarrow prints them: `decimal128(10, 2)`, `list<string>`, `struct<a: int64>`, `map<string, int64>`.
"""

import json
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from broker.cli.session import USAGE, fail
from broker.client.append.row_input import BadArrow, arrow

SAMPLE_BYTES: Final = 8 * 1024 * 1024
"""Of JSON lines: enough to see the types."""
_JSON: Final = (".json",)
_LINES: Final = (".jsonl", ".ndjson")
_PARQUET: Final = (".parquet", ".pq")
_ARROW: Final = (".arrow", ".arrows", ".ipc", ".feather")
_CSV: Final = (".csv",)
_WITH_NUMBERS: Final = re.compile(r"(decimal128|decimal256|fixed_size_binary)[(\[]([0-9, -]+)[)\]]")
_ZONED: Final = re.compile(r"timestamp\[(s|ms|us|ns), tz=([^\]]+)\]")
_NESTED: Final = re.compile(r"(list|large_list|struct|map)<(.*)>", re.DOTALL)


class BadType(ValueError):
    """A text that is no Arrow type."""


def schema_of(file: Path) -> Any:
    """The schema that the file describes; ends the program when it describes none."""
    return _read(file, {_JSON: _described, _PARQUET: _of_parquet, _ARROW: _of_arrow})


def schema_like(file: Path) -> Any:
    """The schema of the data in the file; ends the program when it cannot be told."""
    kinds = {_LINES: _of_lines, _CSV: _of_csv, _PARQUET: _of_parquet, _ARROW: _of_arrow}
    schema = _read(file, kinds)
    for field in schema:
        if arrow().types.is_null(field.type):
            fail(
                f"{file}: column {field.name!r} has no value that tells its type; describe the"
                " columns with --schema",
                USAGE,
            )
    return schema


def columns_of(schema: Any) -> list[dict[str, Any]]:
    """The schema in the JSON form."""
    return [
        {"name": field.name, "type": str(field.type), "nullable": field.nullable}
        for field in schema
    ]


def _read(file: Path, kinds: dict[tuple[str, ...], Any]) -> Any:
    try:
        pa = arrow()
    except BadArrow as error:
        fail(str(error), USAGE)
    for endings, read in kinds.items():
        if file.suffix.lower() in endings:
            try:
                file.open("rb").close()
                return _plain(read(file))
            except OSError as error:
                fail(f"cannot read {file}: {error.strerror or error}", USAGE)
            except (pa.ArrowException, ValueError) as error:
                fail(f"cannot take columns from {file}: {str(error).splitlines()[0]}", USAGE)
    known = ", ".join(ending for endings in kinds for ending in endings)
    return fail(f"cannot take columns from {file}: its name must end in one of {known}", USAGE)


def _plain(schema: Any) -> Any:
    """Dictionaries become their values: a collection has none."""
    pa = arrow()
    return pa.schema(
        [
            field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
            for field in schema
        ]
    )


# ---- files ----------------------------------------------------------------------------------


def _of_parquet(file: Path) -> Any:
    return import_module("pyarrow.parquet").read_schema(file)


def _of_arrow(file: Path) -> Any:
    pa = arrow()
    with pa.OSFile(str(file)) as opened:
        try:
            return pa.ipc.open_file(opened).schema
        except pa.ArrowInvalid:
            opened.seek(0)
            return pa.ipc.open_stream(opened).schema


def _of_csv(file: Path) -> Any:
    return import_module("pyarrow.csv").open_csv(file).schema


def _of_lines(file: Path) -> Any:
    with file.open("rb") as opened:
        sample = opened.read(SAMPLE_BYTES)
        # The last line of a sample may be cut off; that of a whole file may lack its end.
        whole = sample if not opened.read(1) else sample[: sample.rfind(b"\n") + 1]
    read = import_module("pyarrow.json").read_json
    return read(arrow().BufferReader(whole)).schema


def _described(file: Path) -> Any:
    found = json.loads(file.read_text())
    if isinstance(found, dict):
        found = [{"name": name, "type": kind} for name, kind in found.items()]
    if not isinstance(found, list) or not all(isinstance(it, dict) for it in found):
        raise BadType('columns are a list such as [{"name": "k", "type": "int64"}]')
    return arrow().schema([_field(it) for it in found])


def _field(column: dict[str, Any]) -> Any:
    name, kind, nullable = column.get("name"), column.get("type"), column.get("nullable", True)
    if extra := sorted(column.keys() - {"name", "type", "nullable"}):
        raise BadType(f"column {name!r} has {extra}; a column has name, type and nullable")
    if not isinstance(name, str) or not isinstance(kind, str) or not isinstance(nullable, bool):
        raise BadType(f"column {name!r}: name and type are texts, nullable is true or false")
    try:
        return arrow().field(name, type_named(kind), nullable)
    except BadType as error:
        raise BadType(f"column {name!r}: {error}") from None


def type_named(text: str) -> Any:
    """The Arrow type that pyarrow prints so. Raises BadType."""
    pa, text = arrow(), text.strip()
    if found := _NESTED.fullmatch(text):
        return _nested(found[1], list(_split(found[2])), text)
    try:
        if found := _WITH_NUMBERS.fullmatch(text):
            make = pa.binary if found[1] == "fixed_size_binary" else getattr(pa, found[1])
            return make(*[int(it) for it in found[2].split(",")])
        if found := _ZONED.fullmatch(text):
            return pa.timestamp(found[1], found[2])
        return pa.type_for_alias(text.replace("[day]", ""))
    except (ValueError, TypeError):
        raise BadType(
            f"{text!r} is no Arrow type, such as int64, string or timestamp[ms]"
        ) from None


def _nested(kind: str, parts: list[str], text: str) -> Any:
    pa = arrow()
    if kind == "struct":
        named = [_named(part, text) for part in parts]
        return pa.struct([pa.field(name, type_named(inner)) for name, inner in named])
    inner = [type_named(part.removeprefix("item: ")) for part in parts]
    if len(inner) != (2 if kind == "map" else 1):
        raise BadType(f"{text!r} has {len(inner)} types inside")
    if kind == "map":
        return pa.map_(*inner)
    return pa.list_(*inner) if kind == "list" else pa.large_list(*inner)


def _named(part: str, text: str) -> tuple[str, str]:
    name, colon, kind = part.partition(":")
    if not colon:
        raise BadType(f"{text!r}: a field of a struct is written name: type")
    return name.strip(), kind


def _split(text: str) -> Iterator[str]:
    """The parts between commas that are in no bracket."""
    depth = start = 0
    for at, letter in enumerate(text):
        depth += (letter in "<([") - (letter in ">)]")
        if letter == "," and not depth:
            yield text[start:at].strip()
            start = at + 1
    yield text[start:].strip()
