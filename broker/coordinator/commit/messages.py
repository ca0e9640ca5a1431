"""The messages of Committer and CommitTask.

The edge sends CommitBatch and ListCommits. Requests that fail raise Refused.
"""

from dataclasses import dataclass

from actors import Request
from broker.coordinator.commit.commit_records import RecordedApp
from broker.core.txn.batch_commit import CommitAttempt
from broker.model.ids import VChannelName
from broker.model.stage import BatchCommit, BatchCommitted

# ---- Committer: one for all apps ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CommitBatch(Request[BatchCommitted]):
    """Commit the staged transactions of a batch atomically; answered when all are committed.

    A batch that is committed already is answered from its record. Repeatable: the same transactions
    join the commit in progress; a caller that leaves changes nothing. Refused: INVALID_ARGUMENT for
    an invalid request, or a transaction of another stage; TRANSACTION_EXPIRED or
    INVALID_TRANSACTION_STATE when a transaction has ended, or all could not be prepared in time;
    RESOURCE_ACQUIRED while another commit of the app is in progress; INNER when it could not be
    recorded, or too many are in progress; UNRECOVERABLE when a damaged log lost part of a batch
    that was being committed; UNKNOWN when it may be recorded or not: commit it again, with the same
    transactions. After any refusal but the last two, nothing is committed.
    """

    commit: BatchCommit


@dataclass(frozen=True, slots=True)
class CommitView:
    """One app, for people. `batch` -1: none is committed yet; `state` "": none is in progress.

    `age_ms`: age of the commit in progress, counted from the start of this Committer at the most.
    `vchannels`: those of the newest batch and of the commit in progress.
    """

    app: str
    batch: int
    done_ms: int
    under_way: int = -1
    state: str = ""
    txns: int = 0
    age_ms: int = 0
    vchannels: tuple[VChannelName, ...] = ()


@dataclass(frozen=True, slots=True)
class ListCommits(Request[tuple[CommitView, ...]]):
    """Every app that has a record, by name."""


@dataclass(frozen=True, slots=True)
class CommitChanged:
    """The durable record of a commit, sent by its task. Without an attempt the commit has ended.

    `task`: the sender; a late message of an earlier task is ignored. `ended`: the final attempt,
    unless the task does not know it.
    """

    task: str
    recorded: RecordedApp
    ended: CommitAttempt | None = None


@dataclass(frozen=True, slots=True)
class ResumeCommits:
    """A timer, once: resume the commits that were found in the store."""

    apps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ForgetIdleApps:
    """A timer: forget apps that have been idle for long."""


CommitterMessage = CommitBatch | ListCommits | CommitChanged | ResumeCommits | ForgetIdleApps

# ---- CommitTask: one for each commit in progress -----------------------------------------------


@dataclass(frozen=True, slots=True)
class SendCommand:
    """A timer: send the command of the current state to the transactions without an answer."""


CommitTaskMessage = SendCommand
