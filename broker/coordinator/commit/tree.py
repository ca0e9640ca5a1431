"""The committer's subtree, built from what it needs.

The tasks stand before the Committer, so that it finds a place for them when it starts, and all go
down together: what an app is answered and what its task does would else come apart.
"""

from collections.abc import Collection
from dataclasses import dataclass

from actors import ONE_FOR_ALL, ONE_FOR_ONE, ChildSpec, MailboxSpec, Overflow, SupervisorSpec
from broker.coordinator.commit.commit_records import CommitRecords
from broker.coordinator.commit.commit_task import CommitParts, CommitTiming
from broker.coordinator.commit.committer import Committer, CommitterLimits
from broker.coordinator.cuts.messages import CUT_LOCK
from broker.model.ids import PChannelName
from broker.ports.meta import MetaStore
from broker.ports.staged_txns import StagedTxns

COMMITS = "commits"
TASKS = "tasks"
COMMITTER = "committer"
TASK_RESTARTS_MAX = 1000
"""In a window of half a minute, over all commits: one that crashes must not end the others."""


@dataclass(frozen=True, slots=True)
class CommitsParts:
    """What commits of batches stand on beside the store."""

    txns: StagedTxns
    timing: CommitTiming = CommitTiming()
    limits: CommitterLimits = CommitterLimits()


def commits_tree(
    store: MetaStore, parts: CommitsParts, pchannels: Collection[PChannelName], parent_path: str
) -> SupervisorSpec:
    """The subtree `commits`, to be put under the supervisor at `parent_path`.

    There the CutLock must stand before it.
    """
    path = f"{parent_path}/{COMMITS}"
    of_tasks = CommitParts(
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
