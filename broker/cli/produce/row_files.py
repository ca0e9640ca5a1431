"""Reads typed rows from JSON lines, CSV, Parquet and Arrow, as the columns of a collection.

Each piece of rows comes with the place behind it: in lines of JSON, or in rows, where the header of
a CSV file does not count. The blocking readers of pyarrow run on a thread.
"""

import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final

import anyio.to_thread

from broker.cli.produce.input_file import BadInput, InputFile, Place
from broker.cli.produce.lines import Lines, line_chunks
from broker.client.append.row_input import BadArrow, arrow, rows_of_lines

ROWS_MAX: Final = 16_384
CSV_BLOCK_BYTES: Final = 1 << 20
_ROW_NUMBER: Final = re.compile(r"Row #(\d+): ")


class RowFormat(StrEnum):
    """How the rows of a file are written."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows, a `pyarrow.Table` or RecordBatch, and the place behind them."""

    table: Any
    end: Place


def read_rows(
    source: InputFile, kind: RowFormat, schema: Any, skip: int = 0
) -> AsyncIterator[Rows]:
    """The rows behind the first `skip` lines or rows. Raises BadInput, which says where."""
    if kind is RowFormat.JSONL:
        return _json_rows(source, schema, skip)
    return _arrow_rows(source, kind, schema, skip)


# ---- JSON -----------------------------------------------------------------------------------


async def _json_rows(source: InputFile, schema: Any, skip: int) -> AsyncIterator[Rows]:
    async for chunk in line_chunks(source, skip):
        for first in range(0, len(chunk.lines), ROWS_MAX):
            part = chunk.part(first, min(first + ROWS_MAX, len(chunk.lines)))
            if lines := part.kept():
                make = partial(_rows_of_lines, part, lines, schema)
                yield Rows(await anyio.to_thread.run_sync(make), part.end)


def _rows_of_lines(part: Lines, lines: list[bytes], schema: Any) -> Any:
    try:
        return rows_of_lines(lines, schema)
    except BadArrow:
        for number, line in enumerate(part.lines, part.first):
            if line.removesuffix(b"\r"):
                try:
                    rows_of_lines([line], schema)
                except BadArrow as error:
                    raise BadInput(f"{part.end.file}, line {number:,}: {error}") from None
        raise


# ---- CSV, Parquet, Arrow --------------------------------------------------------------------


async def _arrow_rows(
    source: InputFile, kind: RowFormat, schema: Any, skip: int
) -> AsyncIterator[Rows]:
    pa = arrow()
    batches = _READERS[kind](source, schema)
    done = 0
    while True:
        try:
            batch = await anyio.to_thread.run_sync(next, batches, None, abandon_on_cancel=True)
            if batch is None or source.left:
                return
            left_out = min(batch.num_rows, max(0, skip - done))
            done += left_out
            for piece in _pieces(_fitting(source, batch.slice(left_out), schema)):
                _check_nulls(source, piece, done)
                done += piece.num_rows
                yield Rows(piece, Place(source.name, "row", done))
        except (pa.ArrowException, OSError, ValueError) as error:
            # A reader that was told to stop complains about an end in the middle.
            if source.left:
                return
            raise BadInput(f"{source.name}{_near(error, kind, done)}") from None


def _pieces(table: Any) -> Iterator[Any]:
    for start in range(0, table.num_rows, ROWS_MAX):
        yield table.slice(start, ROWS_MAX)


def _csv(source: InputFile, schema: Any) -> Iterator[Any]:
    from pyarrow import csv

    types = {field.name: field.type for field in schema}
    with suppress(StopIteration):
        reader = csv.open_csv(
            arrow().PythonFile(source, mode="r"),
            # One thread: with several, an error does not say in which row it is.
            read_options=csv.ReadOptions(use_threads=False, block_size=CSV_BLOCK_BYTES),
            convert_options=csv.ConvertOptions(column_types=types),
        )
        while True:
            yield reader.read_next_batch()


def _parquet(source: InputFile, _: Any) -> Iterator[Any]:
    from pyarrow import parquet

    if not source.seekable():
        raise BadInput(
            f"{source.name}: Parquet is read from its end, so it needs a file, not a pipe;"
            " use --format arrow for a stream"
        )
    yield from parquet.ParquetFile(arrow().PythonFile(source, mode="r")).iter_batches(ROWS_MAX)


def _ipc(source: InputFile, _: Any) -> Iterator[Any]:
    pa = arrow()
    # An Arrow file is a stream behind its magic bytes; read so it needs no seek, and may be a pipe.
    source.begins_with(b"ARROW1\0\0")
    source.waits_for_all = True
    yield from pa.ipc.open_stream(pa.PythonFile(source, mode="r"))


_READERS: dict[RowFormat, Callable[[InputFile, Any], Iterator[Any]]] = {
    RowFormat.CSV: _csv,
    RowFormat.PARQUET: _parquet,
    RowFormat.ARROW: _ipc,
}


def _fitting(source: InputFile, batch: Any, schema: Any) -> Any:
    """The batch as a table of the collection's columns, by name; those it lacks are null."""
    pa = arrow()
    names = batch.schema.names
    extra = [name for name in names if name not in schema.names]
    if extra or len(set(names)) < len(names):
        raise BadInput(
            f"{source.name} has columns {extra or names} that the collection has not, or twice;"
            f" its columns are {schema.names}"
        )
    columns = []
    for field in schema:
        if field.name not in names:
            if not field.nullable:
                raise BadInput(f"{source.name} has no column {field.name!r}, which may not be null")
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        column = batch.column(field.name)
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except pa.ArrowException as error:
            raise BadInput(
                f"{source.name}: column {field.name!r} is {column.type}, and not every value fits"
                f" {field.type}: {str(error).splitlines()[0]}"
            ) from None
    return pa.table(columns, schema=schema)


def _check_nulls(source: InputFile, rows: Any, done: int) -> None:
    for field in rows.schema:
        column = rows.column(field.name)
        if not field.nullable and column.null_count:
            at = column.is_null().to_pylist().index(True)
            raise BadInput(
                f"{source.name}, row {done + at + 1:,}: column {field.name!r} may not be null"
            )


def _near(error: Exception, kind: RowFormat, done: int) -> str:
    reason = str(error).splitlines()[0]
    found = _ROW_NUMBER.search(reason)
    if kind is RowFormat.CSV and found:
        # Arrow counts the header as row 1: it is a number of lines where no value has line ends.
        return f", line {int(found[1]):,}: {_ROW_NUMBER.sub('', reason)}"
    return f", behind row {done:,}: {reason}" if done else f": {reason}"
