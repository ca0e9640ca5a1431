"""Broadcasts and locks in the form that operators are shown."""

from collections.abc import Collection, Iterable, Mapping

from broker.coordinator.broadcast.messages import (
    BroadcastView,
    ListBroadcasts,
    ListLocks,
    LockView,
)
from broker.coordinator.broadcast.pending_broadcasts import RunningBroadcast, WaitingBroadcast
from broker.core.cluster.broadcast_state import BroadcastState
from broker.core.cluster.resource_locks import LockTicket, ResourceLocks, locked_keys
from broker.model.broadcast import Broadcast
from broker.model.failure import Refused, StreamingCode
from broker.model.master.ddl import PlannedRequest


def acked_by(broadcast: Broadcast, *, node_acks: bool) -> str:
    """Who acknowledges its copies: the write itself, the node that applied it, or a consumer."""
    if not broadcast.ack_sync_up:
        return "write"
    return "node" if node_acks else "consumer"


def views_of(
    question: ListBroadcasts | ListLocks,
    waiting: Iterable[WaitingBroadcast],
    running: Collection[RunningBroadcast],
    locks: ResourceLocks,
    *,
    node_acks: bool,
) -> tuple[BroadcastView, ...] | tuple[LockView, ...]:
    """The answer to a question of an operator."""
    if isinstance(question, ListBroadcasts):
        return broadcast_views(waiting, running, node_acks=node_acks)
    return lock_views(locks, {it.ticket: it.task.name for it in running})


def broadcast_views(
    waiting: Iterable[WaitingBroadcast], running: Iterable[RunningBroadcast], *, node_acks: bool
) -> tuple[BroadcastView, ...]:
    """All unfinished broadcasts, in the order of their requests."""
    queued = [_waiting_view(it.request, node_acks=node_acks) for it in waiting]
    recorded = [
        _running_view(it.task, it.failures, it.last_error, node_acks=node_acks) for it in running
    ]
    return (*queued, *recorded)


def _waiting_view(waiting: Broadcast | PlannedRequest, *, node_acks: bool) -> BroadcastView:
    """A broadcast that waits for its keys and has no id yet; a planned one no vchannels either."""
    broadcast = waiting if isinstance(waiting, Broadcast) else None
    return BroadcastView(
        name="",
        state="waiting",
        type=0 if broadcast is None else broadcast.type,
        keys=locked_keys(waiting.keys),
        vchannels=0 if broadcast is None else len(broadcast.vchannels),
        appended=0,
        acked=0,
        poison="",
        failures=0,
        last_error="",
        acked_by="write" if broadcast is None else acked_by(broadcast, node_acks=node_acks),
    )


def _running_view(
    task: BroadcastState, failures: int, last_error: str, *, node_acks: bool
) -> BroadcastView:
    """A broadcast with a record."""
    return BroadcastView(
        name=task.name,
        state="quarantine" if task.poison else task.state.value,
        type=task.broadcast.type,
        keys=task.keys,
        vchannels=len(task.landed),
        appended=sum(landed is not None for landed in task.landed),
        acked=sum(task.acked),
        poison=task.poison,
        failures=failures,
        last_error=last_error,
        acked_by=acked_by(task.broadcast, node_acks=node_acks),
    )


def lock_views(
    locks: ResourceLocks, owners: Mapping[LockTicket | None, str]
) -> tuple[LockView, ...]:  # fmt: skip
    """All requests for keys."""
    return tuple(
        LockView(owners.get(it.ticket, ""), it.keys, it.held) for it in locks.requests()
    )  # fmt: skip


def quarantined(task: BroadcastState) -> Refused:
    """The answer to callers of a broadcast in quarantine."""
    missing = len(task.to_append)
    where = f"is not on {missing} vchannels yet" if missing else "is on every vchannel"
    return Refused(
        StreamingCode.UNRECOVERABLE,
        f"broadcast {task.name} {where} and cannot continue: {task.poison}; an operator must"
        " retry or skip it (tidemark broadcasts quarantine)",
    )
