"""The supervision tree of broadcasts.

The task supervisor starts before the Broadcaster, which puts tasks into it when it starts. All
restart together: locks without their tasks, or tasks without their locks, would be wrong.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from actors import ONE_FOR_ALL, ONE_FOR_ONE, ChildSpec, MailboxSpec, Overflow, SupervisorSpec
from broker.coordinator.broadcast.broadcast_meters import BroadcastMeters
from broker.coordinator.broadcast.broadcast_records import BroadcastRecords
from broker.coordinator.broadcast.broadcast_task_parts import BroadcastTaskParts, BroadcastTiming
from broker.coordinator.broadcast.broadcaster import Broadcaster
from broker.coordinator.broadcast.pending_broadcasts import BroadcasterLimits
from broker.coordinator.cuts.messages import CUT_LOCK
from broker.ports.broadcast_appends import BroadcastAppends
from broker.ports.callbacks import Callback
from broker.ports.master.broadcast_planner import BroadcastPlanner, NoPlanner
from broker.ports.meta import MetaStore

BROADCASTER = "broadcaster"
TASKS = "tasks"
LOCKS = "locks"
TASK_RESTARTS_MAX = 1000
"""Restarts of all tasks in half a minute: one that keeps crashing must not end the others."""


@dataclass(frozen=True, slots=True)
class BroadcastParts:
    """Dependencies of broadcasts, beside the store. `node_acks`: see BroadcastTaskParts."""

    copies: BroadcastAppends
    callbacks: Mapping[int, Callback] = field(default_factory=dict)
    node_acks: bool = True
    timing: BroadcastTiming = BroadcastTiming()
    limits: BroadcasterLimits = BroadcasterLimits()
    meters: BroadcastMeters = field(default_factory=BroadcastMeters)
    planner: Callable[[], BroadcastPlanner] = NoPlanner
    """Makes the planner of one incarnation of the Broadcaster."""


def broadcaster_tree(store: MetaStore, parts: BroadcastParts, parent_path: str) -> SupervisorSpec:
    """The subtree `broadcaster` under `parent_path`, which must start the CutLock before it."""
    path = f"{parent_path}/{BROADCASTER}"
    of_tasks = BroadcastTaskParts(
        records=BroadcastRecords(store),
        copies=parts.copies,
        callbacks=parts.callbacks,
        broadcaster_path=f"{path}/{LOCKS}",
        cut_lock_path=f"{parent_path}/{CUT_LOCK}",
        timing=parts.timing,
        node_acks=parts.node_acks,
        meters=parts.meters,
    )
    locks = ChildSpec(
        LOCKS,
        lambda: Broadcaster(of_tasks, parts.limits, parts.planner(), f"{path}/{TASKS}"),
        # Tasks wait for room instead of losing announcements; a batch is admitted by one write.
        MailboxSpec(bound=4096, overflow=Overflow.BLOCK, batch_max=256),
        patient=True,
    )
    tasks = SupervisorSpec(TASKS, ONE_FOR_ONE, restarts_max=TASK_RESTARTS_MAX)
    return SupervisorSpec(BROADCASTER, ONE_FOR_ALL, (tasks, locks))
