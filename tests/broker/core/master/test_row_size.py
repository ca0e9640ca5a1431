"""The estimated size of one row."""

import pytest

from broker.core.master.row_size import row_bytes


@pytest.mark.parametrize(
    ("kind", "dimension", "expected"),
    [
        *[(1, 0, 1), (2, 0, 1), (3, 0, 2), (4, 0, 4), (10, 0, 4), (5, 0, 8), (11, 0, 8)],
        *[(20, 0, 125), (100, 128, 16), (101, 128, 512), (23, 0, 125)],
    ],
)
def test_a_field_counts_by_its_type(kind: int, dimension: int, expected: int) -> None:
    assert row_bytes([(kind, dimension)]) == expected


def test_a_row_is_the_sum_of_its_fields() -> None:
    assert row_bytes([(5, 0), (5, 0), (101, 4)]) == 32
    assert row_bytes([]) == 0
