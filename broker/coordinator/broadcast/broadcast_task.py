"""One broadcast on its way: appends its copies, collects the acks, calls back, leaves a tombstone.

Owns the task's record, which is always written before anybody is told. It knows nothing of other
broadcasts: that it may finish is said by the Broadcaster, and whether it is ready for that it says
itself, again and again, so that no lost message stops it. Killed, it reads its record and goes on;
what it had appended without a record of it is appended once more, and recognised by its id.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
from broker.coordinator.broadcast.broadcast_meters import BroadcastMeters
from broker.coordinator.broadcast.broadcast_records import BroadcastRecords, RecordedBroadcast
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
from broker.ports.broadcast_appends import BroadcastAppends
from broker.ports.callbacks import Callbacks, FailedForGood
from broker.ports.meta import Conflict, MetaError

FINAL_CODES = frozenset(
    {
        StreamingCode.INVALID_ARGUMENT,
        StreamingCode.UNRECOVERABLE,
        StreamingCode.REPLICATE_VIOLATION,
        StreamingCode.SCHEMA_VERSION_MISMATCH,
    }
)
"""A vchannel that refuses a copy like this would refuse it for ever: an operator must look."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class BroadcastTiming:
    """Seconds. Whatever fails is tried again after `retry_first_s`, doubling to `retry_max_s`."""

    retry_first_s: float = 0.01
    retry_max_s: float = 10.0
    look_s: float = 0.1
    look_max_s: float = 2.0
    """How soon a node is asked whether it has processed a copy, and how soon again, at last."""
    announce_s: float = 1.0
    callback_deadline_s: float = 60.0


@dataclass(frozen=True, slots=True)
class TaskParts:
    """What every task stands on. `node_acks`: whether owners of channels acknowledge for all."""

    records: BroadcastRecords
    copies: BroadcastAppends
    callbacks: Callbacks
    broadcaster_path: str
    cut_lock_path: str
    timing: BroadcastTiming
    node_acks: bool = True
    meters: BroadcastMeters = field(default_factory=BroadcastMeters)


