"""One two-phase commit: collects the votes, records the decision, and sends it until all know.

It owns the app's record while it runs, and records each decision before anyone hears of it. After
a crash its next incarnation resumes from the record: repeated commands are answered alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from actors import Actor, ActorError, Backoff, Context, Envelope
from broker.coordinator.commit.commit_records import CommitRecords, RecordedApp
from broker.coordinator.commit.messages import CommitChanged, CommitTaskMessage, SendCommand
from broker.coordinator.cuts.messages import COMMITS
from broker.coordinator.cuts.shared_cut_lock import SharedCutLock
from broker.coordinator.retries import Retries
from broker.core.txn.batch_commit import (
    COMMANDS,
    AppRecord,
    CommitAttempt,
    CommitState,
    aborted,
    advanced,
    finished,
)
from broker.model.failure import Refusal, Refused
from broker.ports.meta import Conflict, MetaError
from broker.ports.staged_txns import StagedTxns

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CommitTiming:
    """Seconds. A failure is retried after `retry_first_s`, doubling to `retry_max_s`."""

    retry_first_s: float = 0.01
    retry_max_s: float = 1.0
    prepare_s: float = 30.0
    """A batch that is not prepared after this time aborts; a restart counts from 0."""
    tell_s: float = 1.0


@dataclass(frozen=True, slots=True)
class CommitTaskParts:
    """Dependencies of every task."""

    records: CommitRecords
    txns: StagedTxns
    committer_path: str
    cut_lock_path: str
    timing: CommitTiming = CommitTiming()


class CommitTask(Actor[CommitTaskMessage]):
    """See the module. `first`: the record, which saves the first incarnation from reading it.

    One without a revision may be stored or not: the first round reads that, and again until the
    store answers.
    """

    _context: Context[CommitTaskMessage]
    _cut_lock: SharedCutLock
    _recorded: RecordedApp
    _attempt: CommitAttempt

    def __init__(
        self, name: str, app: str, parts: CommitTaskParts, first: RecordedApp | None = None
    ) -> None:
        self._name = name
        self._app = app
        self._parts = parts
        self._first = first
        backoff = Backoff(parts.timing.retry_first_s, parts.timing.retry_max_s)
        self._retries = Retries(backoff, "batch commit is stuck", app=app)
        self._unsent: CommitChanged | None = None
        self._began_s = 0.0
        # -1 equals no drawn token: a task without an attempt only reports the record and stops.
        self._token = -1
        if first is not None and first.known.attempt is not None:
            self._token = first.known.attempt.token

    async def started(self, context: Context[CommitTaskMessage]) -> None:
        """Read the record."""
        self._context = context
        # Not `held`: if an earlier incarnation acquired it, acquiring again returns at once, and
        # the Committer releases it in any case when the commit has ended.
        self._cut_lock = SharedCutLock(
            context.tree, self._parts.cut_lock_path, COMMITS, self._app, held=False
        )
        first = self._first if context.term == 1 else None
        # Not read here when it is unsure: the Committer waits for this start.
        if (first is None or first.revision) and not self._take(first or await self._read()):
            return
        context.after(0.0, SendCommand())

    async def _read(self) -> RecordedApp:
        recorded = await self._parts.records.read(self._app)
        # No record: an abort has ended, of an app that never committed a batch.
        return recorded or RecordedApp(AppRecord(self._app))

    def _take(self, recorded: RecordedApp) -> bool:
        """Go on from this record; False: not.

        Without an attempt in it the commit has ended, and the Committer may not know. Another
        attempt in it is a later commit, which has its own task: this one stops.
        """
        self._began_s = self._context.clock.monotonic_s()
        self._recorded = recorded
        if recorded.known.attempt is None:
            self._unsent = CommitChanged(self._name, recorded)
        elif recorded.known.attempt.token == self._token:
            self._attempt = recorded.known.attempt
        else:
            self._context.stop()
            return False
        return True

    async def receive(self, batch: Sequence[Envelope[CommitTaskMessage]]) -> None:
        """One round; after a failure the next one is planned with a pause."""
        try:
            await self._round()
        except Conflict:
            raise  # another incarnation writes the record: restart and read it
        except (MetaError, ActorError, Refused) as error:
            self._retries.failed(str(error))
            self._plan()

    def statistics(self) -> Mapping[str, int | float | str]:
        if not hasattr(self, "_attempt"):
            return {}
        attempt = self._attempt
        return {
            "app": self._app,
            "batch": attempt.commit.batch,
            "state": attempt.state.value,
            "txns": len(attempt.commit.txns),
            "unanswered": len(attempt.unanswered),
            "failures": self._retries.failures,
        }

    async def _round(self) -> None:
        """Send the command of this state to transactions without an answer; record the outcome."""
        if not hasattr(self, "_recorded") and not self._take(await self._read()):
            return
        if self._unsent is None and not self._attempt.complete:
            await self._acquire_cut_lock()
            await self._send_commands()
        if self._unsent is None and self._attempt.complete:
            self._unsent = await self._ended()
        if self._unsent is not None:
            await self._report(self._unsent)
            self._context.stop()
            return
        self._plan()

    async def _acquire_cut_lock(self) -> None:
        """Hold the cut lock before anything can become visible.

        Acquired before the first prepare, not before the commit: a prepared transaction blocks
        broadcasts on its vchannel, and the cut that this commit would wait for may wait for one of
        those broadcasts.
        """
        state = self._attempt.state
        if state is not CommitState.ABORTING and not self._cut_lock.held:
            await self._cut_lock.acquire(self._attempt.vchannels)
        elif state is CommitState.ABORTING and self._cut_lock.held:
            self._cut_lock.release()  # an aborted batch makes nothing visible

    async def _send_commands(self) -> None:
        before = self._attempt
        txns = sorted(before.unanswered)
        outcomes = await self._parts.txns.send(COMMANDS[before.state], before.commit, txns)
        after = advanced(before, outcomes)
        refusals = [it for it in outcomes.values() if isinstance(it, Refusal)]
        if after.unanswered == before.unanswered and after.state is before.state and refusals:
            self._retries.failed(f"{len(refusals)} refused; the first: {refusals[0].cause}")
            if before.state is CommitState.PREPARING:
                # Nothing is committed yet, so a cut need not wait for a node that is away.
                self._cut_lock.release()
        else:
            self._retries.succeeded()
        waited_s = self._context.clock.monotonic_s() - self._began_s
        # Only before the decision: once COMMITTING is recorded, it waits for each log for ever.
        if after.state is CommitState.PREPARING and waited_s >= self._parts.timing.prepare_s:
            cause = f"batch {before.commit.batch} could not be prepared within {waited_s:.0f} s"
            after = aborted(after, f"{cause}: {self._retries.error}; nothing of it is committed")
        await self._decide(after)

    async def _decide(self, after: CommitAttempt) -> None:
        """Record a new state before acting on it: the write is the decision, see batch_commit."""
        if after.state is not self._attempt.state:
            known = replace(self._recorded.known, attempt=after)
            self._recorded = await self._parts.records.save(self._recorded, known)
            self._attempt = after
            if not after.complete:
                await self._report(CommitChanged(self._name, self._recorded))
        # In the same state only answers were added. They are not stored: logs repeat them.
        self._attempt = after

    async def _ended(self) -> CommitChanged:
        """Record the end of the attempt: the batch as done, or nothing after an abort."""
        attempt = self._attempt
        if attempt.lost:
            # The decision stands: the rest is committed, and the answer says what is missing.
            log.error(
                "part of a committed batch is lost: its log is damaged",
                app=self._app,
                batch=attempt.commit.batch,
                lost=[f"{it.txn_id} of {it.vchannel}" for it in attempt.lost],
            )
        known = replace(self._recorded.known, attempt=attempt)
        after = finished(known, self._context.clock.wall_ms())
        if after is None:
            await self._parts.records.forget([self._recorded])
            recorded = RecordedApp(replace(known, attempt=None))
        else:
            recorded = await self._parts.records.save(self._recorded, after)
        return CommitChanged(self._name, recorded, ended=attempt)

    async def _report(self, news: CommitChanged) -> None:
        """Send to the current incarnation of the Committer."""
        committer = self._context.tree.find(self._parts.committer_path)
        await committer.send(news, deadline_s=self._parts.timing.tell_s)

    def _plan(self) -> None:
        self._context.after(self._retries.pause_s(self._context.random), SendCommand())
