"""All metrics of a process: those of the broker, of cursors, and of the process itself.

Those of the process have Prometheus's own names, which dashboards and alerts of others know.
"""

from collections.abc import Callable, Iterable
from typing import Final

from broker.core.time import tso
from broker.metrics.audit_figures import AUDIT_METRICS
from broker.metrics.compaction_figures import COMPACTION_METRICS
from broker.metrics.group_figures import GROUP_METRICS
from broker.metrics.leader_figures import LEADER_METRICS
from broker.metrics.limit_figures import LIMIT_METRICS
from broker.metrics.process_figures import ProcessFigures
from broker.metrics.retention_figures import RETENTION_METRICS
from broker.metrics.table import BROKER_METRICS, Metric, Read, Sample
from broker.metrics.view import View
from broker.metrics.wal_figures import WAL_METRICS
from broker.model.ids import TimeTick


def _figure(read: Callable[[ProcessFigures], float | None]) -> Read:
    """One value; no sample where the system does not tell."""

    def samples(view: View) -> Iterable[Sample]:
        value = read(view.process)
        return () if value is None else (((), value),)

    return samples


def _cursor_lags(view: View) -> Iterable[Sample]:
    """How far each cursor is behind the tick that is closed on all pchannels."""
    coordinator = view.sources.coordinator
    closed = max((int(it.get("tick", 0)) for _, it in view.extras("tick_producer")), default=0)
    if coordinator is None or not closed:
        return
    for it in coordinator.cursors.seen:
        behind_ms = tso.physical_ms_of(TimeTick(closed)) - tso.physical_ms_of(it.tick)
        yield (it.cursor, it.collection), max(0.0, behind_ms / 1000)


def _certificate_end(view: View) -> Iterable[Sample]:
    ends_s = view.sources.certificate_ends_s()
    return () if ends_s is None else (((), ends_s),)


CURSOR_METRICS: Final = (
    Metric(
        "cursor_lag_seconds", "gauge",
        "How far a named cursor is behind the tick that is closed on all pchannels, for each"
        " collection that it reads; the 1,000 furthest behind, read every 5 s.",
        ("cursor", "collection"), _cursor_lags,
    ),
)  # fmt: skip

PROCESS_METRICS: Final = (
    Metric(
        "process_cpu_seconds_total", "counter", "Processor time of this process, in seconds.",
        (), _figure(lambda it: it.cpu_s), prefix="",
    ),
    Metric(
        "process_resident_memory_bytes", "gauge", "Memory of this process, in bytes.",
        (), _figure(lambda it: it.resident_bytes), prefix="",
    ),
    Metric(
        "process_open_fds", "gauge", "Open files and connections of this process.",
        (), _figure(lambda it: it.open_files), prefix="",
    ),
    Metric(
        "process_max_fds", "gauge",
        "How many this process may have open; none: the system has no limit.",
        (), _figure(lambda it: it.open_files_max), prefix="",
    ),
    Metric(
        "process_start_time_seconds", "gauge", "When this process started, in Unix seconds.",
        (), _figure(lambda it: it.started_s), prefix="",
    ),
    Metric(
        "tls_certificate_end_seconds", "gauge",
        "When the certificate of this process expires, in Unix seconds; none without TLS.",
        (), _certificate_end,
    ),
    Metric(
        "data_free_bytes", "gauge",
        "Bytes free on the file system of the data folder. At 0 appends are refused.",
        (), _figure(lambda it: it.disk_free_bytes),
    ),
    Metric(
        "data_capacity_bytes", "gauge", "Bytes of the file system of the data folder.",
        (), _figure(lambda it: it.disk_total_bytes),
    ),
)  # fmt: skip

METRICS: Final = (
    *BROKER_METRICS,
    *CURSOR_METRICS,
    *GROUP_METRICS,
    *RETENTION_METRICS,
    *COMPACTION_METRICS,
    *LIMIT_METRICS,
    *AUDIT_METRICS,
    *LEADER_METRICS,
    *WAL_METRICS,
    *PROCESS_METRICS,
)
