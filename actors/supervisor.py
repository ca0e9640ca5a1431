"""The supervisor: an actor that starts, watches, restarts and stops its children.

The rules are in strategy.py; this file applies them in order.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, assert_never

import anyio

from actors.actor import Actor, Context
from actors.cell import Cell, Ground
from actors.clock import deadline
from actors.envelope import Envelope, Request
from actors.errors import (
    ActorDied,
    NameTaken,
    NoSuchActor,
    NotRunning,
    PlannedRestart,
    StartInterrupted,
    StartTimeout,
    TooManyRestarts,
)
from actors.exit import Exit, ExitKind
from actors.incarnation import Incarnation
from actors.mailbox import MailboxSpec, Overflow
from actors.ref import Ref
from actors.slot import Slot
from actors.spec import AnySpec, ChildSpec, SupervisorSpec
from actors.strategy import Restart, Strategy, Window, affected, wants_restart

COMMANDS = MailboxSpec(bound=1024, overflow=Overflow.BLOCK)
SUPERVISORS_TOGETHER = 8
log = logging.getLogger("actors")


@dataclass(frozen=True, slots=True)
class StartChild(Request[Ref[Any]]):
    """Add and start a child; the answer is its reference."""

    spec: AnySpec


@dataclass(frozen=True, slots=True)
class StartChildren(Request[Sequence[Ref[Any] | Exception]]):
    """Add and start many; the answer is, for each, its reference or why there is none."""

    specs: tuple[AnySpec, ...]


@dataclass(frozen=True, slots=True)
class StopChild(Request[None]):
    """Stop a child in an orderly way and remove it."""

    name: str


@dataclass(frozen=True, slots=True)
class ChildEnded:
    """A child's incarnation is over."""

    name: str
    cell: Cell


@dataclass(frozen=True, slots=True)
class Retry:
    """A timer: restart this child and the children stopped with it."""

    name: str


SupervisorMessage = StartChild | StartChildren | StopChild | ChildEnded | Retry


