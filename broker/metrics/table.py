"""The table of all metrics: name, meaning, labels, and where the value is read.

Names that Milvus has are Milvus's, with our prefix. But in Prometheus `_total` ends counters only,
so a gauge that ends so in Milvus is a plural here. Labels are pchannels, kinds of actors and
states, so that their number is bounded.
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
    """One metric. `kind`: gauge, counter or histogram. `read` yields label values with a value."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]
    read: Read
    prefix: str = PREFIX

    @property
    def full_name(self) -> str:
        """The name as it is exposed."""
        return self.prefix + self.name


def _channels(read: Callable[[OpenChannel], float]) -> Read:
    return lambda view: (((it.channel.name,), read(it)) for it in view.channels)


def _meters(read: Callable[[ChannelMeter], float | Histogram]) -> Read:
    return lambda view: (((name,), read(meter)) for name, meter in view.meters())


def _extras(kind: str, read: Callable[[Extra], float]) -> Read:
    """A value of each pchannel, summed over its actors of a kind; 0 without such actors."""

    def samples(view: View) -> Iterator[Sample]:
        sums: Counter[str] = Counter()
        for channel in view.channels:
            sums[channel.channel.name] = 0
        for name, extra in view.extras(kind):
            sums[name] += read(extra)  # type: ignore[assignment]
        return (((name,), value) for name, value in sorted(sums.items()))

    return samples


def _alone(kind: str, key: str) -> Read:
    """A value of the only actor of a kind."""
    return lambda view: (((), _number(extra, key)) for _, extra in view.extras(kind))


def _number(extra: Extra, key: str) -> float:
    value = extra.get(key, 0)
    return float(value) if isinstance(value, int | float) else 0.0


def _silent(view: View) -> Iterator[Sample]:
    for kind in ("soft_barrier", "hard_barrier"):
        for _, extra in view.extras(kind):
            yield (kind,), _number(extra, "silent_peers")


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
    """A histogram of broadcasts, in processes with a coordinator."""
    return lambda view: (((), read(it.broadcasts)) for it in (view.sources.coordinator,) if it)


CHANNEL = ("channel",)
KIND = ("kind",)

