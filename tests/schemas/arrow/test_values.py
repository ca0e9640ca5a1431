"""Values made of buffers are those that the library makes, and pandas is not loaded for them."""

import subprocess
import sys

import pyarrow as pa
import pytest

from schemas.arrow.values import counted, number, text


@pytest.mark.parametrize("value", [0, -1, 2**63 - 1, -(2**63)])
def test_a_number_is_a_scalar_of_64_bits(value: int) -> None:
    assert number(value).equals(pa.scalar(value, pa.int64()))


@pytest.mark.parametrize("value", ["", "tide", "µ/ß"])
def test_a_text_is_a_scalar(value: str) -> None:
    assert text(value).equals(pa.scalar(value))


@pytest.mark.parametrize("count", [1, 2, 3, 1000, 1025])
def test_what_counts_up_begins_where_it_was_told(count: int) -> None:
    made = counted(7 << 40, count)
    made.validate(full=True)
    assert made.to_pylist() == list(range(7 << 40, (7 << 40) + count))


def test_pandas_is_not_loaded_for_them() -> None:
    program = (
        "import sys; from schemas.arrow.values import *; from schemas.arrow.columns import arrow;"
        "arrow().repeat(text('v'), 3); counted(1, 3); assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
