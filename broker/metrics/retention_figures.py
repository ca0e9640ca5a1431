"""Metrics of retention: who holds it back, who was passed, and what was removed without asking.

Holders have a label of their own, so only so many are shown: a cursor is named by a client.
"""

from collections.abc import Iterator
from heapq import nlargest
from typing import Final

from broker.metrics.table import Metric, Sample
from broker.metrics.view import View

SERIES_MAX: Final = 100
HOLDER: Final = ("channel", "kind", "holder")


def _held(view: View) -> Iterator[Sample]:
    if view.sources.coordinator is None:
        return
    seen = view.sources.coordinator.held.seen
    holders = [(name, it) for name, of in seen.items() for it in of.holders]
    for name, it in nlargest(SERIES_MAX, holders, key=lambda each: each[1].bytes):
        yield (name, it.kind, it.name), it.bytes


def _passed(view: View) -> Iterator[Sample]:
    if view.sources.coordinator is None:
        return
    seen = view.sources.coordinator.held.seen
    passed = [(name, it) for name, of in seen.items() for it in of.passed]
    for name, it in nlargest(SERIES_MAX, passed, key=lambda each: each[1].passed_ms):
        yield (name, it.kind, it.name, it.cause), it.passed_ms / 1000


def _unasked(view: View) -> Iterator[Sample]:
    for _, extra in view.extras("truncation"):
        yield (), float(extra["unasked_bytes"])


RETENTION_METRICS: Final = (
    Metric(
        "retention_held_bytes", "gauge",
        "Bytes that retention would have removed without this holder; the 100 largest.",
        HOLDER, _held,
    ),
    Metric(
        "retention_passed_timestamp_seconds", "gauge",
        "When retention removed what this holder still needed, in Unix seconds; gone once it has"
        " moved on, was reset or dropped. The newest 100. `cause`: the limit, `bytes` or `time`;"
        " or `unasked`.",
        (*HOLDER, "cause"), _passed,
    ),
    Metric(
        "retention_unasked_bytes_total", "counter",
        "Bytes removed without knowing who holds them, since the coordinator did not answer and"
        " the log had reached its bound.",
        (), _unasked,
    ),
)  # fmt: skip
