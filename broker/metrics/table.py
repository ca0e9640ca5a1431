"""The table of all metrics: names, what they mean, and where each is read. A row is a metric.

Owns the names. Those that Milvus has as well are Milvus's, under our prefix; labels are pchannels,
kinds of actors and their states, so that there are few.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from broker.coordinator.broadcast.broadcast_meters import BroadcastMeters
from broker.core.histogram import Histogram
from broker.core.txn.batch_commit import CommitState
from broker.edge.rpc.stream_meters import StreamMeter
from broker.metrics.view import Extra, View
from broker.node.append.appender import REFUSING
from broker.node.state.channel_meters import ChannelMeter
from broker.node.state.open_channels import OpenChannel

PREFIX: Final = "tidemark_"
Sample = tuple[tuple[str, ...], float | Histogram]
Read = Callable[[View], Iterable[Sample]]


@dataclass(frozen=True, slots=True)
class Metric:
    """`kind`: gauge, counter or histogram. `read` gives label values with the value."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]
    read: Read


def _channels(read: Callable[[OpenChannel], float]) -> Read:
    return lambda view: (((it.channel.name,), read(it)) for it in view.channels)


def _meters(read: Callable[[ChannelMeter], float | Histogram]) -> Read:
    return lambda view: (((name,), read(meter)) for name, meter in view.meters())


def _extras(kind: str, read: Callable[[Extra], float]) -> Read:
    """Of each pchannel, summed over its actors of a kind; channels without any have 0."""

    def samples(view: View) -> Iterator[Sample]:
        sums: Counter[str] = Counter()
        for channel in view.channels:
            sums[channel.channel.name] = 0
        for name, extra in view.extras(kind):
            sums[name] += read(extra)  # type: ignore[assignment]
        return (((name,), value) for name, value in sorted(sums.items()))

    return samples


def _alone(kind: str, key: str) -> Read:
    """A figure of the one actor of a kind."""
    return lambda view: (((), _number(extra, key)) for _, extra in view.extras(kind))


def _number(extra: Extra, key: str) -> float:
    value = extra.get(key, 0)
    return float(value) if isinstance(value, int | float) else 0.0


def _silent(view: View) -> Iterator[Sample]:
    for kind in ("soft_barrier", "hard_barrier"):
        for _, extra in view.extras(kind):
            names = str(extra.get("silent", ""))
            yield (kind,), names.count(",") + 1 if names else 0


def _states(view: View) -> Iterator[Sample]:
    for kind, entries in sorted(view.actors.items()):
        for state, count in sorted(Counter(it.state for it in entries).items()):
            yield (kind, state), count


def _deepest(view: View) -> Iterator[Sample]:
    for kind, entries in sorted(view.actors.items()):
        yield (kind,), max(it.mailbox_depth for it in entries)


def _counted(read: Callable[[View], Counter[str]]) -> Read:
    return lambda view: (((kind,), count) for kind, count in sorted(read(view).items()))


def _streams(read: Callable[[StreamMeter], float]) -> Read:
    return lambda view: (
        ((name,), read(meter)) for name, meter in sorted(view.sources.edge.channels.items())
    )


def _broadcasts(read: Callable[[BroadcastMeters], Histogram]) -> Read:
    """Where there is a coordinator."""
    return lambda view: (((), read(it)) for it in (view.sources.broadcasts,) if it is not None)


CHANNEL = ("channel",)
KIND = ("kind",)

