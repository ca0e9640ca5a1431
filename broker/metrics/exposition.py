"""The table of metrics with present values, in Prometheus's formats.

Values are read on the event loop, where they change, and encoded on a thread.
"""

from collections.abc import Iterable

from anyio import to_thread
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from broker.core.histogram import Histogram
from broker.metrics import table
from broker.metrics.registry import METRICS
from broker.metrics.view import ActorCounts, Sources, View


class Exposition:
    """The metrics of one process, as text."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._counts = ActorCounts()

    def families(self) -> list[Metric]:
        """Every metric with its present samples; metrics without samples are included."""
        view = View(self._sources, self._counts)
        return [_family(metric, view) for metric in METRICS]

    async def text(self, accept: str) -> tuple[bytes, str]:
        """The response body for an Accept header, and its content type."""
        encode, content_type = choose_encoder(accept)
        registry = CollectorRegistry()
        registry.register(_Collected(self.families()))
        return await to_thread.run_sync(encode, registry), content_type


class _Collected(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _family(metric: table.Metric, view: View) -> Metric:
    name = metric.full_name
    if metric.kind == "histogram":
        histograms = HistogramMetricFamily(name, metric.help, labels=metric.labels)
        for labels, value in metric.read(view):
            assert isinstance(value, Histogram)
            buckets = [(_bound(bound), count) for bound, count in value.buckets()]
            histograms.add_metric(labels, buckets, value.sum)
        return histograms
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(name, metric.help, labels=metric.labels)
    for labels, value in metric.read(view):
        assert not isinstance(value, Histogram)
        family.add_metric(labels, value)
    return family


def _bound(bound: float) -> str:
    return "+Inf" if bound == float("inf") else repr(bound)
