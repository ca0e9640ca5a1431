"""The flights as rows of the collection, cut into the batches that proxies append."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import compute, csv

from runs.quickstart import FLIGHTS, shipped_file

YEAR = 2013
FILE_COLUMNS = {
    "month": pa.int8(),
    "carrier": pa.string(),
    "flight": pa.int32(),
    "origin": pa.string(),
    "dest": pa.string(),
    "air_time": pa.float32(),
    "distance": pa.float32(),
    "arr_delay": pa.int32(),
}
PROFILE = pa.list_(pa.float32(), 2)
"""A vector: distance and time in the air."""
SCHEMA = pa.schema(
    [
        ("number", pa.int32()),
        ("month", pa.int8()),
        ("carrier", pa.string()),
        ("flight", pa.int32()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("arr_delay", pa.int32()),
        ("profile", PROFILE),
        ("id", pa.int64()),
        ("at", pa.int64()),
    ]
)
"""`number`: of the row in the file. `id` and `at`, a timestamp, come from the master."""
SPEED = pa.field("speed_mph", pa.float32())
"""A column that is added meanwhile."""


@dataclass(frozen=True, slots=True)
class Work:
    """Some flights of one month."""

    month: int
    rows: pa.Table


def flights_of_file(wanted: int | None = None) -> pa.Table:
    """The columns of the file, with `number`; `wanted`: of about so many rows, from all months."""
    convert = csv.ConvertOptions(
        column_types=FILE_COLUMNS,
        include_columns=list(FILE_COLUMNS),
        null_values=["", "NA"],
        strings_can_be_null=True,
    )
    with shipped_file(FLIGHTS) as file:
        found = csv.read_csv(file, convert_options=convert)
    step = max(1, found.num_rows // (wanted or found.num_rows))
    return numbered(found.take(list(range(0, found.num_rows, step))))


def numbered(found: pa.Table) -> pa.Table:
    """With the number of each row, and in the order of the months."""
    numbers = pa.array(range(found.num_rows), pa.int32())
    return found.append_column("number", numbers).sort_by(
        [("month", "ascending"), ("number", "ascending")]
    )


def works(flights: pa.Table, batch: int) -> Iterator[Work]:
    """Batches of at most so many flights, of one month each, in the order of the months."""
    for month in compute.unique(flights["month"]).to_pylist():
        of_month = flights.filter(compute.equal(flights["month"], month))
        for at in range(0, of_month.num_rows, batch):
            yield Work(month, of_month.slice(at, batch).combine_chunks())


def as_rows(flights: pa.Table, first_id: int, first_at: int, *, speed: bool) -> pa.Table:
    """Rows of the collection, with ids and timestamps from these on; `speed`: with that column."""
    count = flights.num_rows
    far, long = flights["distance"], flights["air_time"]
    profile = [
        each for pair in zip(far.to_pylist(), long.to_pylist(), strict=True) for each in pair
    ]
    made: Mapping[str, Any] = {
        "profile": pa.FixedSizeListArray.from_arrays(
            pa.array([each or 0.0 for each in profile], pa.float32()), 2
        ),
        "id": pa.array(range(first_id, first_id + count), pa.int64()),
        "at": pa.array(range(first_at, first_at + count), pa.int64()),
    }
    columns = [made[it] if it in made else flights[it] for it in SCHEMA.names]
    schema = SCHEMA
    if speed:
        per_minute = compute.divide(far, long)
        columns.append(compute.multiply(per_minute, pa.scalar(60.0, pa.float32())))
        schema = SCHEMA.append(SPEED)
    return pa.table(columns, schema=schema)


def partition_of(month: int) -> str:
    """The name of the partition of a month."""
    return f"{YEAR}_{month:02d}"
