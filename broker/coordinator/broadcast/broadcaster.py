"""Decides when each broadcast may run: grants resource keys and orders the callbacks.

It appends nothing and runs no callback: each broadcast has a BroadcastTask, which owns its record.
When the Broadcaster dies, its supervisor stops all tasks with it; its next incarnation takes the
locks back from the records before it reads its mailbox.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import count, islice
from typing import assert_never

import structlog

from actors import Actor, ActorError, ChildSpec, Context, Envelope, NotRunning
from broker.coordinator.broadcast.broadcast_records import RecordedBroadcast, fitting_groups
from broker.coordinator.broadcast.broadcast_task import task_spec
from broker.coordinator.broadcast.broadcast_task_parts import BroadcastTaskParts
from broker.coordinator.broadcast.callback_order import CallbackOrder
from broker.coordinator.broadcast.key_waiters import KeyWaiters
from broker.coordinator.broadcast.messages import (
    AckBroadcast,
    BroadcasterMessage,
    BroadcastTaskMessage,
    LeaveQuarantine,
    ListBroadcasts,
    ListLocks,
    MayFinish,
    PlanBroadcast,
    ResumeBroadcasts,
    RetryBroadcast,
    SkipBroadcast,
    StartBroadcast,
    SweepBroadcasts,
    TakeAck,
    TaskChanged,
    WaitForKey,
)
from broker.coordinator.broadcast.pending_broadcasts import (
    BroadcasterLimits,
    Caller,
    RunningBroadcast,
    WaitingBroadcast,
    room_refusal,
    under_way,
)
from broker.coordinator.broadcast.plan_requests import planned
from broker.coordinator.broadcast.tombstones import Tombstones
from broker.coordinator.broadcast.views import quarantined, views_of
from broker.core.cluster.broadcast_state import (
    BroadcastPhase,
    BroadcastState,
    broadcast_name,
    new_broadcast,
)
from broker.core.cluster.resource_locks import LockTicket, ResourceLocks
from broker.model.broadcast import Broadcast
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import BroadcastId
from broker.model.master.ddl import PlannedRequest
from broker.ports.master.broadcast_planner import BroadcastPlanner
from broker.ports.meta import Conflict, MetaError

START_S = 10.0
STARTS_MAX = 64
"""Tasks that are started together, within START_S."""
KnownBroadcast = WaitingBroadcast | RunningBroadcast | BroadcastState
log = structlog.get_logger(__name__)


class Broadcaster(Actor[BroadcasterMessage]):
    """See the module."""

    _context: Context[BroadcasterMessage]
    _ids: Iterator[int]

    def __init__(
        self,
        parts: BroadcastTaskParts,
        limits: BroadcasterLimits,
        planner: BroadcastPlanner,
        tasks_path: str,
    ) -> None:
        self._parts = parts
        self._planner = planner
        self._limits = limits
        self._tasks_path = tasks_path
        self._locks, self._order = ResourceLocks(), CallbackOrder()
        self._granted: list[LockTicket] = []
        self._waiting: dict[LockTicket, WaitingBroadcast] = {}
        self._running: dict[str, RunningBroadcast] = {}
        self._tombstones = Tombstones(parts.records, limits)
        self._by_key: dict[str, LockTicket | str] = {}
        self._key_waits = KeyWaiters(limits.key_waits_max)
        self._first_records: dict[str, RecordedBroadcast] = {}

    async def started(self, context: Context[BroadcasterMessage]) -> None:
        """Load the records, take their keys, report to the cut lock; only then serve requests."""
        self._context = context
        self._ids = count(await self._parts.records.first_id())
        await self._tombstones.start(context.clock)
        recorded = await self._parts.records.load()
        await self._parts.records.remove_bodies(recorded)
        # By id, which is the order of admission: ListBroadcasts shows `_running` as it stands.
        for each in sorted(recorded, key=lambda it: it.task.id):
            self._restore(each)
        self._order.restore(self._running.values())
        self._planner.restore([it.task.broadcast for it in recorded])
        # Unfinished appends: no hold is granted before they are complete.
        cut_lock = context.tree.find(self._parts.cut_lock_path)
        await cut_lock.ask(under_way(self._running.values()), deadline_s=START_S)
        context.on_beat(self._limits.sweep_s, SweepBroadcasts())
        # By a message: starting thousands of tasks here could exceed this actor's start deadline.
        context.after(0.0, ResumeBroadcasts(tuple(self._running)))

    async def receive(self, batch: Sequence[Envelope[BroadcasterMessage]]) -> None:
        """Admit all broadcasts that a batch of messages made possible with one write."""
        for envelope in batch:
            await self._handle(envelope)
        await self._admit()

    def statistics(self) -> Mapping[str, int | float | str]:
        return {
            "waiting": len(self._waiting),
            "running": len(self._running),
            "quarantine": sum(bool(it.task.poison) for it in self._running.values()),
            "tombstones": len(self._tombstones),
            "locks": len(self._locks),
        }

    async def _handle(self, envelope: Caller) -> None:
        match envelope.message:
            case StartBroadcast(request) | PlanBroadcast(request):
                self._start(request, envelope)
            case TaskChanged() as moved:
                self._task_changed(moved)
            case AckBroadcast() as ack:
                await self._ack(ack, envelope)
            case RetryBroadcast(name) | SkipBroadcast(name) as order:
                self._leave_quarantine(name, envelope, skip=isinstance(order, SkipBroadcast))
            case ResumeBroadcasts(names):
                await self._start_tasks(names)
            case SweepBroadcasts():
                await self._sweep()
            case WaitForKey(key, all_acked):
                tasks = [it.task for it in self._running.values()]
                self._key_waits.ask(key, tasks, envelope, all_acked=all_acked)
            case ListBroadcasts() | ListLocks() as question:
                unfinished = self._waiting.values(), self._running.values()
                by = self._parts.node_acks
                envelope.reply(views_of(question, *unfinished, self._locks, node_acks=by))
            case _ as never:
                assert_never(never)

    # ---- starting a broadcast ------------------------------------------------------------------

    def _start(self, request: Broadcast | PlannedRequest, caller: Caller) -> None:
        """Queue a new request; a repeated one joins the first."""
        known = self._by_key.get(request.request_key)
        if known is None:
            self._enqueue(request, caller)
            return
        first = self._known(known)
        if first.fingerprint != request.fingerprint:
            cause = f"{request.request_key!r} was used with other content; use a new key"
            caller.fail(Refused(StreamingCode.INVALID_ARGUMENT, cause))
        elif isinstance(first, BroadcastState):
            caller.reply(first.outcome())
        elif isinstance(first, RunningBroadcast) and first.task.poison:
            caller.fail(quarantined(first.task))
        else:
            # Without those that left: a client that retries for hours must not grow the list.
            first.callers = [*(it for it in first.callers if it.wanted()), caller]

    def _enqueue(self, request: Broadcast | PlannedRequest, caller: Caller) -> None:
        if self._refuses(request, caller):
            return
        ticket = self._locks.request(request.keys)
        now_s = self._context.clock.monotonic_s()
        self._waiting[ticket] = WaitingBroadcast(request, [caller], now_s)
        self._by_key[request.request_key] = ticket
        if self._locks.holds(ticket):
            self._granted.append(ticket)

    def _known(self, known: LockTicket | str) -> KnownBroadcast:
        if isinstance(known, str):
            running = self._running.get(known)
            return running if running is not None else self._tombstones.of(known)
        return self._waiting[known]

    async def _admit(self) -> None:
        """Give each broadcast that has its keys an id and a record, then start its task."""
        # A request that is dropped or refused here may grant others: repeat until there are none.
        while self._granted:
            tickets, self._granted = self._granted, []
            wanted = [ticket for ticket in tickets if self._still_wanted(ticket)]
            admitted = {ticket: self._waiting.pop(ticket) for ticket in wanted}
            ready, refused = await planned(admitted, self._planner, self._context.clock)
            for ticket, error in refused.items():
                self._refuse({ticket: admitted[ticket]}, error)
            tasks = [new_broadcast(BroadcastId(next(self._ids)), it) for it in ready.values()]
            order = iter([(ticket, admitted[ticket]) for ticket in ready])
            # Most often one group: of as many as the store takes in one write.
            for group in fitting_groups(tasks):
                await self._record(dict(islice(order, len(group))), group)

    async def _record(
        self, admitted: Mapping[LockTicket, WaitingBroadcast], tasks: Sequence[BroadcastState]
    ) -> None:
        try:
            # Before the first copy: a crash leaves no copy that no record explains.
            recorded = await self._parts.records.create(tasks)
        except Conflict:
            raise  # another Broadcaster is at work: the next incarnation takes new ids
        except MetaError as error:
            # Nothing was recorded and nothing appended, so the callers may simply try again.
            cause = f"nothing was appended: {error}"
            self._refuse(admitted, Refused(StreamingCode.INNER, cause))
            return
        ordered = self._order.is_that_of_keys(self._running.values())
        for (ticket, waiting), each in zip(admitted.items(), recorded, strict=True):
            running = self._run(each, ticket, waiting.callers)
            running.since_s = waiting.since_s
            if ordered:
                self._order.join(running)
            self._parts.meters.acquire_lock.add(self._since_s(waiting.since_s))
        await self._start_tasks([task.name for task in tasks])

    def _still_wanted(self, ticket: LockTicket) -> bool:
        if not self._waiting[ticket].wanted:
            self._drop_waiting(ticket)
        return ticket in self._waiting

    def _drop_waiting(self, ticket: LockTicket) -> None:
        waiting = self._waiting.pop(ticket)
        del self._by_key[waiting.request.request_key]
        self._granted += self._locks.release(ticket)

    def _refuse(self, admitted: Mapping[LockTicket, WaitingBroadcast], error: Refused) -> None:
        for ticket, waiting in admitted.items():
            for caller in waiting.callers:
                caller.fail(error)
            self._planner.finished(waiting.request.request_key)
            del self._by_key[waiting.request.request_key]
            self._granted += self._locks.release(ticket)

    def _run(
        self, it: RecordedBroadcast, ticket: LockTicket | None, callers: list[Caller]
    ) -> RunningBroadcast:
        running = self._running[it.task.name] = RunningBroadcast(it.task, ticket, callers)
        self._first_records[it.task.name] = it
        self._know_key(it.task)
        return running

    def _know_key(self, task: BroadcastState) -> None:
        if key := task.broadcast.request_key:  # empty for a broadcast of another cluster
            self._by_key[key] = task.name

    async def _start_tasks(self, names: Sequence[str]) -> None:
        for at in range(0, len(names), STARTS_MAX):
            specs = [self._task_spec(name) for name in names[at : at + STARTS_MAX]]
            start = self._context.tree.start_children(self._tasks_path, specs, deadline_s=START_S)
            for it in await start:
                if isinstance(it, NotRunning):
                    # The task is patient: its supervisor starts it again until the store answers.
                    log.warning("broadcast waits for the store", error=str(it))
                elif isinstance(it, Exception):
                    raise it

    def _task_spec(self, name: str) -> ChildSpec:
        first = partial(self._first_records.pop, name, None)
        return task_spec(
            name, self._parts, first, lambda: self._order.free(self._running.get(name))
        )

    # ---- restoring after a start ---------------------------------------------------------------

    def _restore(self, recorded: RecordedBroadcast) -> None:
        task = recorded.task
        if task.state is BroadcastPhase.TOMBSTONE:
            self._tombstones.add(task)
            self._know_key(task)
            return
        ticket = None  # one of another cluster holds no keys: that cluster has ordered it
        if task.state is BroadcastPhase.PENDING:
            ticket = self._locks.request(task.broadcast.keys)
            # It held its keys when it was recorded, so two such records cannot conflict.
            if not self._locks.holds(ticket):
                log.error("two unfinished broadcasts hold the same key", broadcast=task.name)
        self._run(recorded, ticket, [])

    # ---- progress and end ----------------------------------------------------------------------

    def _task_changed(self, moved: TaskChanged) -> None:
        running = self._running.get(moved.task.name)
        if running is None:
            return  # a repeated announcement; the tombstone was handled already
        task = running.task = moved.task
        running.failures, running.last_error = moved.failures, moved.last_error
        self._key_waits.moved(task)
        if task.state is BroadcastPhase.TOMBSTONE:
            self._finish(running)
            return
        if task.poison:
            # Callers are not left waiting for an operator. The keys stay held until one decides.
            running.answer(quarantined(task))
        if task.order_tick is not None:
            self._order.join(running)
        # With every announcement again: an earlier MayFinish may have met a restarting task.
        if self._order.free(running):
            self._send(task.name, MayFinish())

    def _finish(self, running: RunningBroadcast) -> None:
        """Answer the callers, release the keys, and let the next callbacks run."""
        task = running.task
        del self._running[task.name]
        self._tombstones.add(task)
        self._planner.finished(task.broadcast.request_key)
        running.answer(task.outcome())
        if running.since_s is not None:
            self._parts.meters.execution.add(self._since_s(running.since_s))
        for following in self._order.leave(running):
            self._send(following.task.name, MayFinish())
        if running.ticket is not None:
            # Only now: the tombstone is durable, so no crash can run this callback again, after
            # that of a broadcast which now gets the keys.
            freed = self._locks.release(running.ticket)
            self._granted += [ticket for ticket in freed if ticket in self._waiting]

    async def _ack(self, ack: AckBroadcast, caller: Caller) -> None:
        name = broadcast_name(ack.id, ack.origin)
        # Recorded before the acknowledgement counts: the consumer does not send it a second time.
        if ack.copied is not None and self._is_new(name, ack):
            await self._copy(ack.id, ack.origin, ack.copied, caller)
        running = self._running.get(name)
        task = running.task if running else self._tombstones.find(name)
        if task is None:
            caller.reply(None)  # no effect, if it was not refused already
        elif ack.vchannel not in task.broadcast.vchannels:
            cause = f"broadcast {name} was never sent to vchannel {ack.vchannel!r}"
            caller.fail(Refused(StreamingCode.INVALID_ARGUMENT, cause))
        elif running is None:
            caller.reply(None)  # finished: this repeats an acknowledgement that counted
        else:
            self._send(name, TakeAck(ack.vchannel, ack.where, caller), caller)

    def _is_new(self, name: str, ack: AckBroadcast) -> bool:
        known = name in self._running or self._tombstones.find(name) is not None
        return not known and not self._tombstones.covers(ack.id, ack.origin)

    async def _copy(self, id: BroadcastId, origin: str, copied: Broadcast, caller: Caller) -> None:
        """A new broadcast of another cluster becomes a task without keys."""
        if self._refuses(copied, caller):
            return
        try:
            (recorded,) = await self._parts.records.create([new_broadcast(id, copied, origin)])
        except Conflict:
            raise  # another Broadcaster is at work: the next incarnation reads its record
        except MetaError as error:
            caller.fail(Refused(StreamingCode.INNER, str(error)))
        else:
            self._run(recorded, None, [])
            await self._start_tasks([recorded.task.name])

    def _leave_quarantine(self, name: str, caller: Caller, *, skip: bool) -> None:
        if name not in self._running:
            cause = f"there is no unfinished broadcast {name!r}"
            caller.fail(Refused(StreamingCode.INVALID_ARGUMENT, cause))
            return
        self._send(name, LeaveQuarantine(skip, caller), caller)

    def _send(self, name: str, message: BroadcastTaskMessage, caller: Caller | None = None) -> None:
        """Send to a task. One that restarts may miss it: MayFinish is sent again when it announces.

        A request of a caller is refused instead.
        """
        try:
            self._context.tree.find(f"{self._tasks_path}/{name}").tell(message)
        except ActorError as error:
            if caller is not None:
                caller.fail(Refused(StreamingCode.INNER, f"{error}; try again"))

    # ---- limits --------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        for ticket in [it for it in self._waiting if not self._waiting[it].wanted]:
            self._drop_waiting(ticket)
        self._granted = [ticket for ticket in self._granted if ticket in self._waiting]
        self._key_waits.prune()
        for task in await self._tombstones.sweep(self._context.clock):
            self._by_key.pop(task.broadcast.request_key, None)

    def _since_s(self, began_s: float) -> float:
        return self._context.clock.monotonic_s() - began_s

    def _refuses(self, request: Broadcast | PlannedRequest, caller: Caller) -> bool:
        error = room_refusal(request, self._waiting.values(), len(self._running), self._limits)
        if error is not None:
            caller.fail(error)
        return error is not None
