"""The supervision tree of batch commits.

The task supervisor starts before the Committer, which puts tasks into it when it starts. All
restart together: the answers of the Committer and the progress of its tasks must not diverge.
"""

from collections.abc import Collection
from dataclasses import dataclass

from actors import ONE_FOR_ALL, ONE_FOR_ONE, ChildSpec, MailboxSpec, Overflow, SupervisorSpec
from broker.coordinator.commit.commit_records import CommitRecords
from broker.coordinator.commit.commit_task import CommitTaskParts, CommitTiming
from broker.coordinator.commit.committer import Committer, CommitterLimits
from broker.coordinator.cuts.messages import CUT_LOCK
from broker.model.ids import PChannelName
from broker.ports.meta import MetaStore
from broker.ports.staged_txns import StagedTxns

COMMITS = "commits"
TASKS = "tasks"
COMMITTER = "committer"
TASK_RESTARTS_MAX = 1000
"""Restarts of all tasks in half a minute: one that keeps crashing must not end the others."""


@dataclass(frozen=True, slots=True)
class BatchCommitParts:
    """Dependencies of batch commits, beside the store."""

    txns: StagedTxns
    timing: CommitTiming = CommitTiming()
    limits: CommitterLimits = CommitterLimits()


def commits_tree(
    store: MetaStore, parts: BatchCommitParts, pchannels: Collection[PChannelName], parent_path: str
) -> SupervisorSpec:
    """The subtree `commits` under `parent_path`, which must start the CutLock before it."""
    path = f"{parent_path}/{COMMITS}"
    of_tasks = CommitTaskParts(
        records=CommitRecords(store),
        txns=parts.txns,
        committer_path=f"{path}/{COMMITTER}",
        cut_lock_path=f"{parent_path}/{CUT_LOCK}",
        timing=parts.timing,
    )
    committer = ChildSpec(
        COMMITTER,
        lambda: Committer(of_tasks, parts.limits, pchannels, f"{path}/{TASKS}"),
        MailboxSpec(bound=1024, overflow=Overflow.BLOCK, batch_max=64),
        patient=True,
    )
    tasks = SupervisorSpec(TASKS, ONE_FOR_ONE, restarts_max=TASK_RESTARTS_MAX)
    return SupervisorSpec(COMMITS, ONE_FOR_ALL, (tasks, committer))
