"""Everything the actors that commit batches can be told or asked. Owns the vocabulary only.

For the edge: the requests of the Committer. Those that fail raise Refused.
"""

from dataclasses import dataclass

from actors import Request
from broker.coordinator.commit.commit_records import RecordedApp
from broker.core.txn.batch_commit import CommitAttempt
from broker.model.stage import BatchCommit, BatchCommitted

# ---- Committer: one for all apps ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CommitBatch(Request[BatchCommitted]):
    """Commit the staged transactions of a batch as one, or answer that the batch is done already.

    May be asked again with the same transactions: it joins the commit that is under way. An caller
    that leaves changes nothing. Refused: INVALID_ARGUMENT for what can never be committed, or is of
    another stage; TRANSACTION_EXPIRED or INVALID_TRANSACTION_STATE when one of them has ended,
    or all could not be prepared in time; RESOURCE_ACQUIRED while another commit of the app is under
    way; INNER when it could not be recorded, or too much is under way; UNRECOVERABLE when a damaged
    log has lost some of what was being committed. But for the last one, nothing is committed then.
    """

    asked: BatchCommit


@dataclass(frozen=True, slots=True)
class CommitView:
    """One app, for people. `batch` -1: none took effect yet; `state` "": none is under way.

    `age_ms`: since when the one under way is, as far as this incarnation of the Committer knows.
    """

    app: str
    batch: int
    done_ms: int
    under_way: int = -1
    state: str = ""
    txns: int = 0
    age_ms: int = 0


@dataclass(frozen=True, slots=True)
class ListCommits(Request[tuple[CommitView, ...]]):
    """Every app that is remembered, in the order of their names."""


@dataclass(frozen=True, slots=True)
class CommitChanged:
    """How a commit stands, told by its task: what is durable. Without an attempt it is over.

    `task`: who tells; one that was restarted may be late, and tell of what others have brought to
    an end. `ended`: the attempt as it was last, unless the task does not know.
    """

    task: str
    recorded: RecordedApp
    ended: CommitAttempt | None = None


@dataclass(frozen=True, slots=True)
class ResumeCommits:
    """A timer, once: go on with the commits that were found in the store."""

    apps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ForgetSilent:
    """A timer: forget apps that have been silent for long."""


CommitterMessage = CommitBatch | ListCommits | CommitChanged | ResumeCommits | ForgetSilent

# ---- CommitTask: one for each commit under way -------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendCommand:
    """A timer: tell those who have not answered yet."""


CommitTaskMessage = SendCommand
