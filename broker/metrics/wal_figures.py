"""Metrics of ticks, rows, transactions and the assignment, which Milvus has under these names."""

from collections.abc import Callable, Iterator
from typing import Final

from broker.core.histogram import Histogram
from broker.metrics.table import Metric
from broker.metrics.view import View
from broker.node.state.channel_meters import ChannelMeter

Samples = Callable[[View], Iterator[tuple[tuple[str, ...], float | Histogram]]]


def _of_channels(read: Callable[[ChannelMeter], float]) -> Samples:
    return lambda view: (((name,), read(meter)) for name, meter in view.meters())


def _acknowledged(view: View) -> Iterator[tuple[tuple[str, ...], float]]:
    for name, meter in view.meters():
        yield (name, "common"), meter.ticks_acknowledged
        yield (name, "sync"), meter.tick_records_acknowledged


def _txns(view: View) -> Iterator[tuple[tuple[str, ...], Histogram]]:
    for name, meter in view.meters():
        for state, seconds in sorted(meter.txns.items()):
            yield (name, state), seconds


def _of_assigner(key: str) -> Samples:
    return lambda view: (
        ((), float(extra[key])) for _, extra in view.extras("assigner") if key in extra
    )


CHANNEL: Final = ("channel",)

WAL_METRICS: Final = (
    Metric(
        "streamingcoord_assignment_info", "gauge",
        "Version of the assignment table; grows with each change, restarts with the coordinator.",
        (), _of_assigner("change"),
    ),
    Metric(
        "streamingcoord_vchannels", "gauge",
        "Vchannels of collections at the last run of the balancer; Milvus's vchannel_total.",
        (), _of_assigner("vchannels"),
    ),
    Metric(
        "wal_allocate_time_tick_total", "counter",
        "Time ticks allocated for messages and tick records; those of refused messages are unused.",
        CHANNEL, _of_channels(lambda it: it.ticks_allocated),
    ),
    Metric(
        "wal_acknowledge_time_tick_total", "counter",
        "Time ticks whose record is durable: `common` of messages, `sync` of tick records.",
        ("channel", "type"), _acknowledged,
    ),
    Metric(
        "wal_txn_duration_seconds", "histogram",
        "Seconds from the begin of a transaction to its durable end, by how it ended.",
        ("channel", "state"), _txns,
    ),
    Metric(
        "wal_insert_rows_total", "counter",
        "Rows inserted, by the headers of messages for Milvus's collections, else one a message.",
        CHANNEL, _of_channels(lambda it: it.insert_rows),
    ),
    Metric(
        "wal_insert_bytes_total", "counter", "Bytes of stored inserts.",
        CHANNEL, _of_channels(lambda it: it.insert_bytes),
    ),
    Metric(
        "wal_delete_rows_total", "counter", "Rows deleted, counted as inserts are.",
        CHANNEL, _of_channels(lambda it: it.delete_rows),
    ),
)  # fmt: skip
