"""Metrics of compaction by key: how much it gave back, and whether it goes on."""

from collections.abc import Iterator
from typing import Final

from broker.metrics.table import Metric, Sample
from broker.metrics.view import View


def _given_back(view: View) -> Iterator[Sample]:
    for _, extra in view.extras("compactor"):
        yield (), float(extra["given_back_bytes"])


def _passes(view: View) -> Iterator[Sample]:
    for _, extra in view.extras("compactor"):
        yield (), float(extra["passes"])


def _failures(view: View) -> Iterator[Sample]:
    for _, extra in view.extras("compactor"):
        yield (), float(extra["failures"])


COMPACTION_METRICS: Final = (
    Metric(
        "compaction_given_back_bytes_total", "counter",
        "Bytes of superseded messages and tombstones, given back to the disk since this process"
        " started.",
        (), _given_back,
    ),
    Metric(
        "compaction_passes_total", "counter",
        "Passes of compaction that have finished since this process started.",
        (), _passes,
    ),
    Metric(
        "compaction_failures_total", "counter",
        "Looks and passes of compaction that were given up; `tidemark actors` says why.",
        (), _failures,
    ),
)  # fmt: skip
