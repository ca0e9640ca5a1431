"""The demonstration of the master, small: on flights that are made up, with every kill."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from runs.demo_master import demonstrate
from runs.master_demo.flights import FILE_COLUMNS, as_rows, numbered, partition_of, works
from runs.master_demo.reader import KEPT, Reader
from runs.master_demo.verdict import Facts, months, problems

from broker.model.ids import CollectionId, PartitionId, SegmentId, TimeTick
from broker.model.master.segment_meta import SegmentMeta, SegmentMetaState, SegmentOrigin

MONTHS = (1, 2, 3)
REHEARSAL = 99


def made_up(count: int) -> pa.Table:
    """Flights in turn of three months; every seventh was cancelled."""
    every = range(count)
    columns = {
        "month": [MONTHS[it % 3] for it in every],
        "carrier": ["UA" if it % 2 else "DL" for it in every],
        "flight": [it % 100 for it in every],
        "origin": ["EWR"] * count,
        "dest": ["IAH"] * count,
        "air_time": [None if it % 7 == 0 else 227.0 for it in every],
        "distance": [1400.0] * count,
        "arr_delay": [None if it % 7 == 0 else it % 50 - 10 for it in every],
    }
    return numbered(pa.table(columns, schema=pa.schema(list(FILE_COLUMNS.items()))))


def test_every_flight_is_in_its_partition_and_segment_whatever_dies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demonstrate(tmp_path, made_up(6_000), rate=1_500) == 0
    told = capsys.readouterr().out
    assert told.count("kill -9") == 3
    assert "column speed_mph added" in told
    assert "partition rehearsal dropped" in told
    assert "Checked: 6,000 flights" in told


def test_batches_are_of_one_month_and_the_months_come_in_order() -> None:
    found = list(works(made_up(100), 20))
    assert [(it.month, it.rows.num_rows) for it in found] == [
        (1, 20), (1, 14), (2, 20), (2, 13), (3, 20), (3, 13),
    ]  # fmt: skip
    numbers = [number for it in found for number in it.rows["number"].to_pylist()]
    assert sorted(numbers) == list(range(100))


def segment(number: int, rows: int) -> SegmentMeta:
    """A flushed segment of the month with this number."""
    return SegmentMeta(
        id=SegmentId(number * 10),
        collection_id=CollectionId(100),
        partition_id=PartitionId(number),
        partition_tag=partition_of(number),
        channel_start=0,
        channel_end=0,
        open_tick=TimeTick(1),
        close_tick=TimeTick(2),
        rows=rows,
        size_bytes=1,
        modified_tick=TimeTick(2),
        state=SegmentMetaState.FLUSHED,
        origin=SegmentOrigin.LOG,
    )


def facts() -> Facts:
    """30 flights, each where it belongs: the id of a partition is the month."""
    flights = made_up(30)
    rows = as_rows(flights, 1, 1, speed=False).select(KEPT)
    month = rows["month"].cast(pa.int64())
    segments = pa.array([it * 10 for it in month.to_pylist()], pa.int64())
    read = rows.append_column("partition", month).append_column("segment", segments)
    return Facts(
        flights,
        {it: it for it in MONTHS},
        [segment(it, 10) for it in MONTHS],
        Reader([read]),
        {it * 10: 10 for it in MONTHS},
        REHEARSAL,
    )


def test_what_is_where_it_belongs_is_not_told() -> None:
    good = facts()
    assert list(problems(good)) == []
    assert all(it.good for it in months(good))


def moved(read: pa.Table, name: str) -> pa.Table:
    """The rows with another value in the first one."""
    values = read[name].to_pylist()
    column = pa.array([values[0] + 1, *values[1:]], read.schema.field(name).type)
    return read.set_column(read.schema.get_field_index(name), name, column)


def test_each_broken_promise_is_told() -> None:
    good = facts()
    (read,) = good.reader.parts
    for broken, words in (
        ([read.slice(1)], "1 flights are missing"),
        ([read, read.slice(0, 1)], "1 flights came twice"),
        ([moved(read, "at")], "1 timestamps were given out twice"),
        ([moved(read, "id")], "1 ids were given out twice"),
        ([moved(read, "partition")], "1 flights of 2013_01 are in another partition"),
        ([moved(read, "segment")], "segment 11 of partition 1: 1 rows, it counts None"),
    ):
        found = list(problems(replace(good, reader=Reader(broken))))
        assert [it for it in found if words in it], (words, found)
    late = replace(good, reader=Reader([read], late=3))
    assert list(problems(late)) == ["3 flights came after a time tick that had passed them"]
    lost = replace(good, stored={10: 9, 20: 10, 30: 10})
    assert [it.good for it in months(lost)] == [False, True, True]
    grown = [replace(it, state=SegmentMetaState.GROWING) for it in good.segments[:1]]
    growing = replace(good, segments=[*grown, *good.segments[1:]])
    assert list(problems(growing)) == ["1 segments are not flushed"]