METRICS: Final = (
    # ---- coordinator ----------------------------------------------------------------------------
    Metric(
        "streamingcoord_pchannel_info", "gauge", "State of each pchannel; always 1.",
        ("channel", "state"),
        lambda v: (
            ((n, str(e.get("channel_state")).lower()), 1) for n, e in v.extras("reconciler")
        ),
    ),
    Metric(
        "streamingcoord_pchannel_term", "gauge", "Term that each pchannel is recorded at.", CHANNEL,
        lambda v: (((n,), _number(e, "channel_term")) for n, e in v.extras("reconciler")),
    ),
    Metric(
        "streamingcoord_nodes", "gauge", "Node processes that hold a lease.", (),
        _alone("registrar", "nodes"),
    ),
    Metric(
        "streamingcoord_assignment_listener_total", "gauge", "Clients that wait for assignments.",
        (), _alone("assigner", "watches"),
    ),
    Metric(
        "streamingcoord_broadcaster_task_total", "gauge", "Broadcasts.", ("state",),
        lambda v: (((s,), _number(e, s)) for _, e in v.extras("locks")
                   for s in ("waiting", "running", "quarantine", "tombstones")),
    ),
    Metric(
        "streamingcoord_broadcaster_locks", "gauge", "Resource keys that are held.", (),
        _alone("locks", "locks"),
    ),
    Metric(
        "streamingcoord_broadcaster_task_acquire_lock_duration_seconds", "histogram",
        "From the request to its resource keys and its record.", (),
        _broadcasts(lambda it: it.acquire_lock),
    ),
    Metric(
        "streamingcoord_broadcaster_task_broadcast_duration_seconds", "histogram",
        "Until all copies of a broadcast have landed.", (),
        _broadcasts(lambda it: it.broadcast),
    ),
    Metric(
        "streamingcoord_broadcaster_task_ack_callback_duration_seconds", "histogram",
        "Calls of a broadcast's callback that succeeded.", (),
        _broadcasts(lambda it: it.ack_callback),
    ),
    Metric(
        "streamingcoord_broadcaster_task_execution_duration_seconds", "histogram",
        "From the request of a broadcast to its answer.", (),
        _broadcasts(lambda it: it.execution),
    ),
    Metric(
        "streamingcoord_batch_commit_total", "gauge", "Commits of staged batches under way.",
        ("state",),
        lambda v: (((s.value,), _number(e, s.value)) for _, e in v.extras("committer")
                   for s in CommitState),
    ),
    Metric(
        "streamingcoord_batch_commit_age_seconds", "gauge",
        "How long the oldest of them has been under way.", (), _alone("committer", "oldest_s"),
    ),
    Metric(
        "streamingcoord_batch_committed_total", "counter", "Batches committed.", (),
        _alone("committer", "committed"),
    ),
    Metric(
        "streamingcoord_batch_commit_apps", "gauge", "Apps whose newest batch is remembered.", (),
        _alone("committer", "apps"),
    ),
    # ---- node -----------------------------------------------------------------------------------
    Metric(
        "streamingnode_producer_total", "gauge", "Open streams of producers.", CHANNEL,
        _streams(lambda it: it.producers),
    ),
    Metric(
        "streamingnode_consumer_total", "gauge", "Open streams of consumers.", CHANNEL,
        _streams(lambda it: it.consumers),
    ),
    Metric(
        "streamingnode_consume_bytes", "counter", "Bytes sent to consumers.", CHANNEL,
        _streams(lambda it: it.consumed_bytes),
    ),
    Metric(
        "streamingnode_produce_inflight_bytes", "gauge", "Bytes that wait to be appended.", CHANNEL,
        _channels(lambda it: it.backlog.bytes_waiting),
    ),
    Metric(
        "connections", "gauge", "Connections of clients.", (),
        lambda v: [((), v.sources.connections())],
    ),
    Metric(
        "open_calls", "gauge", "Calls in progress, streams included.", (),
        lambda v: [((), v.sources.open_calls())],
    ),
    # ---- the logs -------------------------------------------------------------------------------
    Metric(
        "wal_info", "gauge", "Term at which each log is open here; always 1.", ("channel", "term"),
        lambda v: (((it.channel.name, str(it.channel.term)), 1) for it in v.channels),
    ),
    Metric(
        "wal_append_message_total", "counter", "Messages stored, without time ticks.", CHANNEL,
        _meters(lambda it: it.messages),
    ),
    Metric(
        "wal_append_message_bytes", "counter", "Their bytes.", CHANNEL, _meters(lambda it: it.bytes)
    ),
    Metric(
        "wal_sync_duration_seconds", "histogram", "Write and sync of one group of messages.",
        CHANNEL, _meters(lambda it: it.stores),
    ),
    Metric(
        "wal_sync_total", "counter", "Groups stored, each with one write and one sync.", CHANNEL,
        _meters(lambda it: sum(it.stores.counts)),
    ),
    Metric(
        "wal_sync_time_tick", "gauge", "Newest time tick that is stored.", CHANNEL,
        _channels(lambda it: it.log.bounds().last_tick),
    ),
    Metric(
        "wal_last_confirmed_time_tick", "gauge", "Newest closed tick.", CHANNEL,
        _channels(lambda it: it.tail.closed.tick),
    ),
    Metric(
        "wal_closed_tick_lag_seconds", "gauge", "Age of the newest closed tick.", CHANNEL,
        lambda v: (((it.channel.name,), v.lag_s(it.tail.closed.tick)) for it in v.channels),
    ),
    Metric(
        "wal_size_bytes", "gauge", "Bytes that each log takes.", CHANNEL,
        _channels(lambda it: it.log.bounds().size_bytes),
    ),
    Metric(
        "wal_segments", "gauge", "Segment files of each log.", CHANNEL,
        _channels(lambda it: it.log.statistics().get("segments", 0)),
    ),
    Metric(
        "wal_refusing", "gauge", "1 while a log is read but takes no appends.", CHANNEL,
        _extras("appender", lambda extra: extra.get("state") == REFUSING),
    ),
    Metric(
        "wal_damaged_places", "gauge", "Damaged places that were met.", CHANNEL,
        lambda v: (((n,), c) for n, c in Counter(d.pchannel for d in v.sources.damages()).items()),
    ),
    Metric(
        "wal_inflight_txn", "gauge", "Open transactions.", CHANNEL,
        _extras("appender", lambda extra: _number(extra, "open_txns")),
    ),
    Metric(
        "wal_staged_txn", "gauge", "Of these, those that wait for the commit of a batch.", CHANNEL,
        _extras("appender", lambda extra: _number(extra, "staged_txns")),
    ),
    Metric(
        "wal_staged_txn_bytes", "gauge", "Bytes in them.", CHANNEL,
        _extras("appender", lambda extra: _number(extra, "staged_bytes")),
    ),
    Metric(
        "wal_staged_txn_age_seconds", "gauge", "Age of the oldest of them.", CHANNEL,
        lambda v: (((n,), v.lag_s(int(_number(e, "staged_since"))))
                   for n, e in v.extras("appender")),
    ),
    Metric(
        "wal_prepared_txn", "gauge", "Of these, those whose batch is being committed.", CHANNEL,
        _extras("appender", lambda extra: _number(extra, "prepared_txns")),
    ),
    Metric(
        "wal_growing_segment_total", "gauge", "Segments that take rows.", CHANNEL,
        _channels(lambda it: it.shards.counts().growing),
    ),
    Metric(
        "wal_growing_segment_bytes", "gauge", "Bytes in them.", CHANNEL,
        _channels(lambda it: it.shards.growing_bytes),
    ),
    Metric(
        "wal_segment_assign_segment_alloc_total", "counter", "Segments created.", CHANNEL,
        _channels(lambda it: it.shards.created_count),
    ),
    Metric(
        "wal_segment_assign_flushed_segment_total", "counter", "Segments flushed.",
        ("channel", "policy"),
        lambda v: (((it.channel.name, why.value), it.shards.flushed_by[why])
                   for it in v.channels for why in it.shards.flushed_by),
    ),
    Metric(
        "wal_write_ahead_buffer_size_bytes", "gauge", "Memory of the newest messages.", CHANNEL,
        _channels(lambda it: it.tail.size_bytes),
    ),
    Metric(
        "wal_scanner_total", "gauge", "Scanners, one for each consumer.", CHANNEL,
        _extras("scanner", lambda _: 1),
    ),
    Metric(
        "wal_scanner_pause_consumption", "gauge", "Consumers that are held back.", CHANNEL,
        _extras("scanner", lambda extra: _number(extra, "paused")),
    ),
    Metric(
        "wal_scan_pass_message_total", "counter", "Messages handed to consumers.", CHANNEL,
        _meters(lambda it: it.scanned),
    ),
    Metric(
        "wal_scan_time_tick_violation_message_total", "counter",
        "Messages whose tick was not above the one before: must stay 0.", CHANNEL,
        _meters(lambda it: it.tick_violations),
    ),
    Metric(
        "wal_scan_count_mismatch_total", "counter",
        "Transactions that held another number of messages than committed: must stay 0.", CHANNEL,
        _meters(lambda it: it.count_mismatches),
    ),
    Metric(
        "wal_scan_txn_total", "gauge", "Transactions open at the places of consumers.", CHANNEL,
        _extras("scanner", lambda extra: _number(extra, "open_txns")),
    ),
    Metric(
        "wal_scanner_pending_queue_bytes", "gauge", "Read for consumers and not sent yet.", CHANNEL,
        _extras("scanner", lambda extra: _number(extra, "cached_bytes")),
    ),
    Metric(
        "wal_scanner_txn_buf_bytes", "gauge", "Held for consumers until a commit.", CHANNEL,
        _extras("scanner", lambda extra: _number(extra, "open_txn_bytes")),
    ),
    # ---- what a restart goes on from ------------------------------------------------------------
    Metric(
        "wal_recovery_persisted_time_tick", "gauge", "Tick that a restart would go on from.",
        CHANNEL, _extras("recovery", lambda extra: _number(extra, "checkpoint_tick")),
    ),
    Metric(
        "wal_recovery_checkpoint_lag_seconds", "gauge", "Age of that tick.", CHANNEL,
        lambda v: (((n,), v.lag_s(int(_number(e, "checkpoint_tick"))))
                   for n, e in v.extras("recovery")),
    ),
    Metric(
        "wal_recovery_behind_messages", "gauge", "Stored messages it has not looked at.", CHANNEL,
        _extras("recovery", lambda extra: _number(extra, "behind")),
    ),
    Metric(
        "wal_recovery_inconsistent_event_total", "gauge",
        "Messages since opening that could not be where they were: must stay 0.", CHANNEL,
        _extras("recovery", lambda extra: _number(extra, "inconsistent")),
    ),
    # ---- time -----------------------------------------------------------------------------------
    Metric(
        "timesync_tick_lag_seconds", "gauge", "Age of the tick closed on all pchannels.", (),
        lambda v: (((), v.lag_s(int(_number(e, "tick")))) for _, e in v.extras("soft_barrier")),
    ),
    Metric(
        "timesync_barriers", "gauge", "Barriers.", KIND,
        lambda v: (((k,), _number(e, "barriers")) for k in ("soft_barrier", "hard_barrier")
                   for _, e in v.extras(k)),
    ),
    Metric("timesync_silent_peers", "gauge", "Peers that are late (to 20).", KIND, _silent),
    # ---- actors ---------------------------------------------------------------------------------
    Metric("actors", "gauge", "Actors and supervisors.", ("kind", "state"), _states),
    Metric(
        "actor_mailbox_depth", "gauge", "Messages waiting in the fullest mailbox.", KIND, _deepest
    ),
    Metric(
        "actor_restarts_total", "counter", "Restarts.", KIND, _counted(lambda v: v.counts.restarts)
    ),
    Metric(
        "actor_shed_total", "counter", "Messages dropped at a full mailbox.", KIND,
        _counted(lambda v: v.counts.shed),
    ),
    Metric(
        "actor_handled_total", "counter", "Messages handled.", KIND,
        _counted(lambda v: v.counts.handled),
    ),
)  # fmt: skip
