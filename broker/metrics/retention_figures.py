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
VCHANNEL_HOLDER: Final = ("vchannel", "kind", "holder")


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


def _collections_held(view: View) -> Iterator[Sample]:
    held = [
        (vchannel, it)
        for channel in view.channels
        for vchannel, holders in channel.kept.held.items()
        for it in holders
    ]
    for vchannel, it in nlargest(SERIES_MAX, held, key=lambda each: each[1].bytes):
        yield (vchannel, it.kind, it.name), it.bytes


def _collections_passed(view: View) -> Iterator[Sample]:
    passed = [(vchannel, it) for channel in view.channels for vchannel, it in channel.passed()]
    for vchannel, it in nlargest(SERIES_MAX, passed, key=lambda each: each[1].passed_ms):
        yield (vchannel, it.kind, it.name, it.cause), it.passed_ms / 1000


def _collection_purges(view: View) -> Iterator[Sample]:
    for _, extra in view.extras("retention_keeper"):
        yield (), float(extra["purges"])


def _disk_full(view: View) -> Iterator[Sample]:
    for _, extra in view.extras("disk_watch"):
        yield (), float(extra["full"])


def _unasked(view: View) -> Iterator[Sample]:
    for _, extra in view.extras("truncation"):
        yield (), float(extra["unasked_bytes"])


def _given_back(view: View) -> Iterator[Sample]:
    for _, extra in view.extras("reclamation"):
        yield (), float(extra["given_back_bytes"])


def _to_reclaim(view: View) -> Iterator[Sample]:
    for _, extra in view.extras("reclamation"):
        yield (), float(extra["pchannels_left"])


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
        "collection_retention_held_bytes", "gauge",
        "Bytes of the log from what a holder needs on, while it keeps the retention of a collection"
        " from removing it; the 100 largest.",
        VCHANNEL_HOLDER, _collections_held,
    ),
    Metric(
        "collection_retention_passed_timestamp_seconds", "gauge",
        "When the retention of a collection removed what this holder still needed, in Unix seconds,"
        " for three days. The newest 100. `cause`: the limit, `bytes` or `time`.",
        (*VCHANNEL_HOLDER, "cause"), _collections_passed,
    ),
    Metric(
        "collection_retention_purges_total", "counter",
        "Purges that the retention of collections has made since this process started.",
        (), _collection_purges,
    ),
    Metric(
        "disk_full", "gauge",
        "1 while messages are refused, for what is left of the disk is kept for drops and purges.",
        (), _disk_full,
    ),
    Metric(
        "retention_unasked_bytes_total", "counter",
        "Bytes removed without knowing who holds them, since the coordinator did not answer and"
        " the log had reached its bound.",
        (), _unasked,
    ),
    Metric(
        "space_given_back_bytes_total", "counter",
        "Bytes of what was dropped and purged, given back to the disk since this process started.",
        (), _given_back,
    ),
    Metric(
        "space_channels_to_reclaim", "gauge",
        "Pchannels that may still hold records of what was dropped or purged.",
        (), _to_reclaim,
    ),
)  # fmt: skip
