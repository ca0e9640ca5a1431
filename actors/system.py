"""The tree of actors and its entry point: starts it, finds actors, stops everything."""

from collections.abc import Sequence
from random import Random
from types import TracebackType
from typing import Any, NoReturn

import anyio
from anyio.abc import TaskGroup

from actors.beats import Beats
from actors.cell import Cell, Ground
from actors.clock import Clock, SystemClock, deadline
from actors.errors import ActorDied, NoSuchActor, NotRunning
from actors.exit import Exit, ExitKind
from actors.ref import Ref
from actors.slot import Slot
from actors.spec import AnySpec, SupervisorSpec
from actors.statistics import ActorStatistics, abandoned, walk
from actors.supervisor import StartChild, StartChildren, StopChild, launch

INSIST_EVERY_S = 0.1
"""At exit, how often a task that shields itself from cancellation is cancelled again."""


class System:
    """A running tree: `async with System(spec) as system`.

    Entering returns when every child has started, and raises the error of a failed start. Leaving
    stops the tree in reverse order; what has not stopped after `stop_deadline_s` seconds is killed,
    and what resists that is cancelled repeatedly, through its shields.
    One event loop, one thread.
    """

    def __init__(
        self,
        spec: SupervisorSpec,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        stop_deadline_s: float = 60.0,
    ) -> None:
        self._root = Slot(spec, "")
        self._clock: Clock = clock or SystemClock()
        self._stop_deadline_s = stop_deadline_s
        self._ground = Ground(
            self._clock, random or Random(), self, self._spawn, {}, Beats(self._clock)
        )
        self._outer: TaskGroup
        self._cells: TaskGroup
        self._exit: Exit | None = None

    async def __aenter__(self) -> "System":
        """Start the tree; on failure stop what was started and raise the error."""
        if self._root.term:
            raise RuntimeError("a System runs once")
        self._open = anyio.Event()
        self._closing = anyio.Event()
        self._closed = anyio.Event()
        self._failed = anyio.Event()
        self._outer = anyio.create_task_group()
        await self._outer.__aenter__()
        try:
            self._outer.start_soon(self._hold)
            await self._open.wait()
            await launch(self._root, self._ground, self._root_ended)
        except BaseException:
            # Cancellation included: nothing that was started may stay.
            await self._leave()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop the tree. Errors of the body propagate."""
        await self._leave()

    def find(self, path: str) -> Ref[Any]:
        """The current incarnation at `path`.

        Raises NoSuchActor; its subclass NotRunning while the path waits for a restart or has ended.
        """
        return Ref(self._cell(path).life)

    async def start_child(
        self, supervisor_path: str, spec: AnySpec, *, deadline_s: float = 60.0
    ) -> Ref[Any]:
        """Add a child under a running supervisor; returns its reference once it has started.

        Raises the error of a failed start, after which the child does not exist; NotRunning for a
        `patient` child that failed (it stays and is retried); NameTaken; the errors of `ask`. If
        the caller is cancelled or times out, the child is stopped again.
        """
        self._require_supervisor(supervisor_path)
        return await self.find(supervisor_path).ask(StartChild(spec), deadline_s=deadline_s)

    async def start_children(
        self, supervisor_path: str, specs: Sequence[AnySpec], *, deadline_s: float = 60.0
    ) -> Sequence[Ref[Any] | Exception]:
        """Add several children at once; for each its reference or its error, as in `start_child`.

        Raises the errors of `ask`; then none of them exists.
        """
        self._require_supervisor(supervisor_path)
        request = StartChildren(tuple(specs))
        return await self.find(supervisor_path).ask(request, deadline_s=deadline_s)

    async def stop_child(self, path: str, *, deadline_s: float = 60.0) -> None:
        """Stop a child in an orderly way and remove it; returns when it has ended.

        A child of the supervisor's spec exists again after the supervisor restarts.
        """
        supervisor_path, _, name = path.rpartition("/")
        self._require_supervisor(supervisor_path)
        await self.find(supervisor_path).ask(StopChild(name), deadline_s=deadline_s)

    def kill(self, path: str) -> None:
        """End the incarnation now, as if it had crashed; its callers are answered on return."""
        self._cell(path).kill(Exit(ExitKind.KILLED))

    def statistics(self) -> list[ActorStatistics]:
        """The tree, parents first, in start order; then abandoned incarnations."""
        return [*walk(self._root), *abandoned(self._ground.running)]

    async def wait_failed(self) -> NoReturn:
        """Raise when the root supervisor has failed: TooManyRestarts, or ActorDied if killed."""
        await self._failed.wait()
        assert self._exit is not None
        if isinstance(self._exit.error, Exception):
            raise self._exit.error
        raise ActorDied(self._root.path, self._root.term, self._exit)

    def _slot(self, path: str) -> Slot:
        first, *names = path.removeprefix("/").split("/")
        if not path.startswith("/") or first != self._root.spec.name:
            raise NoSuchActor(path)
        slot = self._root
        for name in names:
            child = slot.children.get(name)
            if child is None:
                raise NoSuchActor(path)
            slot = child
        return slot

    def _cell(self, path: str) -> Cell:
        slot = self._slot(path)
        if slot.cell is None or slot.cell.life.exit is not None:
            raise NotRunning(path, slot.state, slot.last_error)
        return slot.cell

    def _require_supervisor(self, path: str) -> None:
        if not isinstance(self._slot(path).spec, SupervisorSpec):
            raise NoSuchActor(path, "not a supervisor")

    def _spawn(self, cell: Cell) -> None:
        self._ground.running[cell] = None
        self._cells.start_soon(cell.run, name=f"{cell.life.path}@{cell.life.term}")

    def _root_ended(self, _slot: Slot, cell: Cell) -> None:
        self._exit = cell.life.exit
        self._failed.set()

    async def _hold(self) -> None:
        """Host the cells in a shielded scope, so that cancelling the caller stops them in order."""
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as self._cells:
                self._open.set()
                await self._closing.wait()
        self._closed.set()

    async def _leave(self) -> None:
        with anyio.CancelScope(shield=True):
            # `_hold` may not have run yet, if entering was cancelled at once.
            await self._open.wait()
            await self._stop_root()
            self._insist()
            self._closing.set()
            await self._closed.wait()
        # The body's error is not passed on: the group would wrap it in an ExceptionGroup.
        await self._outer.__aexit__(None, None, None)

    async def _stop_root(self) -> None:
        cell = self._root.cell
        if cell is None:
            return
        cell.request_stop()
        with deadline(self._clock, self._stop_deadline_s):
            await cell.done.wait()
        # No effect if it has ended in time.
        cell.kill(Exit(ExitKind.KILLED))
        with deadline(self._clock, self._stop_deadline_s):
            await cell.done.wait()

    def _insist(self) -> None:
        for task in [cell.task for cell in self._ground.running if cell.task is not None]:
            # A native cancel, because a cancelled scope does not reach through a shield.
            task.cancel()
        if self._ground.running:
            self._clock.call_later(INSIST_EVERY_S, self._insist)
