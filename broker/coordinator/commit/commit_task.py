"""One commit of one batch on its way: prepares all, decides, and tells everybody until all know.

Owns the app's record while it lives; each decision is recorded before anybody hears of it. Killed,
it reads its record and goes on from there: what it says twice is answered alike.
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
    """Seconds. Whatever fails is tried again after `retry_first_s`, doubling to `retry_max_s`."""

    retry_first_s: float = 0.01
    retry_max_s: float = 1.0
    prepare_s: float = 30.0
    """A batch that cannot be prepared for so long is rolled back; a restart counts anew."""
    tell_s: float = 1.0


@dataclass(frozen=True, slots=True)
class CommitParts:
    """What every task stands on."""

    records: CommitRecords
    txns: StagedTxns
    committer_path: str
    cut_lock_path: str
    timing: CommitTiming = CommitTiming()


class CommitTask(Actor[CommitTaskMessage]):
    """See the module. `first`: the record, for the incarnation that was just made from it."""

    _context: Context[CommitTaskMessage]
    _cut_lock: SharedCutLock
    _recorded: RecordedApp
    _attempt: CommitAttempt

    def __init__(
        self, name: str, app: str, parts: CommitParts, first: RecordedApp | None = None
    ) -> None:
        self._name = name
        self._app = app
        self._parts = parts
        self._first = first
        backoff = Backoff(parts.timing.retry_first_s, parts.timing.retry_max_s)
        self._retries = Retries(backoff, "commit of a batch is stuck", app=app)
        self._unsent: CommitChanged | None = None
        self._began_s = 0.0
        self._token = -1
        if first is not None and first.known.attempt is not None:
            self._token = first.known.attempt.token

    async def started(self, context: Context[CommitTaskMessage]) -> None:
        """Read the record; without an attempt in it, all there is left to do is to say so.

        With another one it was said before: this task has nothing left to do.
        """
        self._context = context
        self._cut_lock = SharedCutLock(
            context.tree, self._parts.cut_lock_path, COMMITS, self._app, held=False
        )
        recorded = self._first if context.term == 1 else None
        recorded = recorded or await self._parts.records.read(self._app)
        recorded = recorded or RecordedApp(AppRecord(self._app))
        self._began_s = context.clock.monotonic_s()
        self._recorded = recorded
        if recorded.known.attempt is None:
            self._unsent = CommitChanged(self._name, recorded)
        elif recorded.known.attempt.token == self._token:
            self._attempt = recorded.known.attempt
        else:
            context.stop()
            return
        context.after(0.0, SendCommand())

    async def receive(self, batch: Sequence[Envelope[CommitTaskMessage]]) -> None:
        """One round; what failed is planned again."""
        try:
            await self._round()
        except Conflict:
            raise  # somebody else has the app: the next incarnation reads how it stands
        except (MetaError, ActorError, Refused) as error:
            self._retries.failed(str(error))
            self._plan()

    def statistics(self) -> Mapping[str, int | float | str]:
        if not hasattr(self, "_attempt"):
            return {}
        attempt = self._attempt
        return {
            "app": self._app,
            "batch": attempt.asked.batch,
            "state": attempt.state.value,
            "txns": len(attempt.asked.txns),
            "left": len(attempt.left),
            "failures": self._retries.failures,
        }

    async def _round(self) -> None:
        """Say the word of this state to those who are left; record what comes of it."""
        if self._unsent is None and not self._attempt.over:
            await self._acquire_cut_lock()
            await self._send_commands()
        if self._unsent is None and self._attempt.over:
            self._unsent = await self._ended()
        if self._unsent is not None:
            await self._tell(self._unsent)
            self._context.stop()
            return
        self._plan()

    async def _acquire_cut_lock(self) -> None:
        """What may make something visible is not begun while a cut is taken.

        Before the first prepare: what is prepared holds up broadcasts, which a cut may wait for.
        """
        state = self._attempt.state
        if state is not CommitState.ABORTING and not self._cut_lock.held:
            await self._cut_lock.acquire(self._attempt.vchannels)
        elif state is CommitState.ABORTING and self._cut_lock.held:
            self._cut_lock.release()  # nothing of it is visible

    async def _send_commands(self) -> None:
        before = self._attempt
        txns = sorted(before.left)
        outcomes = await self._parts.txns.send(COMMANDS[before.state], before.asked, txns)
        after = advanced(before, outcomes)
        refusals = [it for it in outcomes.values() if isinstance(it, Refusal)]
        if after.left == before.left and after.state is before.state and refusals:
            self._retries.failed(f"{len(refusals)} refused; the first: {refusals[0].cause}")
            if before.state is CommitState.PREPARING:
                # A cut need not wait for a node that is away.
                self._cut_lock.release()
        else:
            self._retries.succeeded()
        waited_s = self._context.clock.monotonic_s() - self._began_s
        if after.state is CommitState.PREPARING and waited_s >= self._parts.timing.prepare_s:
            cause = f"batch {before.asked.batch} could not be prepared within {waited_s:.0f} s"
            after = aborted(after, f"{cause}: {self._retries.error}; nothing of it is committed")
        await self._decide(after)

    async def _decide(self, after: CommitAttempt) -> None:
        """A new state is durable before it holds."""
        if after.state is not self._attempt.state:
            known = replace(self._recorded.known, attempt=after)
            self._recorded = await self._parts.records.save(self._recorded, known)
            self._attempt = after
            if not after.over:
                await self._tell(CommitChanged(self._name, self._recorded))
        self._attempt = after

    async def _ended(self) -> CommitChanged:
        """Remember the batch, or that there was none."""
        attempt = self._attempt
        if attempt.lost:
            log.error(
                "a damaged log has lost part of a batch",
                app=self._app,
                batch=attempt.asked.batch,
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

    async def _tell(self, news: CommitChanged) -> None:
        """To whoever is the Committer now."""
        committer = self._context.tree.find(self._parts.committer_path)
        await committer.send(news, deadline_s=self._parts.timing.tell_s)

    def _plan(self) -> None:
        self._context.after(self._retries.pause_s(self._context.random), SendCommand())