class BroadcastTask(Actor[BroadcastTaskMessage]):
    """See the module. `first`: the record, for the incarnation that was just made from it."""

    _context: Context[BroadcastTaskMessage]
    _cut_lock: SharedCutLock
    _recorded: RecordedBroadcast
    _task: BroadcastState

    def __init__(self, name: str, parts: TaskParts, first: RecordedBroadcast | None = None) -> None:
        self._name = name
        self._parts = parts
        self._first = first
        self._may_finish = False
        self._announced: TaskChanged | None = None
        self._looks = 0
        backoff = Backoff(parts.timing.retry_first_s, parts.timing.retry_max_s)
        self._retries = Retries(backoff, "broadcast is stuck", broadcast=name)
        self._timer: Timer | None = None

    async def started(self, context: Context[BroadcastTaskMessage]) -> None:
        """Read the record; one that was forgotten meanwhile has nothing left to do."""
        self._context = context
        # An earlier incarnation may have entered.
        self._cut_lock = SharedCutLock(
            context.tree, self._parts.cut_lock_path, BROADCASTS, self._name, held=True
        )
        recorded = self._first if context.term == 1 else None
        recorded = recorded or await self._parts.records.read(self._name)
        if recorded is None:
            self._cut_lock.release()
            context.stop()
            return
        self._recorded = recorded
        self._task = recorded.task
        self._began_s = context.clock.monotonic_s()
        context.every(self._parts.timing.announce_s, Announce())
        self._plan(0.0)

    async def receive(self, batch: Sequence[Envelope[BroadcastTaskMessage]]) -> None:
        for envelope in batch:
            try:
                await self._handle(envelope.message)
            except Conflict:
                raise  # somebody else has the task: the next incarnation reads how it stands
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
                self._may_finish = True
                self._plan(0.0)
            case TakeAck(vchannel, where, asked):
                await self._changed_for(asked, with_ack(self._task, vchannel, where))
            case LeaveQuarantine(skip, asked):
                await self._leave(skip, asked)
            case _:
                assert_never(message)

    async def _work(self) -> None:
        """Do what can be done; what failed, or has to be waited for, is planned again."""
        await self._save(self._task)
        before = self._task
        if self._task.appends:
            await self._cut_lock.acquire(self._task.broadcast.vchannels)
            await self._append()
        if self._cut_lock.held and not self._task.appends:
            self._cut_lock.release()
        if self._task.to_process and self._parts.node_acks:
            await self._look()
        if self._may_finish and self._task.may_finish:
            await self._finish()
        if self._task.state is BroadcastPhase.TOMBSTONE:
            await self._announce()
            self._context.stop()
        elif self._task is not before or self._announced is None:
            if self._task is not before:
                self._retries.succeeded()
                self._looks = 0
            await self._announce()
        if self._unfinished():
            self._plan(self._pause_s())

    def _unfinished(self) -> bool:
        """Whether there is something to try again, or to look for."""
        task = self._task
        return task.appends or (bool(task.to_process) and self._parts.node_acks)

    async def _append(self) -> None:
        """One try for each vchannel that is left. All that landed is recorded with one write."""
        task = self._task
        copies = [BroadcastCopy(task.id, vchannel, task.broadcast) for vchannel in task.to_append]
        outcomes = await self._parts.copies.append(copies)
        landed, refusals = {}, {}
        for copy, outcome in zip(copies, outcomes, strict=True):
            if isinstance(outcome, Appended):
                landed[copy.vchannel] = outcome
            else:
                refusals[copy.vchannel] = outcome
        self._task = with_appended(self._task, landed)
        for vchannel, refusal in refusals.items():
            if refusal.code in FINAL_CODES:
                self._task = poisoned(self._task, f"{vchannel} refuses its copy: {refusal.cause}")
                log.error("broadcast in quarantine", broadcast=self._name, cause=self._task.poison)
        if refusals:
            self._retries.failed(_describe(tuple(refusals.values())))
        await self._save(self._task)
        if not self._task.to_append:
            self._parts.meters.broadcast.add(self._context.clock.monotonic_s() - self._began_s)

    async def _look(self) -> None:
        """Whether the owners have processed what landed."""
        self._looks += 1
        waiting = self._task.to_process
        pchannels = tuple(dict.fromkeys(pchannel_of(vchannel) for vchannel in waiting))
        processed = await self._parts.copies.processed(pchannels)
        task = self._task
        for vchannel, tick in waiting.items():
            if processed.get(pchannel_of(vchannel), 0) >= tick:
                task = with_ack(task, vchannel, None)
        await self._save(task)

    async def _finish(self) -> None:
        """The callback, then the tombstone. What it raises is tried again, unless it is final."""
        callback = self._parts.callbacks.get(self._task.broadcast.type)
        began_s = self._context.clock.monotonic_s()
        try:
            with deadline(self._context.clock, self._parts.timing.callback_deadline_s) as scope:
                if callback is not None:
                    await callback(self._task.broadcast, self._task.outcome())
            if scope.cancelled_caught:
                raise TimeoutError("it took too long")
        except FailedForGood as error:
            log.error("broadcast in quarantine", broadcast=self._name, cause=str(error))
            await self._save(poisoned(self._task, str(error)))
            return
        except Exception as error:  # noqa: BLE001 - it is not ours, and must not end the task
            self._failed(f"its callback failed: {error!r}")
            return
        if callback is not None:
            self._parts.meters.ack_callback.add(self._context.clock.monotonic_s() - began_s)
        await self._save(advanced(self._task, BroadcastStep.FINISH, self._context.clock.wall_ms()))

    async def _leave(self, skip: bool, asked: Envelope[BroadcasterMessage]) -> None:
        if not self._task.poison or not self._task.unfinished:
            cause = f"broadcast {self._name} is not in quarantine"
            asked.fail(Refused(StreamingCode.INVALID_ARGUMENT, cause))
            return
        now_ms = self._context.clock.wall_ms()
        after = advanced(self._task, BroadcastStep.FINISH, now_ms) if skip else retried(self._task)
        await self._changed_for(asked, after)

    async def _changed_for(self, asked: Envelope[BroadcasterMessage], task: BroadcastState) -> None:
        """Record what somebody asked for, tell them, and go on."""
        try:
            await self._save(task)
        except MetaError as error:
            asked.fail(Refused(StreamingCode.INNER, str(error)))
            raise
        asked.reply(None)
        await self._announce()
        self._plan(0.0)

    async def _save(self, task: BroadcastState) -> None:
        """Make it durable, if it is not; this object knows it only afterwards."""
        if task is not self._recorded.task:
            self._recorded = await self._parts.records.save(self._recorded, task)
        self._task = task

    def _has_news(self) -> bool:
        """Something was not told yet; or the word to finish is due, and may have been lost."""
        task = self._task
        waits = task.all_acked and not task.poison and not self._may_finish
        return waits or self._announced != self._news()

    def _news(self) -> TaskChanged:
        """What is durable, and what keeps it."""
        return TaskChanged(self._recorded.task, self._retries.failures, self._retries.error)

    async def _announce(self) -> None:
        """To whoever is the Broadcaster now."""
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
        return min(timing.look_s * 2.0 ** min(self._looks, 10), timing.look_max_s)


def task_spec(
    name: str, parts: TaskParts, first: Callable[[], RecordedBroadcast | None]
) -> ChildSpec:
    """The actor of one broadcast. `first` is asked at each start for the record, if it is known."""
    return ChildSpec(
        name,
        lambda: BroadcastTask(name, parts, first()),
        MailboxSpec(bound=256, batch_max=64),
        restart=TRANSIENT,
        stop_deadline_s=1.0,
        patient=True,
    )


def _describe(refusals: Sequence[Refusal]) -> str:
    first = refusals[0]
    return f"{len(refusals)} copies were not appended; the first: {first.code.name} {first.cause}"