class Supervisor(Actor[SupervisorMessage]):
    """Applies the restart rules of actors/README.md to its children."""

    def __init__(self, slot: Slot, ground: Ground) -> None:
        assert isinstance(slot.spec, SupervisorSpec)
        self._slot = slot
        self._spec = slot.spec
        self._ground = ground
        self._window = Window()
        self._stopping = False
        self._start_scope: anyio.CancelScope | None = None
        self._context: Context[SupervisorMessage]

    async def started(self, context: Context[SupervisorMessage]) -> None:
        """Start the children in order; raises the failure of a child that is not patient."""
        self._context = context
        self._slot.reset()
        for slot in tuple(self._slot.children.values()):
            try:
                await self._start(slot)
            except StartInterrupted:
                # A stop was requested: `stopped` runs next and stops what has started.
                return
            except Exception as error:
                if not _patient(slot):
                    await self._stop(self._slot.children.values())
                    raise
                await self._ended(slot, Exit(ExitKind.START_FAILED, error))
                # The later children depend on it; its retry starts them, too.
                if self._spec.strategy is not Strategy.ONE_FOR_ONE:
                    return

    async def receive(self, batch: Sequence[Envelope[SupervisorMessage]]) -> None:
        """One command or event at a time."""
        for envelope in batch:
            match envelope.message:
                case ChildEnded(name, cell):
                    slot = self._slot.children.get(name)
                    # Otherwise the event is stale: the child was stopped or replaced meanwhile.
                    if slot is not None and slot.cell is cell and cell.life.exit is not None:
                        await self._ended(slot, cell.life.exit)
                case Retry(name):
                    await self._revive(name)
                case StartChild(spec):
                    await self._start_one(spec, envelope)
                case StartChildren(specs):
                    envelope.reply(await self._start_children(specs, envelope))
                case StopChild(name):
                    await self._stop_child(name, envelope)
                case unknown:
                    assert_never(unknown)

    async def stopped(self) -> None:
        """Stop the children, last one first; see `_stop`."""
        await self._stop(self._slot.children.values())

    async def reap(self) -> None:
        """Kill the remaining children, all at once."""
        cells = [slot.cell for slot in self._slot.children.values() if slot.cell is not None]
        # All are killed before the first wait, so that their deadlines run at the same time.
        for cell in reversed(cells):
            cell.kill(Exit(ExitKind.KILLED))
        for cell in reversed(cells):
            await cell.done.wait()
        for slot in self._slot.children.values():
            slot.cell = None

    def statistics(self) -> Mapping[str, int | float | str]:
        """How many children, under which strategy."""
        return {"children": len(self._slot.children), "strategy": self._spec.strategy.value}

    def stop_requested(self) -> None:
        """Interrupt the start of a child."""
        self._stopping = True
        if self._start_scope is not None:
            self._start_scope.cancel()

    async def _start(self, slot: Slot) -> None:
        """Start the next incarnation; on failure raises, with nothing left running."""
        if self._interrupted():
            raise StartInterrupted(slot.path)
        limit_s = slot.spec.start_deadline_s if isinstance(slot.spec, ChildSpec) else None
        try:
            with deadline(self._ground.clock, limit_s) as scope:
                self._start_scope = scope
                await launch(slot, self._ground, self._child_ended)
        finally:
            self._start_scope = None
        if not scope.cancelled_caught:
            return
        await self._undo(slot)
        # Without a limit only `stop_requested` can have cancelled the scope.
        if limit_s is None or self._interrupted():
            raise StartInterrupted(slot.path)
        raise StartTimeout(slot.path, limit_s)

    async def _undo(self, slot: Slot) -> None:
        cell, slot.cell = slot.cell, None
        if cell is None:
            return
        # Some of its children may run already; they are stopped in order.
        if self._stopping and isinstance(slot.spec, SupervisorSpec):
            cell.request_stop()
        else:
            cell.kill(Exit(ExitKind.START_FAILED))
        await cell.done.wait()

    def _interrupted(self) -> bool:
        return self._stopping

    def _child_ended(self, slot: Slot, cell: Cell) -> None:
        ended = ChildEnded(slot.spec.name, cell)
        self._context.life.mailbox.put_event(Envelope(ended))

    async def _ended(self, slot: Slot, exit: Exit) -> None:
        """Retire the child, fail upward, or stop dependent children and plan the restart."""
        slot.cell = None
        slot.last_error = str(exit)
        waits = _patient(slot) and exit.kind is ExitKind.START_FAILED
        if not waits and not wants_restart(slot.spec.restart, exit.kind):
            self._retire(slot)
            return
        now_s = self._ground.clock.monotonic_s()
        if not waits:
            await self._count(now_s, exit)
        for other in await self._stop(self._affected(slot)):
            if other.spec.restart is Restart.TEMPORARY and other is not slot:
                self._slot.remove(other.spec.name)
        self._plan(slot, exit, now_s)

    def _retire(self, slot: Slot) -> None:
        if slot.dynamic or slot.spec.restart is Restart.TEMPORARY:
            self._slot.remove(slot.spec.name)
        else:
            slot.idle_state = "stopped"

    async def _count(self, now_s: float, exit: Exit) -> None:
        spec = self._spec
        self._window = self._window.restarted(now_s, spec.window_s)
        # Stopped in order, before the raise: after a crash only `reap` runs, which kills them.
        if self._window.exceeds(spec.restarts_max):
            await self._stop(self._slot.children.values())
            raise TooManyRestarts(
                self._slot.path, spec.restarts_max, spec.window_s, str(exit)
            ) from exit.error

    def _plan(self, slot: Slot, exit: Exit, now_s: float) -> None:
        if exit.kind is ExitKind.START_FAILED:
            # `up_since_s` is of an earlier incarnation. Attempt 0 would start it again at once.
            slot.attempts = max(slot.attempts, 1)
        elif now_s - slot.up_since_s >= self._spec.window_s:
            slot.attempts = 0
        delay_s = self._spec.backoff.delay_s(slot.attempts, self._ground.random.random())
        slot.attempts += 1
        slot.retry = self._context.after(delay_s, Retry(slot.spec.name))
        level = logging.INFO if isinstance(exit.error, PlannedRestart) else logging.WARNING
        log.log(level, "%s restarts in %.3f s: %s", slot.path, delay_s, exit)

    async def _revive(self, name: str) -> None:
        # It is there: removing a child withdraws its retry, even from the mailbox.
        origin = self._slot.children[name]
        origin.retry = None
        for slot in self._affected(origin):
            # `_ended` has stopped them all, and `_refusal` admits no new child until they run.
            assert slot.cell is None
            try:
                await self._start(slot)
            except StartInterrupted:
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, it is a failed start
                await self._ended(slot, Exit(ExitKind.START_FAILED, error))
                return
            slot.restarts += 1

    async def _start_one(self, spec: AnySpec, envelope: Envelope[Any]) -> None:
        for started in await self._start_children((spec,), envelope):
            if isinstance(started, Exception):
                envelope.fail(started)
            else:
                envelope.reply(started)

    async def _start_children(
        self, specs: Sequence[AnySpec], envelope: Envelope[Any]
    ) -> list[Ref[Any] | Exception]:
        """Start the children; stop them again if the caller has left meanwhile."""
        answers: list[Ref[Any] | Exception] = []
        for spec in specs:
            if not envelope.wanted():
                break
            answers.append(await self._start_child(spec))
        if not envelope.wanted():
            # Nobody would know of these children, or ever stop them.
            paired = zip(specs, answers, strict=False)
            started = [spec.name for spec, answer in paired if isinstance(answer, Ref)]
            for slot in await self._stop([self._slot.children[name] for name in started]):
                self._slot.remove(slot.spec.name)
        return answers

    async def _start_child(self, spec: AnySpec) -> Ref[Any] | Exception:
        refusal = self._refusal(spec.name)
        if refusal is not None:
            return refusal
        slot = self._slot.add(spec, dynamic=True)
        try:
            await self._start(slot)
        except Exception as error:  # noqa: BLE001 - any error is the caller's answer
            return await self._not_started(slot, error)
        assert slot.cell is not None
        return Ref[Any](slot.cell.life)

    def _refusal(self, name: str) -> Exception | None:
        children = self._slot.children
        if name in children:
            return NameTaken(children[name].path)
        if self._spec.strategy is Strategy.ONE_FOR_ONE:
            return None
        # A child added now would run before those that it depends on.
        waiting = (slot for slot in children.values() if slot.retry is not None)
        return next((_not_running(slot) for slot in waiting), None)

    async def _not_started(self, slot: Slot, error: Exception) -> Exception:
        if not _patient(slot) or isinstance(error, StartInterrupted):
            self._slot.remove(slot.spec.name)
            return error
        await self._ended(slot, Exit(ExitKind.START_FAILED, error))
        return _not_running(slot)

    async def _stop_child(self, name: str, envelope: Envelope[Any]) -> None:
        slot = self._slot.children.get(name)
        if slot is None:
            envelope.fail(NoSuchActor(f"{self._slot.path}/{name}"))
            return
        heirs = [other for other in self._affected(slot) if other is not slot]
        # Its retry would have restarted the children stopped with it; the next of them takes over.
        if slot.retry is not None and heirs:
            heirs[0].retry = self._context.after(0.0, Retry(heirs[0].spec.name))
        await self._stop([slot])
        self._slot.remove(name)
        envelope.reply(None)

    async def _stop(self, slots: Iterable[Slot]) -> list[Slot]:
        """Stop them, the last one first, each within its own deadline; returns the same slots.

        Actors added to a one_for_one supervisor stop together, or a thousand would take a thousand
        deadlines; inner supervisors, whose children may all write to one disk, a few at a time.
        """
        stopped = list(slots)
        for slot in stopped:
            slot.cancel_retry()
            slot.idle_state = "waiting"
        if self._spec.strategy is Strategy.ONE_FOR_ONE:
            places = anyio.Semaphore(SUPERVISORS_TOGETHER)
            async with anyio.create_task_group() as stopping:
                for slot in filter(lambda it: it.dynamic, reversed(stopped)):
                    inner = isinstance(slot.spec, SupervisorSpec)
                    stopping.start_soon(_stop_one, slot, places if inner else nullcontext())
        for slot in reversed(stopped):
            await _stop_one(slot, nullcontext())
        return stopped

    def _affected(self, slot: Slot) -> list[Slot]:
        children = self._slot.children
        if self._spec.strategy is Strategy.ONE_FOR_ONE:
            return [slot]
        names = affected(self._spec.strategy, tuple(children), slot.spec.name)
        return [children[name] for name in names]


