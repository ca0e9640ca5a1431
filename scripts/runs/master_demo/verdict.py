"""Compares the flights of the file with what was read, and with what the segments count."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import compute
from rich.table import Table

from broker.model.master.segment_meta import SegmentMeta, SegmentMetaState
from runs.master_demo.flights import partition_of
from runs.master_demo.reader import Reader


@dataclass(frozen=True, slots=True)
class Facts:
    """What there is at the end. `partitions`: the id of each month's; `stored`: rows in files."""

    flights: pa.Table
    partitions: Mapping[int, int]
    segments: Sequence[SegmentMeta]
    reader: Reader
    stored: Mapping[int, int]
    rehearsal: int
    """The id of the partition that was dropped: its rows stay in the log, and count nowhere."""


@dataclass(frozen=True, slots=True)
class Month:
    """One line of the table: flights and minutes of delay."""

    month: int
    flights: int
    read: int
    in_segments: int
    in_files: int
    segments: int
    delay: int
    delay_read: int

    @property
    def good(self) -> bool:
        """Whether everything agrees."""
        counted = {self.flights, self.read, self.in_segments, self.in_files}
        return len(counted) == 1 and self.delay == self.delay_read


def read_rows(facts: Facts) -> pa.Table:
    """What was read, without the rows of the rehearsal."""
    rows = facts.reader.table()
    return rows.filter(compute.not_equal(rows["partition"], facts.rehearsal))


def months(facts: Facts) -> Iterator[Month]:
    """Each month, counted by its partition, not by what its rows say."""
    rows = read_rows(facts)
    for month, partition in sorted(facts.partitions.items()):
        given = facts.flights.filter(compute.equal(facts.flights["month"], month))
        found = rows.filter(compute.equal(rows["partition"], partition))
        segments = [it for it in facts.segments if it.partition_id == partition]
        yield Month(
            month,
            given.num_rows,
            found.num_rows,
            sum(it.rows for it in segments),
            sum(facts.stored.get(it.id, 0) for it in segments),
            len(segments),
            compute.sum(given["arr_delay"]).as_py() or 0,
            compute.sum(found["arr_delay"]).as_py() or 0,
        )


def problems(facts: Facts) -> Iterator[str]:
    """Each promise that was broken, in words."""
    rows, total = read_rows(facts), facts.flights.num_rows
    distinct = compute.count_distinct(rows["number"]).as_py()
    if distinct != total:
        yield f"{total - distinct:,} flights are missing"
    if rows.num_rows != distinct:
        yield f"{rows.num_rows - distinct:,} flights came twice"
    for name, what in (("at", "timestamps"), ("id", "ids")):
        twice = rows.num_rows - compute.count_distinct(rows[name]).as_py()
        if twice:
            yield f"{twice:,} {what} were given out twice"
    for month, partition in facts.partitions.items():
        of_month = rows.filter(compute.equal(rows["month"], month))
        wrong = compute.sum(compute.not_equal(of_month["partition"], partition)).as_py()
        if wrong:
            yield f"{wrong:,} flights of {partition_of(month)} are in another partition"
    if facts.reader.late:
        yield f"{facts.reader.late:,} flights came after a time tick that had passed them"
    yield from _segment_problems(facts, rows)


def _segment_problems(facts: Facts, rows: pa.Table) -> Iterator[str]:
    pairs = zip(rows["segment"].to_pylist(), rows["partition"].to_pylist(), strict=True)
    counted = Counter(pairs)
    known = {(it.id, it.partition_id): it.rows for it in facts.segments}
    for (segment, partition), count in sorted(counted.items()):
        said = known.get((segment, partition))
        if said != count:
            yield f"segment {segment} of partition {partition}: {count:,} rows, it counts {said}"
    open_ = [it.id for it in facts.segments if it.state is not SegmentMetaState.FLUSHED]
    if open_:
        yield f"{len(open_)} segments are not flushed"


def table_of(lines: Sequence[Month]) -> Table:
    """One line a month, and the sums."""
    table = Table(title="Flights from New York, 2013, by partition", show_footer=True)
    heads = ("in the file", "read", "in segments", "stored", "segments", "minutes late")
    sums = (
        sum(it.flights for it in lines), sum(it.read for it in lines),
        sum(it.in_segments for it in lines), sum(it.in_files for it in lines),
        sum(it.segments for it in lines), sum(it.delay_read for it in lines),
    )  # fmt: skip
    table.add_column("partition", "all", no_wrap=True)
    for head, total in zip(heads, sums, strict=True):
        table.add_column(head, f"{total:,}", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for it in lines:
        figures = (it.flights, it.read, it.in_segments, it.in_files, it.segments, it.delay_read)
        mark = "[green]equal[/green]" if it.good else "[red]differs[/red]"
        table.add_row(partition_of(it.month), *[f"{each:,}" for each in figures], mark)
    return table
