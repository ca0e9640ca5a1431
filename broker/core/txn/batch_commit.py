"""The commit of one batch: a two-phase commit, as a value that every outcome moves on.

Owns the decisions: when all is prepared, when none of it may be committed, when it is over; and
what an app that asks again is told. Never talks to anybody and never stores anything.

Why a batch is committed whole or not at all, and once, whoever is killed when:
1. What is asked is recorded as PREPARING before any transaction is touched. So whoever has the
   record knows every transaction that may have been prepared, and none is prepared that no record
   names. A prepare that comes late, from an incarnation that is gone, finds its transaction ended
   and is refused, or finds it still named by the record.
2. A transaction that is prepared is so in its own log. It stays open over restarts and changes of
   owner until its log has the word of the coordinator: neither time nor an exclusive message ends
   it, and its client cannot.
3. COMMITTING is recorded only when every transaction has answered that it is prepared: that write
   is the commit. ABORTING is recorded, instead, before the first rollback. Each replaces exactly
   PREPARING, by compare-and-set, so a batch gets one of them and nothing changes it any more.
4. Under COMMITTING each transaction is told to commit until its log says that it has. By 2 it is
   still prepared, or has committed: one that its log has forgotten is of the second kind, because
   by 3 nobody rolled it back. So in the end all are committed; a repeat does nothing.
5. Under ABORTING each is told to roll back until its log says that it has, or does not know it. So
   in the end none is committed, and none stays prepared.
6. The app's record then names the batch as done, in the write that ends the commit. From then on
   this batch, and every earlier one, is answered with that and touches nothing; what was staged for
   it again is in flight, and is given up. Before that write the app has this one commit under way
   and takes no other. So a batch takes effect once.
7. A cut that splits no batch: a commit stands inside of the gate from before the first prepare,
   and at the latest before COMMITTING is recorded, until all are committed; a new incarnation tells
   the gate of it before any cut is taken. So between two commits of one batch no cut is taken.
What this stands on: a log that keeps what it acknowledged. One that lost records by damage is
reported as such; a transaction that lost its prepare by it is named in the answer (`lost`).
Next: broker/coordinator/commit/commit_task.py
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
"""In one commit; a record of them has about half a megabyte."""
TICKS_MAX: Final = 1024
"""Of more vchannels than these it is not remembered where they were committed."""
ONE_RUN_MS: Final = 3_600_000
"""An app of one run is remembered no longer: for as long as that run may ask again."""


class CommitState(Enum):
    """Where the commit of a batch is."""

    PREPARING = "preparing"
    COMMITTING = "committing"
    ABORTING = "aborting"


COMMANDS: Final[Mapping[CommitState, TxnCommand]] = {
    CommitState.PREPARING: TxnCommand.PREPARE,
    CommitState.COMMITTING: TxnCommand.COMMIT,
    CommitState.ABORTING: TxnCommand.ABORT,
}
"""What each transaction is told in each state."""

_GONE = StreamingCode.TRANSACTION_EXPIRED
_WRONG = StreamingCode.INVALID_TRANSACTION_STATE
FINAL: Final = frozenset(
    {_GONE, _WRONG, StreamingCode.INVALID_ARGUMENT, StreamingCode.UNRECOVERABLE}
)
"""A transaction that is refused so would be refused so for ever; everything else is tried again."""


@dataclass(frozen=True, slots=True)
class CommitAttempt:
    """A commit under way. `left`: who has not answered yet in this state; it is never stored.

    `token` tells it from an earlier one of the same transactions. `refusal`: why it is aborting.
    `lost`: what a damaged log could not commit.
    """

    asked: BatchCommit
    state: CommitState
    left: frozenset[StagedTxn]
    refusal: Refusal | None = None
    ticks: Mapping[VChannelName, TimeTick] = field(default_factory=dict)
    unknown: frozenset[VChannelName] = frozenset()
    lost: tuple[StagedTxn, ...] = ()
    token: int = 0

    @property
    def vchannels(self) -> tuple[VChannelName, ...]:
        """Where it has something to commit, each once."""
        return tuple(dict.fromkeys(it.vchannel for it in self.asked.txns))

    @property
    def over(self) -> bool:
        """Whether there is nothing left to do but to say so."""
        return not self.left and self.state is not CommitState.PREPARING


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """The newest batch of an app that took effect, and where. `done_ms`: when."""

    batch: int
    ticks: Mapping[VChannelName, TimeTick]
    done_ms: int


@dataclass(frozen=True, slots=True)
class AppRecord:
    """What is remembered of one app: its newest batch, and the commit that is under way."""

    app: str
    done: CommittedBatch | None = None
    attempt: CommitAttempt | None = None

    def outcome(self, *, already: bool) -> BatchCommitted:
        """What is told of the newest batch."""
        assert self.done is not None, self.app
        return BatchCommitted(self.app, self.done.batch, self.done.ticks, already)


def commit_problem(asked: BatchCommit) -> str:
    """Why such a commit can never be; empty when it can."""
    if asked.problem:
        return asked.problem
    if len(asked.txns) > TXNS_MAX:
        return f"{len(asked.txns)} staged transactions; at most {TXNS_MAX} can be committed as one"
    seen: set[tuple[VChannelName, int]] = set()
    attempts: dict[int, int] = {}
    for txn in asked.txns:
        problem = asked.stage(txn).problem
        if problem:
            return problem
        if (txn.vchannel, txn.txn_id) in seen:
            return f"transaction {txn.txn_id} of {txn.vchannel} is named twice"
        seen.add((txn.vchannel, txn.txn_id))
        other = attempts.setdefault(txn.part, txn.attempt)
        if other != txn.attempt:
            pair = sorted((other, txn.attempt))
            return f"part {txn.part} is there twice, of attempts {pair[0]} and {pair[1]}; keep one"
    return ""


def answer_at_once(known: AppRecord, asked: BatchCommit) -> BatchCommitted | Refusal | None:
    """What to answer at once; None: it is begun, or it is the one that is under way."""
    if known.done is not None and asked.batch <= known.done.batch:
        return known.outcome(already=True)
    attempt = known.attempt
    if attempt is None:
        return None
    if attempt.asked.batch != asked.batch or set(attempt.asked.txns) != set(asked.txns):
        other = "another commit" if attempt.asked.batch == asked.batch else "the commit"
        return Refusal(
            StreamingCode.RESOURCE_ACQUIRED,
            f"{other} of batch {attempt.asked.batch} of app {asked.app!r} is"
            f" {attempt.state.value}; ask again when it is over",
        )
    return attempt.refusal


def started(known: AppRecord, asked: BatchCommit, token: int) -> AppRecord:
    """The app with this commit, as it is recorded before anything is done."""
    assert known.attempt is None, known
    left = frozenset(asked.txns)
    return replace(known, attempt=CommitAttempt(asked, CommitState.PREPARING, left, token=token))


def advanced(
    attempt: CommitAttempt, outcomes: Mapping[StagedTxn, Appended | Refusal]
) -> CommitAttempt:
    """What transactions answered to the word of this state; it may bring the next state.

    The next state holds when it is recorded, and not before.
    """
    if attempt.state is CommitState.PREPARING:
        return _heard_preparing(attempt, outcomes)
    if attempt.state is CommitState.COMMITTING:
        return _heard_committing(attempt, outcomes)
    over = [it for it, outcome in outcomes.items() if _is_final(outcome)]
    return replace(attempt, left=attempt.left.difference(over))


def aborted(attempt: CommitAttempt, cause: str) -> CommitAttempt:
    """It could not be prepared in time; a decision to commit is never given up.

    What was staged is rolled back, so that asking again with the same would be of no use.
    """
    assert attempt.state is CommitState.PREPARING, attempt
    return _aborting(attempt, Refusal(_GONE, cause))


def finished(known: AppRecord, now_ms: int) -> AppRecord | None:
    """What is remembered when the attempt is over; None: nothing."""
    attempt = known.attempt
    assert attempt is not None, known
    assert attempt.over, attempt
    if attempt.state is CommitState.ABORTING:
        return None if known.done is None else replace(known, attempt=None)
    told = {name: it for name, it in attempt.ticks.items() if name not in attempt.unknown}
    ticks = told if len(told) <= TICKS_MAX else {}
    return AppRecord(known.app, CommittedBatch(attempt.asked.batch, ticks, now_ms))


def expired_apps(apps: Sequence[AppRecord], now_ms: int, age_ms_max: int) -> tuple[AppRecord, ...]:
    """The apps that have committed nothing for so long that they are forgotten."""
    idle = [it for it in apps if it.attempt is None and it.done is not None]
    return tuple(it for it in idle if it.done and now_ms - it.done.done_ms > _kept(it, age_ms_max))


def _kept(known: AppRecord, age_ms_max: int) -> int:
    """Each of them has a name of its own, so that many would leave no room for others."""
    return min(age_ms_max, ONE_RUN_MS) if known.app.startswith(ONE_RUN_PREFIX) else age_ms_max


def _heard_preparing(
    attempt: CommitAttempt, outcomes: Mapping[StagedTxn, Appended | Refusal]
) -> CommitAttempt:
    for txn, outcome in outcomes.items():
        if isinstance(outcome, Refusal) and outcome.code in FINAL:
            where = f"transaction {txn.txn_id} of {txn.vchannel}"
            cause = f"nothing of batch {attempt.asked.batch} is committed: {where} cannot be"
            return _aborting(attempt, Refusal(outcome.code, f"{cause}: {outcome.cause}"))
    prepared = [txn for txn, outcome in outcomes.items() if isinstance(outcome, Appended)]
    left = attempt.left.difference(prepared)
    if left:
        return replace(attempt, left=left)
    return replace(attempt, state=CommitState.COMMITTING, left=frozenset(attempt.asked.txns))


def _heard_committing(
    attempt: CommitAttempt, outcomes: Mapping[StagedTxn, Appended | Refusal]
) -> CommitAttempt:
    ticks, unknown, lost = dict(attempt.ticks), set(attempt.unknown), list(attempt.lost)
    left = set(attempt.left)
    for txn, outcome in outcomes.items():
        if isinstance(outcome, Appended):
            ticks[txn.vchannel] = max(outcome.tick, ticks.get(txn.vchannel, outcome.tick))
        elif outcome.code is _GONE:  # it was committed so long ago that its log has forgotten it
            unknown.add(txn.vchannel)
        elif outcome.code in FINAL:
            lost.append(txn)
        else:
            continue
        left.discard(txn)
    return replace(
        attempt,
        left=frozenset(left),
        ticks=ticks,
        unknown=frozenset(unknown),
        lost=tuple(lost),
    )


def _aborting(attempt: CommitAttempt, refusal: Refusal) -> CommitAttempt:
    left = frozenset(attempt.asked.txns)
    return replace(attempt, state=CommitState.ABORTING, left=left, refusal=refusal)


def _is_final(outcome: Appended | Refusal) -> bool:
    return isinstance(outcome, Appended) or outcome.code in FINAL
