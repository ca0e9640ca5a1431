"""Metrics of coordinators of which one leads."""

from collections.abc import Iterable
from typing import Final

from broker.metrics.table import Metric, Sample
from broker.metrics.view import View


def _leads(view: View) -> Iterable[Sample]:
    leads = view.sources.leads
    return () if leads is None else (((), float(leads())),)


LEADER_METRICS: Final = (
    Metric(
        "coordinator_leads", "gauge",
        "1 in the coordinator that leads, 0 in one that stands by; their sum should be 1.",
        (), _leads,
    ),
)  # fmt: skip
