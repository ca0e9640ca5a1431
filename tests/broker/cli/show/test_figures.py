"""Numbers in few characters: never wider than their column, never of another magnitude."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.cli.show.figures import (
    COUNT_WIDTH,
    SIZE_WIDTH,
    SPAN_WIDTH,
    count_text,
    size_text,
    span_text,
    sparkline,
)

UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
BYTES = {name: 1024.0**n for n, name in enumerate(("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"))}
SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "y": 365 * 86_400.0}

COUNTS = st.one_of(st.integers(0, 1 << 64), st.floats(0, 1e19))
SIZES = st.one_of(st.integers(0, 1 << 63), st.floats(0, float(1 << 63)))
SPANS = st.floats(0, 900 * 365 * 86_400.0)


def read_count(text: str) -> float:
    if text.startswith("<"):
        return float(text[1:]) / 2
    unit = text[-1] if text[-1] in UNITS else ""
    return float(text.removesuffix(unit)) * UNITS[unit]


def read_unit(text: str, units: dict[str, float]) -> float:
    number, unit = text.split(" ")
    return float(number) * units[unit]


@given(COUNTS)
@example(999.5)
@example(9.95)
@example(999_499)
@example(999_500)
@example(0.004999)
def test_a_count_fits_its_column_and_keeps_its_magnitude(value: float) -> None:
    text = count_text(value)
    assert len(text) <= COUNT_WIDTH
    if value < 0.005:
        assert text == ("<0.01" if value else "0")
    else:
        tolerance = 0.005 if value < 0.995 else (0.05 if value < 10 else 0.0)
        assert math.isclose(read_count(text), value, rel_tol=0.05, abs_tol=tolerance * 1.001)
    if isinstance(value, int) and value < 1000:
        assert text == str(value)
    if value >= 1000:
        assert math.isclose(read_count(text), value, rel_tol=0.0051)


@given(SIZES)
def test_a_size_fits_its_column_and_keeps_its_magnitude(value: float) -> None:
    text = size_text(value)
    assert len(text) <= SIZE_WIDTH
    read = read_unit(text, BYTES)
    assert math.isclose(read, value, rel_tol=0.0052, abs_tol=1.0 if value < 1000 else 0.0)
    assert (read > 0) == (value > 0)


@given(SPANS)
def test_a_span_fits_its_column_and_keeps_its_magnitude(value: float) -> None:
    text = span_text(value)
    assert len(text) <= SPAN_WIDTH
    assert math.isclose(read_unit(text, SECONDS), value, rel_tol=0.0511, abs_tol=0.0501)


@given(COUNTS, COUNTS)
def test_a_larger_count_never_reads_as_less(one: float, other: float) -> None:
    less, more = sorted((float(one), float(other)))
    assert read_count(count_text(less)) <= read_count(count_text(more))


@given(SIZES, SIZES)
def test_a_larger_size_never_reads_as_less(one: float, other: float) -> None:
    less, more = sorted((one, other))
    assert read_unit(size_text(less), BYTES) <= read_unit(size_text(more), BYTES)


@given(SPANS, SPANS)
def test_a_longer_span_never_reads_as_less(one: float, other: float) -> None:
    less, more = sorted((one, other))
    assert read_unit(span_text(less), SECONDS) <= read_unit(span_text(more), SECONDS)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (-3, "0"), (973, "973"), (1000, "1.00k"), (12_345, "12.3k"), (4_096_000, "4.10M"),
     (999_999, "1.00M"), (0.25, "0.25"), (3.0, "3.0"), (96.2, "96"), (5e21, ">999E")],
)  # fmt: skip
def test_counts_as_people_see_them(value: float, text: str) -> None:
    assert count_text(value) == text


def test_sizes_and_spans_as_people_see_them() -> None:
    assert [size_text(it) for it in (0, 973, 1000, 1_288_490_189, 7 << 50)] == [
        "0 B", "973 B", "0.98 KiB", "1.20 GiB", "7.00 PiB",
    ]  # fmt: skip
    assert size_text(1 << 80) == ">999 EiB"
    assert [span_text(it) for it in (0, 0.24, 42, 100, 7200, 200_000, 1e8, 1e12)] == [
        "0.0 s", "0.2 s", "42 s", "1.7 min", "2.0 h", "2.3 d", "3.2 y", ">999 y",
    ]  # fmt: skip


@given(st.lists(st.one_of(st.none(), st.floats(0, 1e9)), max_size=30))
def test_a_trend_has_a_character_for_each_value_and_tells_nothing_from_unknown(
    values: list[float | None],
) -> None:
    line = sparkline(values)
    assert len(line) == len(values)
    for value, shown in zip(values, line, strict=True):
        assert (shown == " ") == (value is None)
        assert (shown == "▁") == (value == 0)
    known = [(value, shown) for value, shown in zip(values, line, strict=True) if value is not None]
    assert [it for _, it in sorted(known)] == sorted(shown for _, shown in known)
