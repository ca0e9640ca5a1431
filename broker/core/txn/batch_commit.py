"""Two-phase commit of one batch of staged transactions, as an immutable value.

Decides when all transactions are prepared, when the batch must abort and when the commit is
complete; and what a repeated request is answered. No I/O: the caller sends the commands, collects
the votes and stores the records.

Why a batch is committed whole or not at all, and once, whichever process is killed at any step:
1. The request is recorded as PREPARING before any transaction is touched. So whoever has the record
   knows every transaction that may be prepared, and none is prepared that no record names. A
   prepare that arrives late, from an earlier incarnation, finds its transaction ended and is
   refused, or finds it still named by the record.
2. A vote is durable: a prepared transaction is recorded as such in its own log. It stays open over
   restarts and changes of owner until its log has the coordinator's decision: neither its timeout
   nor an exclusive message nor its client can end it.
3. COMMITTING is recorded only after every transaction has voted to commit: that write is the
   decision. ABORTING is recorded, instead, before the first rollback is sent. Each replaces exactly
   PREPARING, by compare-and-set, so a batch gets one decision and nothing changes it afterwards.
4. Under COMMITTING each transaction is sent the commit until its log says that it has committed.
   By 2 it is still prepared, or has committed; one that its log has forgotten has committed,
   because by 3 nobody rolled it back. So in the end all are committed; a repeat does nothing.
5. Under ABORTING each is sent the rollback until its log says that it has rolled back, or does not
   know it. So in the end none is committed, and none stays prepared.
6. The app's record then names the batch as done, in the write that ends the commit. From then on
   this batch, and every earlier one, is answered from the record and touches nothing; what was
   staged for it again was never prepared, and is aborted. Before that write the app has this one
   commit in progress and accepts no other. So a batch takes effect once.
7. No cut splits a batch: a commit holds the cut lock, shared, from before the first prepare, or at
   the latest before COMMITTING is recorded, until all are committed; a new incarnation reports it
   to the lock before any cut is granted. So no cut is taken between two commits of one batch.
The argument assumes a log that keeps what it acknowledged. A log that lost records by damage says
so; a transaction that lost its prepare that way is named in the answer (`lost`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import TimeTick, VChannelName
from broker.model.message import Appended
from broker.model.stage import ONE_RUN_PREFIX, BatchCommit, BatchCommitted, StagedTxn, TxnCommand

TXNS_MAX: Final = 8192
"""Transactions of one commit; their record takes about half a megabyte."""
TICKS_MAX: Final = 1024
"""Commit ticks are remembered for batches on at most so many vchannels."""
ONE_RUN_MS: Final = 3_600_000
"""How long an app of a single run is remembered: as long as that run may retry its commit."""


class CommitState(Enum):
    """The phase of a two-phase commit."""

    PREPARING = "preparing"
    COMMITTING = "committing"
    ABORTING = "aborting"


COMMANDS: Final[Mapping[CommitState, TxnCommand]] = {
    CommitState.PREPARING: TxnCommand.PREPARE,
    CommitState.COMMITTING: TxnCommand.COMMIT,
    CommitState.ABORTING: TxnCommand.ABORT,
}
"""The command that each state sends to every transaction."""

_EXPIRED = StreamingCode.TRANSACTION_EXPIRED
_WRONG_STATE = StreamingCode.INVALID_TRANSACTION_STATE
FINAL: Final = frozenset(
    {_EXPIRED, _WRONG_STATE, StreamingCode.INVALID_ARGUMENT, StreamingCode.UNRECOVERABLE}
)
"""Refusals that a retry cannot change; after any other refusal the command is sent again."""


@dataclass(frozen=True, slots=True)
class CommitAttempt:
    """A commit in progress.

    `unanswered`: transactions whose answer to the command of this state is missing; never stored.
    `token` distinguishes it from an earlier attempt at the same transactions. `refusal`: why it
    aborts. `unknown`: vchannels whose commit tick is no longer known. `lost`: transactions that a
    damaged log could not commit.
    """

    commit: BatchCommit
    state: CommitState
    unanswered: frozenset[StagedTxn]
    refusal: Refusal | None = None
    ticks: Mapping[VChannelName, TimeTick] = field(default_factory=dict)
    unknown: frozenset[VChannelName] = frozenset()
    lost: tuple[StagedTxn, ...] = ()
    token: int = 0

    @property
    def vchannels(self) -> tuple[VChannelName, ...]:
        """The vchannels it commits on, each once."""
        return tuple(dict.fromkeys(it.vchannel for it in self.commit.txns))

    @property
    def complete(self) -> bool:
        """Whether every transaction has answered to the decision."""
        return not self.unanswered and self.state is not CommitState.PREPARING


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """The newest committed batch of an app, with its commit ticks. `done_ms`: wall clock."""

    batch: int
    ticks: Mapping[VChannelName, TimeTick]
    done_ms: int


@dataclass(frozen=True, slots=True)
class AppRecord:
    """The record of one app: its newest committed batch, and the commit in progress."""

    app: str
    done: CommittedBatch | None = None
    attempt: CommitAttempt | None = None

    def outcome(self, *, already: bool) -> BatchCommitted:
        """The answer about the newest batch."""
        assert self.done is not None, self.app
        return BatchCommitted(self.app, self.done.batch, self.done.ticks, already)


def commit_problem(commit: BatchCommit) -> str:
    """What is wrong with a commit request; empty when it is valid."""
    if commit.problem:
        return commit.problem
    if len(commit.txns) > TXNS_MAX:
        return (
            f"{len(commit.txns)} staged transactions; at most {TXNS_MAX} can be committed together"
        )
    seen: set[tuple[VChannelName, int]] = set()
    attempts: dict[int, int] = {}
    for txn in commit.txns:
        problem = commit.stage(txn).problem
        if problem:
            return problem
        if (txn.vchannel, txn.txn_id) in seen:
            return f"transaction {txn.txn_id} of {txn.vchannel} is named twice"
        seen.add((txn.vchannel, txn.txn_id))
        other = attempts.setdefault(txn.part, txn.attempt)
        if other != txn.attempt:
            pair = sorted((other, txn.attempt))
            return f"part {txn.part} has transactions of attempts {pair[0]} and {pair[1]}; keep one"
    return ""


def answer_at_once(known: AppRecord, commit: BatchCommit) -> BatchCommitted | Refusal | None:
    """The immediate answer to a commit request; None: start it, or join the attempt in progress."""
    # An app commits its batches one after the other, by number: a smaller one is a late repeat.
    if known.done is not None and commit.batch <= known.done.batch:
        return known.outcome(already=True)
    attempt = known.attempt
    if attempt is None:
        return None
    if attempt.commit.batch != commit.batch or set(attempt.commit.txns) != set(commit.txns):
        other = "another commit" if attempt.commit.batch == commit.batch else "the commit"
        return Refusal(
            StreamingCode.RESOURCE_ACQUIRED,
            f"{other} of batch {attempt.commit.batch} of app {commit.app!r} is"
            f" {attempt.state.value}; try again when it has ended",
        )
    return attempt.refusal


def started(known: AppRecord, commit: BatchCommit, token: int) -> AppRecord:
    """The record that has to be durable before the first prepare is sent."""
    assert known.attempt is None, known
    unanswered = frozenset(commit.txns)
    return replace(
        known, attempt=CommitAttempt(commit, CommitState.PREPARING, unanswered, token=token)
    )


def advanced(
    attempt: CommitAttempt, outcomes: Mapping[StagedTxn, Appended | Refusal]
) -> CommitAttempt:
    """The attempt after answers to the command of its state, possibly in the next state.

    The next state is in force once it is recorded, not before.
    """
    if attempt.state is CommitState.PREPARING:
        return _with_votes(attempt, outcomes)
    if attempt.state is CommitState.COMMITTING:
        return _with_commits(attempt, outcomes)
    answered = [it for it, outcome in outcomes.items() if _is_final(outcome)]
    return replace(attempt, unanswered=attempt.unanswered.difference(answered))


def aborted(attempt: CommitAttempt, cause: str) -> CommitAttempt:
    """The attempt, aborting because the prepares took too long.

    Only from PREPARING: a decision to commit is final. The refusal is TRANSACTION_EXPIRED: the
    staged transactions are rolled back, so a retry with the same ones cannot succeed.
    """
    assert attempt.state is CommitState.PREPARING, attempt
    return _aborting(attempt, Refusal(_EXPIRED, cause))


def finished(known: AppRecord, now_ms: int) -> AppRecord | None:
    """The record once the attempt is complete; None: delete it."""
    attempt = known.attempt
    assert attempt is not None, known
    assert attempt.complete, attempt
    if attempt.state is CommitState.ABORTING:
        return None if known.done is None else replace(known, attempt=None)
    ticks = {name: it for name, it in attempt.ticks.items() if name not in attempt.unknown}
    ticks = ticks if len(ticks) <= TICKS_MAX else {}
    return AppRecord(known.app, CommittedBatch(attempt.commit.batch, ticks, now_ms))


def expired_apps(apps: Sequence[AppRecord], now_ms: int, age_ms_max: int) -> tuple[AppRecord, ...]:
    """The apps whose last commit is so old that they are forgotten."""
    idle = [it for it in apps if it.attempt is None and it.done is not None]
    return tuple(it for it in idle if it.done and now_ms - it.done.done_ms > _kept(it, age_ms_max))


def _kept(known: AppRecord, age_ms_max: int) -> int:
    """Each run has an app name of its own; kept as long as others, they would fill the limit."""
    return min(age_ms_max, ONE_RUN_MS) if known.app.startswith(ONE_RUN_PREFIX) else age_ms_max


def _with_votes(
    attempt: CommitAttempt, outcomes: Mapping[StagedTxn, Appended | Refusal]
) -> CommitAttempt:
    for txn, outcome in outcomes.items():
        # One such vote decides, whatever the others are: no retry turns it into a vote to commit.
        if isinstance(outcome, Refusal) and outcome.code in FINAL:
            where = f"transaction {txn.txn_id} of {txn.vchannel}"
            cause = f"nothing of batch {attempt.commit.batch} is committed: {where} refused"
            return _aborting(attempt, Refusal(outcome.code, f"{cause}: {outcome.cause}"))
    prepared = [txn for txn, outcome in outcomes.items() if isinstance(outcome, Appended)]
    unanswered = attempt.unanswered.difference(prepared)
    if unanswered:
        return replace(attempt, unanswered=unanswered)
    return replace(attempt, state=CommitState.COMMITTING, unanswered=frozenset(attempt.commit.txns))


def _with_commits(
    attempt: CommitAttempt, outcomes: Mapping[StagedTxn, Appended | Refusal]
) -> CommitAttempt:
    ticks, unknown, lost = dict(attempt.ticks), set(attempt.unknown), list(attempt.lost)
    unanswered = set(attempt.unanswered)
    for txn, outcome in outcomes.items():
        if isinstance(outcome, Appended):
            ticks[txn.vchannel] = max(outcome.tick, ticks.get(txn.vchannel, outcome.tick))
        elif outcome.code is _EXPIRED:
            # It was prepared and nobody rolled it back, so it committed so long ago that its log
            # has forgotten the outcome, and with it the tick.
            unknown.add(txn.vchannel)
        elif outcome.code in FINAL:
            lost.append(txn)
        else:
            # Sent again until it has an answer: the decision is final, so it cannot be undone.
            continue
        unanswered.discard(txn)
    return replace(
        attempt,
        unanswered=frozenset(unanswered),
        ticks=ticks,
        unknown=frozenset(unknown),
        lost=tuple(lost),
    )


def _aborting(attempt: CommitAttempt, refusal: Refusal) -> CommitAttempt:
    # All of them: a transaction whose vote was lost may be prepared.
    unanswered = frozenset(attempt.commit.txns)
    return replace(attempt, state=CommitState.ABORTING, unanswered=unanswered, refusal=refusal)


def _is_final(outcome: Appended | Refusal) -> bool:
    return isinstance(outcome, Appended) or outcome.code in FINAL
