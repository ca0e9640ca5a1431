"""Metrics of what holds appends and reads back: watermarks, and limits of collections."""

from collections.abc import Callable
from typing import Final

from broker.core.pressure.storage_use import StorageUse
from broker.metrics.table import Metric, Read

COLLECTIONS_MAX: Final = 100
"""With series of their own: the fullest."""


def _of_watch(key: str) -> Read:
    return lambda view: (((), float(extra[key])) for _, extra in view.extras("disk_watch"))


def _of_storage(figure: Callable[[StorageUse], int]) -> Read:
    return lambda view: (
        ((it.collection,), figure(it)) for it in view.sources.storage.now.uses[:COLLECTIONS_MAX]
    )


LIMIT_METRICS: Final = (
    Metric(
        "disk_watermark", "gauge",
        "Level of the disk: 0 normal, 1 warn, 2 appends are slowed, 3 appends are refused.",
        (), _of_watch("disk"),
    ),
    Metric(
        "memory_watermark", "gauge",
        "Level of the memory of the process: 0 normal, 1 warn, 2 appends are slowed, 3 appends are"
        " refused.",
        (), _of_watch("memory"),
    ),
    Metric(
        "append_rate_limit_bytes", "gauge",
        "Bytes a second to which a watermark slows appends; 0: to none.",
        (), _of_watch("bytes_s"),
    ),
    Metric(
        "limit_refused_total", "counter",
        "Appends, streams, connections and begins of transactions refused for a limit of their"
        " collection or identity.",
        (), lambda view: (((), view.sources.edge.limit_refused),),
    ),
    Metric(
        "collection_stored_bytes", "gauge",
        "What a collection with a limit of storage has stored in all logs, as this node knows it."
        " Of the 100 fullest.",
        ("collection",), _of_storage(lambda it: it.total),
    ),
    Metric(
        "collection_storage_limit_bytes", "gauge",
        "What that collection may store; from there on its appends are refused.",
        ("collection",), _of_storage(lambda it: it.limit),
    ),
    Metric(
        "limit_wait_seconds_total", "counter",
        "Seconds that appends and reads were made to wait for a limit, over all streams.",
        (), lambda view: (((), view.sources.edge.limit_wait_s),),
    ),
)  # fmt: skip
