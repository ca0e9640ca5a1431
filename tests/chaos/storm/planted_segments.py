"""What is wrong with rows in segments, for the tests of checkers."""

from collections.abc import Callable
from dataclasses import replace

from tests.chaos.storm.history import OF_BROADCASTS, History, Listed, PlacedRow, SegmentSeen


def count_rows(history: History, vchannel: str) -> None:
    """Of this vchannel, in one segment of one partition; and one that took no row."""
    history.partitions = {1: "late", 2: "early"}
    history.operations[-1] = replace(history.operations[-1], partition="late")
    history.segments = [
        SegmentSeen(vchannel, 0, 77, 1, 4, flush=False),
        SegmentSeen(vchannel, 9, 77, 1, 0, flush=True),
        SegmentSeen(vchannel, 10, 78, 2, 4, flush=False),
    ]
    history.placed = [
        PlacedRow(vchannel, it.payload, it.id, 1, 77) for it in history.final[vchannel]
    ]
    history.listed = [Listed(vchannel, 77, 1, 4), Listed(vchannel, 78, 2, 0)]


def place_too_early(history: History) -> None:
    history.segments[0] = history.segments[0]._replace(id=2)


def place_too_late(history: History) -> None:
    history.segments[1] = history.segments[1]._replace(id=3)


def place_nowhere(history: History) -> None:
    history.placed[0] = history.placed[0]._replace(segment=5)


def place_in_another(history: History) -> None:
    history.segments[0] = history.segments[0]._replace(partition=2)


def name_another(history: History) -> None:
    history.operations[-1] = replace(history.operations[-1], partition="early")


def create_twice(history: History) -> None:
    history.segments.append(history.segments[0]._replace(id=20))


def flush_twice(history: History) -> None:
    history.segments.append(history.segments[1]._replace(id=20))


def flush_unborn(history: History) -> None:
    history.segments.append(SegmentSeen(history.segments[0].vchannel, 20, 79, 1, 0, flush=True))


def overfill(history: History) -> None:
    history.segments[0] = history.segments[0]._replace(rows_max=3)


def count_too_few(history: History) -> None:
    history.listed[0] = history.listed[0]._replace(rows=3)


def count_rollbacks(history: History) -> None:
    history.listed[0] = history.listed[0]._replace(rows=5)


def count_more_copies(history: History) -> None:
    history.partitions[1] = OF_BROADCASTS
    history.operations[-1] = replace(history.operations[-1], partition="")
    history.listed[0] = history.listed[0]._replace(rows=7)


def list_none(history: History) -> None:
    del history.listed[0]


PLANTED_SEGMENTS: list[tuple[Callable[[History], None], str]] = [
    (place_too_early, "row misplaced"),
    (place_too_late, "row misplaced"),
    (place_nowhere, "row misplaced"),
    (place_in_another, "row misplaced"),
    (name_another, "row misplaced"),
    (create_twice, "segment"),
    (flush_twice, "segment"),
    (flush_unborn, "segment"),
    (overfill, "segment"),
    (count_too_few, "rows counted"),
    (count_rollbacks, "rows counted"),
    (count_more_copies, "rows counted"),
    (list_none, "segment not listed"),
]
