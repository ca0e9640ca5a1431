"""When a segment is sealed, and which ones go first when memory is short."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.segments.segment_sealing import (
    MIB,
    GrowingSegment,
    MemoryShares,
    SealReason,
    SegmentLimits,
    largest_first,
    memory_pressure,
    overdue,
)
from broker.model.effect import ALL_PARTITIONS, SegmentLevel
from broker.model.ids import (
    TICK_LOGICAL_BITS,
    CollectionId,
    PartitionId,
    SegmentId,
    TimeTick,
)

LIMITS = SegmentLimits()
MINUTE = 60_000
DAY = 24 * 60 * MINUTE


def tick(ms: int) -> TimeTick:
    return TimeTick(ms << TICK_LOGICAL_BITS)


def segment(**fields: object) -> GrowingSegment:
    values = {
        "id": SegmentId(1),
        "vchannel": "p_0_7v0",
        "collection_id": CollectionId(7),
        "partition_id": PartitionId(8),
        "level": SegmentLevel.ROWS,
        "bytes_max": 100 * MIB,
        "rows_max": 1000,
        "created_tick": tick(DAY),
        "modified_tick": tick(DAY),
    } | fields
    return GrowingSegment(**values)  # type: ignore[arg-type]


DELETES = {"level": SegmentLevel.DELETES, "partition_id": ALL_PARTITIONS}
BIG = {"size_bytes": 16 * MIB + 1}


@pytest.mark.parametrize(
    ("fields", "after_ms", "why"),
    [
        ({}, DAY - 1, None),
        ({}, DAY, SealReason.LIFETIME),
        ({"binlogs": 32}, 0, None),
        ({"binlogs": 33}, 0, SealReason.BINLOGS),
        (BIG, 10 * MINUTE - 1, None),
        (BIG, 10 * MINUTE, SealReason.IDLE),
        (BIG | {"modified_tick": tick(DAY + MINUTE)}, 10 * MINUTE, None),
        ({"size_bytes": 16 * MIB}, 10 * MINUTE, None),
        (DELETES, 10 * MINUTE - 1, None),
        (DELETES, 10 * MINUTE, SealReason.LIFETIME),
    ],
)
def test_a_segment_is_sealed_when_it_is_old_idle_or_in_many_pieces(
    fields: dict[str, object], after_ms: int, why: SealReason | None
) -> None:
    assert overdue(segment(**fields), tick(DAY + after_ms), LIMITS) is why


@given(st.floats(0, 1))
def test_a_drawn_limit_lies_between_the_smallest_and_a_whole_segment(chance: float) -> None:
    assert LIMITS.insert_bytes_max == int(1024 * MIB * 0.12)
    drawn = LIMITS.drawn_bytes_max(chance)
    assert LIMITS.drawn_bytes_max(1.0) <= drawn <= LIMITS.insert_bytes_max
    assert LIMITS.drawn_bytes_max(1.0) == pytest.approx(0.9 * LIMITS.insert_bytes_max, abs=1)


@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 100))
def test_what_fits_is_decided_by_rows_and_bytes(
    rows: int, size_bytes: int, more: int, more_bytes: int
) -> None:
    full = segment(rows=rows, size_bytes=size_bytes, rows_max=1000, bytes_max=500)
    assert full.takes(more, more_bytes) == (rows + more <= 1000 and size_bytes + more_bytes <= 500)


@pytest.mark.parametrize(
    ("growing", "process", "answer"),
    [
        (200, 600, None),
        (201, 0, (SealReason.GROWING_BYTES, 100)),
        (201, 601, (SealReason.GROWING_BYTES, 100)),
        (0, 601, (SealReason.NODE_MEMORY, 100)),
    ],
)
def test_a_node_seals_when_it_or_what_grows_takes_too_much(
    growing: int, process: int, answer: tuple[SealReason, int] | None
) -> None:
    assert memory_pressure(growing, process, 1000, MemoryShares()) == answer


@given(st.lists(st.integers(0, 50), max_size=12), st.integers(0, 300))
def test_the_largest_go_first_and_no_more_than_needed(sizes: list[int], allowed: int) -> None:
    numbered = [(size, SegmentId(number)) for number, size in enumerate(sizes)]
    chosen = largest_first(numbered, allowed)
    left = [size for size, number in numbered if number not in chosen]
    assert sum(left) < allowed or not left
    gone = [size for size, number in numbered if number in chosen]
    if gone:
        assert min(gone) >= max(left, default=0)
        assert sum(left) + min(gone) >= allowed