BROKER_METRICS: Final = (
    # ---- coordinator ----------------------------------------------------------------------------
    Metric(
        "streamingcoord_pchannel_info", "gauge", "State of each pchannel; always 1.",
        ("channel", "state"),
        lambda v: (
            ((n, str(e.get("channel_state")).lower()), 1) for n, e in v.extras("reconciler")
        ),
    ),
    Metric(
        "streamingcoord_pchannel_term", "gauge", "Term in the record of each pchannel.", CHANNEL,
        lambda v: (((n,), _number(e, "channel_term")) for n, e in v.extras("reconciler")),
    ),
    Metric(
        "streamingcoord_nodes", "gauge", "Node processes with a lease.", (),
        _alone("registrar", "nodes"),
    ),
    Metric(
        "streamingcoord_assignment_listeners", "gauge", "Clients that watch the assignment.",
        (), _alone("assigner", "watches"),
    ),
    Metric(
        "streamingcoord_broadcaster_tasks", "gauge",
        "Broadcasts by state; finished ones are remembered as tombstones.", ("state",),
        lambda v: (((s,), _number(e, s)) for _, e in v.extras("locks")
                   for s in ("waiting", "running", "quarantine", "tombstones")),
    ),
    Metric(
        "streamingcoord_broadcaster_locks", "gauge", "Resource keys that are locked.", (),
        _alone("locks", "locks"),
    ),
    Metric(
        "streamingcoord_broadcaster_task_acquire_lock_duration_seconds", "histogram",
        "Seconds from a request until the broadcast has its locks and is recorded.", (),
        _broadcasts(lambda it: it.acquire_lock),
    ),
    Metric(
        "streamingcoord_broadcaster_task_broadcast_duration_seconds", "histogram",
        "Seconds until all copies of a broadcast are appended.", (),
        _broadcasts(lambda it: it.broadcast),
    ),
    Metric(
        "streamingcoord_broadcaster_task_ack_callback_duration_seconds", "histogram",
        "Seconds of successful callback calls.", (),
        _broadcasts(lambda it: it.ack_callback),
    ),
    Metric(
        "streamingcoord_broadcaster_task_execution_duration_seconds", "histogram",
        "Seconds from the request of a broadcast to its response.", (),
        _broadcasts(lambda it: it.execution),
    ),
    Metric(
        "streamingcoord_batch_commits", "gauge",
        "Commits of staged batches in progress, by state.",
        ("state",),
        lambda v: (((s.value,), _number(e, s.value)) for _, e in v.extras("committer")
                   for s in CommitState),
    ),
    Metric(
        "streamingcoord_batch_commit_age_seconds", "gauge",
        "Age of the oldest commit in progress; should return to 0.",
        (), _alone("committer", "oldest_s"),
    ),
    Metric(
        "streamingcoord_batch_committed_total", "counter", "Staged batches committed.", (),
        _alone("committer", "committed"),
    ),
    Metric(
        "streamingcoord_batch_commit_apps", "gauge", "Apps whose newest batch is remembered.", (),
        _alone("committer", "apps"),
    ),
    # ---- node -----------------------------------------------------------------------------------
    Metric(
        "streamingnode_producers", "gauge", "Open producer streams.", CHANNEL,
        _streams(lambda it: it.producers),
    ),
    Metric(
        "streamingnode_consumers", "gauge", "Open consumer streams.", CHANNEL,
        _streams(lambda it: it.consumers),
    ),
    Metric(
        "streamingnode_consume_bytes_total", "counter", "Bytes sent to consumers.", CHANNEL,
        _streams(lambda it: it.consumed_bytes),
    ),
    Metric(
        "streamingnode_produce_inflight_bytes", "gauge", "Bytes waiting to be appended.", CHANNEL,
        _channels(lambda it: it.backlog.bytes_waiting),
    ),
    Metric(
        "connections", "gauge", "Open client connections.", (),
        lambda v: [((), v.sources.connections())],
    ),
    Metric(
        "open_calls", "gauge", "Calls in progress, streams included.", (),
        lambda v: [((), v.sources.open_calls())],
    ),
    # ---- the logs -------------------------------------------------------------------------------
    Metric(
        "wal_info", "gauge",
        "Term at which this process has each log open; always 1.", ("channel", "term"),
        lambda v: (((it.channel.name, str(it.channel.term)), 1) for it in v.channels),
    ),
    Metric(
        "wal_append_message_total", "counter", "Messages appended, without time ticks.", CHANNEL,
        _meters(lambda it: it.messages),
    ),
    Metric(
        "wal_append_message_bytes_total", "counter",
        "Bytes of messages appended.", CHANNEL, _meters(lambda it: it.bytes)
    ),
    Metric(
        "wal_sync_duration_seconds", "histogram", "Seconds of one group commit: write and sync.",
        CHANNEL, _meters(lambda it: it.stores),
    ),
    Metric(
        "wal_sync_total", "counter", "Group commits, each one write and one sync.", CHANNEL,
        _meters(lambda it: sum(it.stores.counts)),
    ),
    Metric(
        "wal_sync_time_tick", "gauge", "Newest time tick in the log.", CHANNEL,
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
        "wal_size_bytes", "gauge", "Bytes of each log on disk.", CHANNEL,
        _channels(lambda it: it.log.bounds().size_bytes),
    ),
    Metric(
        "wal_segments", "gauge", "Segment files of each log.", CHANNEL,
        _channels(lambda it: it.log.statistics().get("segments", 0)),
    ),
    Metric(
        "wal_refusing", "gauge", "1 while a log refuses appends and is only read.", CHANNEL,
        _extras("appender", lambda extra: extra.get("state") == REFUSING),
    ),
    Metric(
        "wal_damaged_places", "gauge", "Damaged places found while reading.", CHANNEL,
        lambda v: (((n,), c) for n, c in Counter(d.pchannel for d in v.sources.damages()).items()),
    ),
    Metric(
        "wal_inflight_txn", "gauge", "Open transactions.", CHANNEL,
        _extras("appender", lambda extra: _number(extra, "open_txns")),
    ),
    Metric(
        "wal_staged_txn", "gauge", "Open transactions that are staged for a batch.", CHANNEL,
        _extras("appender", lambda extra: _number(extra, "staged_txns")),
    ),
    Metric(
        "wal_staged_txn_bytes", "gauge", "Bytes of staged transactions.", CHANNEL,
        _extras("appender", lambda extra: _number(extra, "staged_bytes")),
    ),
    Metric(
        "wal_staged_txn_age_seconds", "gauge",
        "Age of the oldest staged transaction; should return to 0.", CHANNEL,
        lambda v: (((n,), v.lag_s(int(_number(e, "staged_since"))))
                   for n, e in v.extras("appender")),
    ),
    Metric(
        "wal_prepared_txn", "gauge",
        "Staged transactions that are prepared: their batch is being committed.", CHANNEL,
        _extras("appender", lambda extra: _number(extra, "prepared_txns")),
    ),
    Metric(
        "wal_growing_segments", "gauge", "Growing segments of collections.", CHANNEL,
        _channels(lambda it: it.segments.counts().growing),
    ),
    Metric(
        "wal_growing_segment_bytes", "gauge", "Bytes of growing segments.", CHANNEL,
        _channels(lambda it: it.segments.growing_bytes),
    ),
    Metric(
        "wal_segment_assign_segment_alloc_total", "counter",
        "Segments of collections created.", CHANNEL,
        _channels(lambda it: it.segments.created_count),
    ),
    Metric(
        "wal_segment_assign_flushed_segment_total", "counter",
        "Segments of collections flushed, by policy.",
        ("channel", "policy"),
        lambda v: (((it.channel.name, why.value), it.segments.flushed_by[why])
                   for it in v.channels for why in it.segments.flushed_by),
    ),
    Metric(
        "wal_write_ahead_buffer_size_bytes", "gauge",
        "Bytes of the newest messages kept in memory.", CHANNEL,
        _channels(lambda it: it.tail.size_bytes),
    ),
    Metric(
        "wal_scanners", "gauge", "Scanners, one for each consumer.", CHANNEL,
        _extras("scanner", lambda _: 1),
    ),
    Metric(
        "wal_scanner_pause_consumption", "gauge",
        "Consumers paused by `tidemark consumption pause`.", CHANNEL,
        _extras("scanner", lambda extra: _number(extra, "paused")),
    ),
    Metric(
        "wal_scan_pass_message_total", "counter", "Messages delivered to consumers.", CHANNEL,
        _meters(lambda it: it.scanned),
    ),
    Metric(
        "wal_scan_time_tick_violation_message_total", "counter",
        "Messages with a tick not above the one before; must stay 0.", CHANNEL,
        _meters(lambda it: it.tick_violations),
    ),
    Metric(
        "wal_scan_count_mismatch_total", "counter",
        "Transactions with another number of messages than committed; must stay 0.", CHANNEL,
        _meters(lambda it: it.count_mismatches),
    ),
    Metric(
        "wal_scan_txns", "gauge", "Transactions that consumers are in the middle of.", CHANNEL,
        _extras("scanner", lambda extra: _number(extra, "open_txns")),
    ),
    Metric(
        "wal_scanner_pending_queue_bytes", "gauge",
        "Bytes read for consumers and not sent yet.", CHANNEL,
        _extras("scanner", lambda extra: _number(extra, "cached_bytes")),
    ),
    Metric(
        "wal_scanner_txn_buf_bytes", "gauge",
        "Bytes of open transactions held for consumers.", CHANNEL,
        _extras("scanner", lambda extra: _number(extra, "open_txn_bytes")),
    ),
    # ---- recovery ------------------------------------------------------------
    Metric(
        "wal_recovery_persisted_time_tick", "gauge",
        "Tick of the newest snapshot, where a restart continues.",
        CHANNEL, _extras("recovery", lambda extra: _number(extra, "checkpoint_tick")),
    ),
    Metric(
        "wal_recovery_checkpoint_lag_seconds", "gauge",
        "Age of the newest snapshot's tick.", CHANNEL,
        lambda v: (((n,), v.lag_s(int(_number(e, "checkpoint_tick"))))
                   for n, e in v.extras("recovery")),
    ),
    Metric(
        "wal_recovery_behind_messages", "gauge",
        "Messages in the log that recovery has not processed.", CHANNEL,
        _extras("recovery", lambda extra: _number(extra, "behind")),
    ),
    Metric(
        "wal_recovery_inconsistent_event_total", "counter",
        "Messages that contradict the state of the log, since it was opened; must stay 0.", CHANNEL,
        _extras("recovery", lambda extra: _number(extra, "inconsistent")),
    ),
    # ---- time -----------------------------------------------------------------------------------
    Metric(
        "timesync_tick_lag_seconds", "gauge",
        "Age of the newest tick that is closed on all pchannels.", (),
        lambda v: (((), v.lag_s(int(_number(e, "tick")))) for _, e in v.extras("soft_barrier")),
    ),
    Metric(
        "timesync_barriers", "gauge", "Barriers of each kind.", KIND,
        lambda v: (((k,), _number(e, "barriers")) for k in ("soft_barrier", "hard_barrier")
                   for _, e in v.extras(k)),
    ),
    Metric(
        "timesync_silent_peers", "gauge",
        "Late peers of barriers.", KIND, _silent
    ),
    # ---- actors ---------------------------------------------------------------------------------
    Metric(
        "actors", "gauge",
        "Actors and supervisors, by kind and state.", ("kind", "state"), _states
    ),
    Metric(
        "actor_mailbox_depth", "gauge",
        "Messages in the fullest mailbox of each kind.", KIND, _deepest
    ),
    Metric(
        "actor_restarts_total", "counter",
        "Restarts of actors.", KIND, _counted(lambda v: v.counts.restarts)
    ),
    Metric(
        "actor_shed_total", "counter", "Messages dropped because a mailbox was full.", KIND,
        _counted(lambda v: v.counts.shed),
    ),
    Metric(
        "actor_handled_total", "counter", "Messages handled by actors.", KIND,
        _counted(lambda v: v.counts.handled),
    ),
)  # fmt: skip
