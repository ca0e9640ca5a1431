"""The arithmetic of the benchmark, and what it writes for programs and for a person."""

import io
import json

import pytest
from benchmark.figures import (
    RATE,
    Round,
    Series,
    above,
    as_json,
    find,
    percentile,
    quantiles,
    ratio,
)
from benchmark.report import WIDTH, tables
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

SHARES = st.floats(0.001, 1.0)


def series(
    name: str, *rates: float, kind: str = "append", unit: str = "msg/s", reference: str = ""
) -> Series:
    found = Series(name, kind, "before answer", unit, reference)
    found.rounds += [Round({RATE: it, "messages": 100}, 0.5, 7_000_000) for it in rates]
    return found


def latencies(name: str, reference: str = "", **values: float) -> Series:
    found = Series(name, "latency", "each", reference=reference)
    found.rounds.append(Round(values))
    return found


@given(st.lists(st.floats(0, 1e6), min_size=1), SHARES)
def test_a_percentile_is_a_value_that_so_many_are_not_above(
    values: list[float], share: float
) -> None:
    found = percentile(values, share)
    assert found in values
    assert sum(it <= found for it in values) >= share * len(values) - 1e-9
    smaller = [it for it in values if it < found]
    assert len(smaller) < share * len(values) + 1e-9


def test_percentiles_of_a_hundred_are_what_one_expects() -> None:
    values = [it / 1000 for it in range(100, 0, -1)]
    assert quantiles(values) == {"p50_ms": 50.0, "p99_ms": 99.0, "p999_ms": 100.0}
    for values, share in (([], 0.5), ([1.0], 0.0), ([1.0], 1.1)):
        with pytest.raises(ValueError, match="no percentile"):
            percentile(values, share)


def test_two_subjects_are_compared_within_each_round() -> None:
    mine, other = series("mine", 20, 90, 30), series("other", 10, 30, 30)
    assert ratio(mine, other) == 2.0
    assert ratio(mine, None) is None
    assert ratio(mine, series("nothing")) is None
    assert ratio(mine, series("fewer", 10)) == 2.0
    slow, disk = latencies("slow", p50_ms=3.0), latencies("disk", p50_ms=1.0)
    assert above(slow, disk, "p50_ms") == 2.0
    assert above(slow, disk, "p99_ms") is None


def test_what_a_server_used_is_told_for_each_message() -> None:
    it = series("mine", 10, 20)
    assert it.cpu_us() == pytest.approx(5000)
    assert it.peak_bytes() == 7_000_000
    bare = Series("bare", "append", "", rounds=[Round({RATE: 1.0})])
    assert (bare.cpu_us(), bare.peak_bytes(), bare.median("p50_ms")) == (None, None, None)


def some() -> list[Series]:
    return [
        series("bare write + sync, 64 a group", 1000, 3000),
        series("Redis XADD, always", 100, 200, reference="Redis XADD, always"),
        series("Tidemark append_batch, of 1,000", 500, 800, reference="Redis XADD, always"),
        series("Tidemark append_arrow", 1_234_567, kind="rows", unit="rows/s"),
        latencies("bare write + sync, 1 KiB", p50_ms=1.0, p99_ms=2.0, p999_ms=3.0),
        latencies(
            "Tidemark append, one by one", "bare write + sync, 1 KiB",
            p50_ms=1.5, p99_ms=12.0, p999_ms=1234.5, fresh_p50_ms=20.25, fresh_p99_ms=40.5,
        ),
        Series("never run", "read", ""),
    ]  # fmt: skip


def test_the_json_has_every_round_and_what_follows_from_them() -> None:
    made = json.loads(json.dumps(as_json(some(), {"rounds": 2})))
    assert made["rounds"] == 2
    by_name = {it["name"]: it for it in made["subjects"]}
    batch = by_name["Tidemark append_batch, of 1,000"]
    assert batch["medians"][RATE] == 650
    assert [it[RATE] for it in batch["rounds"]] == [500, 800]
    assert batch["rounds"][0]["server_peak_bytes"] == 7_000_000
    assert (batch["kind"], batch["unit"], batch["sync"]) == ("append", "msg/s", "before answer")
    assert by_name["Tidemark append, one by one"]["medians"]["p50_above_ms"] == 0.5
    assert by_name["never run"]["rounds"] == []
    assert find(some(), "nobody") is None


def test_the_tables_fit_into_a_hundred_columns_and_say_what_is_missing() -> None:
    out = io.StringIO()
    console = Console(file=out, width=WIDTH)
    disks = ("bare write + sync, 64 a group", "bare write + sync, 1,000 a group")
    for table in tables(some(), disks, {"NATS always": "nats-server is not installed"}):
        console.print(table)
    text = out.getvalue()
    assert max(map(len, text.splitlines())) <= WIDTH
    assert "…" not in text, "nothing is cut off"
    told = ("650", "1,234,567", "1234.50", "20.25", "40.50", "nats-server is not installed")
    for word in told:
        assert word in text, text
    assert "never run" not in text
