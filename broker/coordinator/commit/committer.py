"""Takes batch commits: one at a time for each app, and remembers each app's newest batch.

Writes the first record of a commit; from then on the record belongs to its CommitTask, which talks
to the transactions. When the Committer dies its tasks are stopped too, and its next incarnation
resumes what is recorded before it takes requests.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

import structlog

from actors import TRANSIENT, Actor, ChildSpec, Context, Envelope, MailboxSpec, NotRunning
from broker.coordinator.commit.commit_records import RecordedApp
from broker.coordinator.commit.commit_task import CommitTask, CommitTaskParts
from broker.coordinator.commit.messages import (
    CommitBatch,
    CommitChanged,
    CommitterMessage,
    CommitView,
    ForgetIdleApps,
    ListCommits,
    ResumeCommits,
)
from broker.coordinator.cuts.messages import COMMITS, ReleaseShared, RestoreShared
from broker.core.naming import pchannel_of
from broker.core.txn.batch_commit import (
    AppRecord,
    CommitAttempt,
    CommitState,
    answer_at_once,
    commit_problem,
    expired_apps,
    started,
)
from broker.model.failure import Refusal, Refused, StreamingCode, invalid_argument
from broker.model.ids import PChannelName
from broker.model.stage import BatchCommit, BatchCommitted
from broker.ports.meta import Conflict, MetaError, WriteTooLarge, WriteUnconfirmed
from broker.ports.meta_writes import VALUE_BYTES_MAX

START_S = 10.0
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CommitterLimits:
    """Bounds on remembered apps, on their age, and on commits in progress."""

    apps_max: int = 4096
    """Apps whose newest batch is remembered; a new one beyond this is refused."""
    app_age_ms: int = 30 * 24 * 3600 * 1000
    """An app whose last commit is older is forgotten: its batch numbers start again. An app of a
    single run is forgotten after ONE_RUN_MS: no later run uses its name."""
    under_way_max: int = 256
    """Commits under way at a time; more are refused for now."""
    callers_max: int = 64
    """Callers that wait for one commit."""
    forget_s: float = 300.0
    """Time between two checks for apps that are silent for too long."""


@dataclass(slots=True)
class RunningCommit:
    """A commit in progress and its callers; `since_s` on this process's clock.

    Recorded, unless that write got no answer: then its task finds out.
    """

    commit: BatchCommit
    recorded: RecordedApp
    since_s: float
    task: str = ""
    callers: list[Envelope[CommitterMessage]] = field(default_factory=list)

    def reply(self, answer: BatchCommitted | Refused) -> None:
        """Answer all callers; a Refused is raised to them."""
        for caller in self.callers:
            if isinstance(answer, Refused):
                caller.fail(answer)
            else:
                caller.reply(answer)
        self.callers.clear()


class Committer(Actor[CommitterMessage]):
    """See the module. `pchannels`: all of the cluster."""

    _context: Context[CommitterMessage]

    def __init__(
        self,
        parts: CommitTaskParts,
        limits: CommitterLimits,
        pchannels: Collection[PChannelName],
        tasks_path: str,
    ) -> None:
        self._parts = parts
        self._limits = limits
        self._pchannels = frozenset(pchannels)
        self._tasks_path = tasks_path
        self._apps: dict[str, RecordedApp] = {}
        self._under_way: dict[str, RunningCommit] = {}
        self._tasks = self._committed = 0

    async def started(self, context: Context[CommitterMessage]) -> None:
        """Load the records and report open commits to the cut lock, before the first request."""
        self._context = context
        for recorded in await self._parts.records.load():
            known = recorded.known
            self._apps[known.app] = recorded
            if known.attempt is not None:
                self._under_way[known.app] = RunningCommit(
                    known.attempt.commit, recorded, self._now_s()
                )
        await self._restore_cut_lock()
        context.every(self._limits.forget_s, ForgetIdleApps())
        # By a message: starting many tasks here could exceed this actor's start deadline.
        context.after(0.0, ResumeCommits(tuple(self._under_way)))

    async def receive(self, batch: Sequence[Envelope[CommitterMessage]]) -> None:
        for envelope in batch:
            match envelope.message:
                case CommitBatch(commit):
                    await self._commit(commit, envelope)
                case CommitChanged() as moved:
                    self._moved(moved)
                case ListCommits():
                    envelope.reply(self._views())
                case ResumeCommits(apps):
                    for app in apps:
                        await self._start_task(self._under_way[app])
                case ForgetIdleApps():
                    await self._forget()
                case _:
                    assert_never(envelope.message)

    def statistics(self) -> Mapping[str, int | float | str]:
        """Apps, commits by state, age of the oldest, and batches committed since the start."""
        attempts = [it.recorded.known.attempt for it in self._under_way.values()]
        states = Counter([it.state for it in attempts if it is not None])
        ages_s = [self._now_s() - it.since_s for it in self._under_way.values()]
        return {
            "apps": len(self._apps),
            **{state.value: states[state] for state in CommitState},
            "oldest_s": max(ages_s, default=0.0),
            "committed": self._committed,
        }

    # ---- starting a commit ---------------------------------------------------------------------

    async def _commit(self, commit: BatchCommit, caller: Envelope[CommitterMessage]) -> None:
        wrong = commit_problem(commit) or self._misplaced(commit)
        if wrong:
            caller.fail(Refused(StreamingCode.INVALID_ARGUMENT, wrong))
            return
        recorded = self._apps.get(commit.app) or RecordedApp(AppRecord(commit.app))
        verdict = answer_at_once(recorded.known, commit)
        if isinstance(verdict, BatchCommitted):
            caller.reply(verdict)
        elif isinstance(verdict, Refusal):
            caller.fail(Refused(verdict.code, verdict.cause))
        elif recorded.known.attempt is not None:
            self._join(self._under_way[commit.app], caller)
        else:
            await self._begin(commit, recorded, caller)

    async def _begin(
        self, commit: BatchCommit, recorded: RecordedApp, caller: Envelope[CommitterMessage]
    ) -> None:
        full = self._full(commit.app)
        if full:
            caller.fail(Refused(StreamingCode.INNER, full))
            return
        callers = [caller]
        # The token tells a task left over from an earlier attempt that this is not its own.
        known = started(recorded.known, commit, self._context.random.getrandbits(63))
        try:
            # Before any prepare is sent: see step 1 of the argument in batch_commit.
            recorded = await self._parts.records.begin(recorded, known)
        except Conflict:
            raise  # another Committer is at work: restart and read its records
        except WriteTooLarge as error:
            cause = f"batch {commit.batch} of {len(commit.txns)} staged transactions has a record"
            cause += f" of {error.size} bytes, at most {VALUE_BYTES_MAX} are possible"
            refused = invalid_argument(f"{cause}; nothing was committed: commit fewer at a time")
            caller.fail(refused)
            return
        except WriteUnconfirmed as error:
            cause = f"batch {commit.batch} of app {commit.app!r} may still be committed: {error}:"
            cause += " commit it again, with the same transactions"
            caller.fail(Refused(StreamingCode.UNKNOWN, cause))
            # Its task goes on when it has read whether the commit is recorded, and ends if not.
            callers, recorded = [], RecordedApp(known)
        except MetaError as error:
            caller.fail(Refused(StreamingCode.INNER, f"nothing was committed: {error}"))
            return
        self._apps[commit.app] = recorded
        under_way = self._under_way[commit.app] = RunningCommit(
            commit, recorded, self._now_s(), callers=callers
        )
        await self._start_task(under_way)

    def _join(self, under_way: RunningCommit, caller: Envelope[CommitterMessage]) -> None:
        under_way.callers = [it for it in under_way.callers if it.wanted()]
        if len(under_way.callers) >= self._limits.callers_max:
            cause = f"{len(under_way.callers)} callers wait for this commit already"
            caller.fail(Refused(StreamingCode.INNER, f"{cause}; try again later"))
        else:
            under_way.callers.append(caller)

    def _misplaced(self, commit: BatchCommit) -> str:
        for txn in commit.txns:
            if pchannel_of(txn.vchannel) not in self._pchannels:
                return f"vchannel {txn.vchannel!r} is on no pchannel of this cluster"
        return ""

    def _full(self, app: str) -> str:
        limits = self._limits
        if len(self._under_way) >= limits.under_way_max:
            return f"{limits.under_way_max} commits are in progress; try again later"
        if app not in self._apps and len(self._apps) >= limits.apps_max:
            return (
                f"{limits.apps_max} apps are remembered already; use the same name in each run of a"
                " job, or wait until idle ones are forgotten"
            )
        return ""

    async def _restore_cut_lock(self) -> None:
        """Report commits that may be half visible: no cut is granted before they are complete."""
        # One that still prepares makes nothing visible, and its task acquires the lock anew.
        attempts = [it.recorded.known.attempt for it in self._under_way.values()]
        entries = {
            it.commit.app: it.vchannels
            for it in attempts
            if it is not None and it.state is CommitState.COMMITTING
        }
        cut_lock = self._context.tree.find(self._parts.cut_lock_path)
        await cut_lock.ask(RestoreShared(COMMITS, entries), deadline_s=START_S)

    async def _start_task(self, under_way: RunningCommit) -> None:
        recorded = under_way.recorded
        self._tasks += 1
        name = under_way.task = str(self._tasks)
        spec = ChildSpec(
            name,
            lambda: CommitTask(name, recorded.known.app, self._parts, recorded),
            MailboxSpec(bound=16),
            restart=TRANSIENT,
            stop_deadline_s=1.0,
            patient=True,
        )
        try:
            await self._context.tree.start_child(self._tasks_path, spec, deadline_s=START_S)
        except NotRunning as error:
            log.warning("commit waits for the store", app=recorded.known.app, error=str(error))

    # ---- progress and end ----------------------------------------------------------------------

    def _moved(self, moved: CommitChanged) -> None:
        known = moved.recorded.known
        under_way = self._under_way.get(known.app)
        if under_way is None or under_way.task != moved.task:
            return  # repeated news of a commit that has ended
        self._apps[known.app] = under_way.recorded = moved.recorded
        if known.attempt is None:
            self._context.tree.find(self._parts.cut_lock_path).tell(
                ReleaseShared(COMMITS, known.app)
            )
            del self._under_way[known.app]
            under_way.reply(_answer(under_way.commit, known, moved.ended))
            if known.done is None:
                del self._apps[known.app]  # its record was deleted: the app never committed
            elif known.done.batch == under_way.commit.batch:
                self._committed += 1
        elif known.attempt.refusal is not None:
            # The abort is recorded, so it is final: callers need not wait for the rollbacks.
            under_way.reply(_refused(known.attempt.refusal))

    async def _forget(self) -> None:
        now_ms = self._context.clock.wall_ms()
        apps = [it.known for it in self._apps.values()]
        old = expired_apps(apps, now_ms, self._limits.app_age_ms)
        if not old:
            return
        try:
            await self._parts.records.forget([self._apps[it.app] for it in old])
        except Conflict:
            raise  # another Committer is at work: restart and read its records
        except MetaError as error:
            log.warning("cannot forget idle apps", error=str(error))
            return
        for known in old:
            del self._apps[known.app]

    def _views(self) -> tuple[CommitView, ...]:
        return tuple([self._view(app) for app in sorted(self._apps)])

    def _view(self, app: str) -> CommitView:
        known = self._apps[app].known
        done, attempt = known.done, known.attempt
        view = CommitView(app, -1, 0)
        if done is not None:
            view = CommitView(app, done.batch, done.done_ms, vchannels=tuple(done.ticks))
        if attempt is None:
            return view
        return replace(
            view,
            under_way=attempt.commit.batch,
            state=attempt.state.value,
            txns=len(attempt.commit.txns),
            age_ms=round(1000 * (self._now_s() - self._under_way[app].since_s)),
            vchannels=(*view.vchannels, *attempt.vchannels),
        )

    def _now_s(self) -> float:
        return self._context.clock.monotonic_s()


def _answer(
    commit: BatchCommit, known: AppRecord, ended: CommitAttempt | None
) -> BatchCommitted | Refused:
    if known.done is None or known.done.batch != commit.batch:
        # Without `ended` the task has restarted after the end; then the reason is not known.
        refusal = ended and ended.refusal
        cause = f"nothing of batch {commit.batch} of app {commit.app!r} is committed"
        return _refused(refusal or Refusal(StreamingCode.INNER, cause))
    if ended is not None and ended.lost:
        return _refused(
            Refusal(
                StreamingCode.UNRECOVERABLE,
                f"batch {commit.batch} is committed except for {len(ended.lost)} transactions that"
                f" a damaged log has lost, the first on {ended.lost[0].vchannel}",
            )
        )
    return known.outcome(already=False)


def _refused(refusal: Refusal) -> Refused:
    return Refused(refusal.code, refusal.cause)
