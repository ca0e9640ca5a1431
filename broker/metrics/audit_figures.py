"""Metrics of the audit: lines written, lines lost, and whether its file can be written."""

from typing import Final

from broker.metrics.table import Metric

AUDIT_METRICS: Final = (
    Metric(
        "audit_lines_total", "counter", "Lines written to the audit of this process.",
        (), lambda view: (((), view.sources.audit().written),),
    ),
    Metric(
        "audit_dropped_total", "counter",
        "Lines that the audit lost because its disk did not keep up, or could not be written.",
        (), lambda view: (((), view.sources.audit().dropped),),
    ),
    Metric(
        "audit_failing", "gauge", "1 while the file of the audit cannot be written, else 0.",
        (), lambda view: (((), 1 if view.sources.audit().failing else 0),),
    ),
)  # fmt: skip
