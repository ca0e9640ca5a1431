"""Writes the results as tables, none wider than 100 columns."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from benchmark.figures import RATE, Series, above, find, ratio

WIDTH = 100
TITLES = {
    "append": "Appends: durable messages a second, 1 KiB each",
    "read": "Reads: messages a second, 1 KiB each",
    "rows": "Arrow rows, 1,000 a batch, 100 B each: durable rows a second",
    "channels": "Many vchannels beside few: messages a second",
    "latency": "Milliseconds",
}


AGES = ("fresh_p50_ms", "fresh_p99_ms")
"""The age of the newest closed tick of the reader, meanwhile."""
BESIDE = {"Redis XADD, always": "Redis", "Redis XREAD, 1,000 a call": "Redis"}
"""The short name of a baseline, for a heading."""


def tables(
    field_of: Sequence[Series], disks: Sequence[str], missing: Mapping[str, str]
) -> list[Table]:
    """One table for each kind. `disks`: names of the disk loops that appends are compared with."""
    found = []
    for kind, title in TITLES.items():
        subjects = [it for it in field_of if it.kind == kind and it.rounds]
        if subjects and kind == "latency":
            found.append(_latencies(title, subjects, field_of))
        elif subjects:
            found.append(_rates(title, subjects, field_of, disks if kind == "append" else ()))
    if missing:
        found.append(_missing(missing))
    return found


def console(width: int = WIDTH) -> Console:
    """A console of the width that the tables are made for, on any terminal."""
    return Console(width=width)


def _rates(
    title: str, subjects: Sequence[Series], field_of: Sequence[Series], disks: Sequence[str]
) -> Table:
    beside = [it.reference for it in subjects if it.reference][:1]
    headings = [f"÷{it.rpartition(', ')[2].split()[0]}" for it in disks]
    headings += [f"÷{BESIDE.get(it, 'few')}" for it in beside]
    table = _table(title, "median", "min-max", *headings, "CPU µs", "peak MB")
    for it in subjects:
        low, high = min(it.values(RATE)), max(it.values(RATE))
        ratios = [ratio(it, find(field_of, disk)) for disk in disks]
        ratios += [ratio(it, find(field_of, it.reference)) for _ in beside]
        table.add_row(
            it.name,
            it.sync,
            f"{it.median(RATE):,.0f}",
            f"{low / 1000:,.0f}-{high / 1000:,.0f}k",
            *[_text(each, ".2f") for each in ratios],
            _text(it.cpu_us(), ".1f"),
            _text(_megabytes(it), ".0f"),
        )
    return table


def _latencies(title: str, subjects: Sequence[Series], field_of: Sequence[Series]) -> Table:
    headings = ("p50", "p99", "p99.9", "p50 > disk", "p99 > disk", "CPU µs")
    table = _table(title, *headings)
    for it in subjects:
        disk = find(field_of, it.reference)
        table.add_row(
            it.name,
            it.sync,
            _text(it.median("p50_ms"), ".2f"),
            _text(it.median("p99_ms"), ".2f"),
            _text(it.median("p999_ms"), ".2f"),
            _text(above(it, disk, "p50_ms"), ".2f"),
            _text(above(it, disk, "p99_ms"), ".2f"),
            _text(it.cpu_us(), ".1f"),
        )
        age = [_text(it.median(key), ".2f") for key in AGES]
        if any(age):
            table.add_row("- age of the closed tick", "", *age)
    return table


def _missing(missing: Mapping[str, str]) -> Table:
    table = Table(title="Not measured", title_justify="left", width=WIDTH)
    table.add_column("")
    table.add_column("why")
    for name, why in missing.items():
        table.add_row(name, why)
    return table


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left", padding=(0, 0), pad_edge=False)
    table.add_column("", overflow="fold", min_width=24)
    table.add_column("synced", overflow="fold")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _megabytes(it: Series) -> float | None:
    peak_bytes = it.peak_bytes()
    return None if peak_bytes is None else peak_bytes / 1e6


def _text(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
