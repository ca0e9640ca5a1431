"""The table of metrics, from the table that the exposition serves."""

from broker.metrics.registry import METRICS
from pages.markdown import code, table


def metrics() -> str:
    """Every metric: name, kind, labels, meaning."""
    rows = [
        (code(it.full_name), it.kind, ", ".join(it.labels), it.help)
        for it in sorted(METRICS, key=lambda it: it.full_name)
    ]
    return table(("metric", "kind", "labels", "meaning"), rows)