async def launch(slot: Slot, ground: Ground, ended: Callable[[Slot, Cell], None]) -> None:
    """Start the next incarnation of a slot: term, build, `started`, in this order.

    Returns when it has started; raises what the start failed with. Cancelled, it may leave a
    starting cell in the slot.
    """
    spec = slot.spec
    slot.idle_state = "starting"
    slot.term = await _next_term(slot)
    actor: Actor[Any]
    if isinstance(spec, SupervisorSpec):
        # No deadline of its own: it needs as long as its children, which have deadlines.
        actor, mailbox, stop_deadline_s = Supervisor(slot, ground), COMMANDS, None
    else:
        actor, mailbox, stop_deadline_s = spec.build(), spec.mailbox, spec.stop_deadline_s
    clock, beats = ground.clock, ground.beats
    life = Incarnation(slot.path, slot.term, mailbox, clock, lambda: slot.term, beats)
    cell = Cell(life, actor, ground, stop_deadline_s, lambda cell: ended(slot, cell))
    slot.cell = cell
    ground.spawn(cell)
    await cell.ready.wait()
    if not cell.has_started:
        slot.cell = None
        assert life.exit is not None
        if isinstance(life.exit.error, Exception):
            raise life.exit.error
        raise ActorDied(slot.path, slot.term, life.exit)
    slot.up_since_s = ground.clock.monotonic_s()


async def _next_term(slot: Slot) -> int:
    spec = slot.spec
    if isinstance(spec, SupervisorSpec) or spec.terms is None:
        return slot.term + 1
    term = await spec.terms.next_term(slot.path)
    assert term > slot.term, f"{slot.path}: term {term} after {slot.term}"
    return term


def _patient(slot: Slot) -> bool:
    return isinstance(slot.spec, ChildSpec) and slot.spec.patient


def _not_running(slot: Slot) -> NotRunning:
    return NotRunning(slot.path, slot.state, slot.last_error)


async def _stop_one(slot: Slot, place: AbstractAsyncContextManager[object]) -> None:
    if (cell := slot.cell) is not None:
        async with place:
            cell.request_stop()
            await cell.done.wait()
        slot.cell = None
