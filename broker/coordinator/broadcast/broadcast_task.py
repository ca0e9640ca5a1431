"""Runs one broadcast: appends its copies, collects acknowledgements, runs the callback.

It owns the broadcast's record, which is always written before anyone is notified. The Broadcaster
decides when it may finish; the task announces its state repeatedly, so that no lost message can
stop it. After a crash it resumes from the record; a copy that was appended but not recorded is
appended again, and readers recognise it by the broadcast id.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import assert_never

import structlog

from actors import (
    TRANSIENT,
    Actor,
    ActorError,
    Backoff,
    ChildSpec,
    Context,
    Envelope,
    MailboxSpec,
    Timer,
)
from actors.clock import deadline
from broker.coordinator.broadcast.broadcast_records import RecordedBroadcast
from broker.coordinator.broadcast.broadcast_task_parts import BroadcastTaskParts
from broker.coordinator.broadcast.messages import (
    Announce,
    BroadcasterMessage,
    BroadcastTaskMessage,
    LeaveQuarantine,
    MayFinish,
    TakeAck,
    TaskChanged,
    Work,
)
from broker.coordinator.cuts.messages import BROADCASTS
from broker.coordinator.cuts.shared_cut_lock import SharedCutLock
from broker.coordinator.retries import Retries
from broker.core.cluster.broadcast_state import (
    BroadcastPhase,
    BroadcastState,
    BroadcastStep,
    advanced,
    poisoned,
    retried,
    with_ack,
    with_appended,
)
from broker.core.naming import pchannel_of
from broker.model.broadcast import BroadcastCopy
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.message import Appended
from broker.ports.callbacks import Callback, EndRecord, EndsBroadcast, FailedForGood
from broker.ports.meta import Conflict, MetaError

FINAL_CODES = frozenset(
    {
        StreamingCode.INVALID_ARGUMENT,
        StreamingCode.UNRECOVERABLE,
        StreamingCode.REPLICATE_VIOLATION,
        StreamingCode.SCHEMA_VERSION_MISMATCH,
    }
)
"""Refusals of a copy that a retry cannot change: the broadcast goes into quarantine."""

log = structlog.get_logger(__name__)


class BroadcastTask(Actor[BroadcastTaskMessage]):
    """See the module. `first`: the record, which saves the first incarnation from reading it.

    `may_finish`: its place in the order of callbacks is free already.
    """

    _context: Context[BroadcastTaskMessage]
    _cut_lock: SharedCutLock
    _recorded: RecordedBroadcast
    _task: BroadcastState
    _callback: Callback | None

    def __init__(
        self,
        name: str,
        parts: BroadcastTaskParts,
        first: RecordedBroadcast | None = None,
        *,
        may_finish: bool = False,
    ) -> None:
        self._name = name
        self._parts = parts
        self._first = first
        self._may_finish = may_finish
        self._announced: TaskChanged | None = None
        self._polls = 0
        backoff = Backoff(parts.timing.retry_first_s, parts.timing.retry_max_s)
        self._retries = Retries(backoff, "broadcast is stuck", broadcast=name)
        self._timer: Timer | None = None

    async def started(self, context: Context[BroadcastTaskMessage]) -> None:
        """Read the record; without one the broadcast was finished and forgotten meanwhile."""
        self._context = context
        # `held`, because an earlier incarnation may have acquired it; an extra release is harmless.
        self._cut_lock = SharedCutLock(
            context.tree, self._parts.cut_lock_path, BROADCASTS, self._name, held=True
        )
        # A later incarnation reads: its predecessor may have changed the record.
        recorded = self._first if context.term == 1 else None
        recorded = recorded or await self._parts.records.read(self._name)
        if recorded is None:
            self._cut_lock.release()
            context.stop()
            return
        self._recorded = recorded
        self._task = recorded.task
        self._callback = self._parts.callbacks.get(recorded.task.broadcast.type)
        self._began_s = context.clock.monotonic_s()
        context.every(self._parts.timing.announce_s, Announce())
        self._plan(0.0)

    async def receive(self, batch: Sequence[Envelope[BroadcastTaskMessage]]) -> None:
        for envelope in batch:
            try:
                await self._handle(envelope.message)
            except Conflict:
                raise  # another incarnation writes the record: restart and read it
            except (MetaError, ActorError, Refused) as error:
                self._failed(str(error))

    def statistics(self) -> Mapping[str, int | float | str]:
        if not hasattr(self, "_task"):
            return {}
        task = self._task
        return {
            "state": task.state.value,
            "vchannels": len(task.acked),
            "appended": len(task.acked) - len(task.to_append),
            "acked": sum(task.acked),
            "failures": self._retries.failures,
            "poison": task.poison,
        }

    async def _handle(self, message: BroadcastTaskMessage) -> None:
        match message:
            case Work():
                self._timer = None
                await self._work()
            case Announce():
                if self._has_news():
                    await self._announce()
            case MayFinish():
                # Repeated, it must not cut the pause before a retry short.
                if not self._may_finish:
                    self._may_finish = True
                    self._plan(0.0)
            case TakeAck(vchannel, where, caller):
                await self._changed_for(caller, with_ack(self._task, vchannel, where))
            case LeaveQuarantine(skip, caller):
                await self._leave_quarantine(skip, caller)
            case _:
                assert_never(message)

    async def _work(self) -> None:
        """Do what is possible now; plan the next attempt for what failed or has to be awaited."""
        # What an earlier round could not store: it must be durable before anything follows from it.
        await self._save(self._task)
        before, tried = self._task, False
        if self._task.appends:
            # Before the first append: a cut must not have one copy and miss another.
            await self._cut_lock.acquire(self._task.broadcast.vchannels)
            await self._append()
            tried = await self._end_at_once()
            # Before anyone is told: what landed is stored here if it was not with the end.
            await self._save(self._task)
        # Also when it is in quarantine: cuts must not wait for an operator.
        if self._cut_lock.held and not self._task.appends:
            self._cut_lock.release()
        # Only copies with `ack_sync_up` are left here: others count when they are durable.
        if self._task.to_process and self._parts.node_acks:
            await self._poll_processed()
        if self._may_finish and self._task.may_finish and not tried:
            await self._finish(*self._ending())
        if self._task.state is BroadcastPhase.TOMBSTONE:
            # The Broadcaster releases the keys on this news only, so the task stops after it. If
            # it cannot be sent, the next round repeats it, without the callback.
            await self._announce()
            self._context.stop()
        elif self._task is not before or self._announced is None:
            if self._task is not before:
                self._retries.succeeded()
                self._polls = 0
            await self._announce()
        if self._unfinished():
            self._plan(self._pause_s())

    def _unfinished(self) -> bool:
        """Whether copies are to be appended or polled for."""
        task = self._task
        return task.appends or (bool(task.to_process) and self._parts.node_acks)

    async def _append(self) -> None:
        """Append to each vchannel without a copy, once; the caller records all successes."""
        task = self._task
        copies = [BroadcastCopy(task.id, vchannel, task.broadcast) for vchannel in task.to_append]
        outcomes = await self._parts.copies.append(copies)
        landed, refusals = {}, {}
        for copy, outcome in zip(copies, outcomes, strict=True):
            if isinstance(outcome, Appended):
                landed[copy.vchannel] = outcome
            else:
                refusals[copy.vchannel] = outcome
        # Also after partial failure: what is recorded is not appended again.
        self._task = with_appended(self._task, landed)
        for vchannel, refusal in refusals.items():
            if refusal.code in FINAL_CODES:
                self._task = poisoned(self._task, f"{vchannel} refuses its copy: {refusal.cause}")
                log.error("broadcast in quarantine", broadcast=self._name, cause=self._task.poison)
        if refusals:
            self._retries.failed(_describe(tuple(refusals.values())))
        if not self._task.to_append:
            self._parts.meters.broadcast.add(self._context.clock.monotonic_s() - self._began_s)

    async def _poll_processed(self) -> None:
        """Poll whether the owners have processed their copies."""
        self._polls += 1
        waiting = self._task.to_process
        pchannels = tuple(dict.fromkeys(pchannel_of(vchannel) for vchannel in waiting))
        processed = await self._parts.copies.processed(pchannels)
        task = self._task
        for vchannel, tick in waiting.items():
            # A pchannel without an answer counts as 0: the next poll asks its owner again.
            if processed.get(pchannel_of(vchannel), 0) >= tick:
                task = with_ack(task, vchannel, None)
        await self._save(task)

    async def _end_at_once(self) -> bool:
        """Finish if one write stores where the copies are, what the callback does, and the end.

        A crash before it leaves the record of a broadcast without copies: they are appended again,
        as any copy is whose answer was lost. So no callback may have had an effect by then.
        """
        if not (self._may_finish and self._task.may_finish):
            return False
        ended, end = self._ending()
        if end is None and self._callback is not None:
            return False
        await self._finish(ended, end)
        try:
            # Nothing new, unless that has failed.
            await self._save(self._task)
        except Conflict as conflict:
            if end is None:
                raise
            await self._read_again(conflict)
        return True

    def _ending(self) -> tuple[BroadcastState, EndRecord | None]:
        """The state at its end, and the record of it if the callback is to write that."""
        ended = advanced(self._task, BroadcastStep.FINISH, self._context.clock.wall_ms())
        callback = self._callback
        if not isinstance(callback, EndsBroadcast):
            return ended, None
        end = self._parts.records.end(self._recorded, ended)
        usable = end is not None and callback.ends(self._task.broadcast, end)
        return ended, end if usable else None

    async def _finish(self, ended: BroadcastState, end: EndRecord | None) -> None:
        """Run the callback, then store the tombstone: a crash in between runs it again."""
        callback = self._callback
        began_s = self._context.clock.monotonic_s()
        try:
            with deadline(self._context.clock, self._parts.timing.callback_deadline_s) as scope:
                await self._call(ended, end)
            if scope.cancelled_caught:
                # A failure like others: the callback must be idempotent, so it is tried again.
                raise TimeoutError("deadline exceeded")
        except FailedForGood as error:
            log.error("broadcast in quarantine", broadcast=self._name, cause=str(error))
            await self._save(poisoned(self._task, str(error)))
            return
        except Exception as error:  # noqa: BLE001 - user code must not end the task
            if isinstance(error, Conflict) and isinstance(callback, EndsBroadcast):
                await self._read_again(error)
            self._failed(f"the callback failed: {error!r}")
            return
        if callback is not None:
            self._parts.meters.ack_callback.add(self._context.clock.monotonic_s() - began_s)
        await self._save(ended)

    async def _call(self, ended: BroadcastState, end: EndRecord | None) -> None:
        """Run the callback, if there is one. One that gets `end` stores it, too."""
        callback, broadcast, outcome = self._callback, self._task.broadcast, self._task.outcome()
        if isinstance(callback, EndsBroadcast) and end is not None:
            revision = await callback.apply_with_end(broadcast, outcome, end)
            if revision is not None:
                self._recorded = RecordedBroadcast(ended, revision)
        elif callback is not None:
            await callback(broadcast, outcome)

    async def _read_again(self, conflict: Conflict) -> None:
        """Take over the record after a call of the callback that came too late.

        An earlier call had no answer in time, and may have ended the broadcast: then the next round
        says so. After a disk that stood still that holds for many tasks, too many to restart.
        """
        recorded = await self._parts.records.read(self._name)
        if recorded is None:
            raise conflict  # finished and forgotten: the next incarnation stops
        if recorded.revision != self._recorded.revision:
            self._recorded, self._task = recorded, recorded.task

    async def _leave_quarantine(self, skip: bool, caller: Envelope[BroadcasterMessage]) -> None:
        if not self._task.poison or not self._task.unfinished:
            cause = f"broadcast {self._name} is not in quarantine"
            caller.fail(Refused(StreamingCode.INVALID_ARGUMENT, cause))
            return
        now_ms = self._context.clock.wall_ms()
        after = advanced(self._task, BroadcastStep.FINISH, now_ms) if skip else retried(self._task)
        await self._changed_for(caller, after)

    async def _changed_for(
        self, caller: Envelope[BroadcasterMessage], task: BroadcastState
    ) -> None:
        """Record a change that was requested, then answer."""
        try:
            await self._save(task)
        except MetaError as error:
            caller.fail(Refused(StreamingCode.INNER, str(error)))
            raise  # `receive` decides between a restart and a retry
        caller.reply(None)
        await self._announce()
        self._plan(0.0)

    async def _save(self, task: BroadcastState) -> None:
        """Store the state if it changed; it is in force only afterwards."""
        # By identity: the rules return the same object when nothing changed.
        if task is not self._recorded.task:
            self._recorded = await self._parts.records.save(self._recorded, task)
        self._task = task

    def _has_news(self) -> bool:
        """There is unsent news, or a MayFinish is due, which may have been lost."""
        task = self._task
        waits = task.all_acked and not task.poison and not self._may_finish
        return waits or self._announced != self._news()

    def _news(self) -> TaskChanged:
        """The stored state and the failures in a row."""
        return TaskChanged(self._recorded.task, self._retries.failures, self._retries.error)

    async def _announce(self) -> None:
        """Send to the current incarnation of the Broadcaster."""
        # Looked up each time: a reference does not follow a restart of the Broadcaster.
        news = self._news()
        broadcaster = self._context.tree.find(self._parts.broadcaster_path)
        await broadcaster.send(news, deadline_s=self._parts.timing.announce_s)
        self._announced = news

    def _plan(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._context.after(delay_s, Work())

    def _failed(self, error: str) -> None:
        self._retries.failed(error)
        self._plan(self._pause_s())

    def _pause_s(self) -> float:
        if self._retries.failures:
            return self._retries.pause_s(self._context.random)
        timing = self._parts.timing
        # The exponent is bounded, because a float overflows when a node is away for long enough.
        return min(timing.poll_s * 2.0 ** min(self._polls, 10), timing.poll_max_s)


def task_spec(
    name: str,
    parts: BroadcastTaskParts,
    first: Callable[[], RecordedBroadcast | None],
    may_finish: Callable[[], bool],
) -> ChildSpec:
    """The actor of one broadcast. Both are called at each start; no `first`: read the record."""
    return ChildSpec(
        name,
        lambda: BroadcastTask(name, parts, first(), may_finish=may_finish()),
        MailboxSpec(bound=256, batch_max=64),
        restart=TRANSIENT,
        stop_deadline_s=1.0,  # may cut off a callback; it runs again after the restart
        patient=True,
    )


def _describe(refusals: Sequence[Refusal]) -> str:
    first = refusals[0]
    return f"{len(refusals)} copies were not appended; the first: {first.code.name} {first.cause}"
