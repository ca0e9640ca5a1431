"""The task that runs one incarnation of an actor, from its start to its end.

It owns the cancel scope and the deadlines. Supervisors decide about restarts.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import anyio

from actors.actor import Actor, Context, Tree
from actors.beats import Beats
from actors.clock import Alarm, Clock
from actors.errors import PlannedRestart
from actors.exit import Exit, ExitKind
from actors.identity import Identity, assume, assumed
from actors.incarnation import Incarnation

BATCHES_UNBROKEN_MAX = 32
"""Batches handled in a row before other tasks get a turn, while the mailbox is never empty."""

log = logging.getLogger("actors")


@dataclass(frozen=True, slots=True)
class Ground:
    """What all cells of one system share."""

    clock: Clock
    random: Random
    tree: Tree
    spawn: Callable[["Cell"], None]
    # A dict as an ordered set: a set of objects has another order in each run, and seeded tests
    # must repeat.
    running: "dict[Cell, None]"
    beats: Beats


class Cell:
    """One running incarnation.

    `ready` is set when `started` has returned or failed; `done` when none of its code runs any
    more, or when it resisted cancellation for `stop_deadline_s` and was abandoned.
    """

    def __init__(
        self,
        life: Incarnation,
        actor: Actor[Any],
        ground: Ground,
        stop_deadline_s: float | None,
        ended: Callable[["Cell"], None],
    ) -> None:
        self.life = life
        self.actor = actor
        self.handled = 0
        self.has_started = False
        self.ready = anyio.Event()
        self.done = anyio.Event()
        self.task: asyncio.Task[Any] | None = None
        self._identity = Identity(life.path, life.term)
        self._ground = ground
        self._stop_deadline_s = stop_deadline_s
        self._ended = ended
        self._scope = anyio.CancelScope()
        self._stopping: ExitKind | None = None
        self._alarm: Alarm | None = None

    @property
    def state(self) -> str:
        """One word for `statistics`."""
        if self.life.exit is not None:
            return "abandoned" if self.life.over else "dying"
        if self._stopping is not None:
            return "stopping"
        return "running" if self.ready.is_set() else "starting"

    def request_stop(self, kind: ExitKind = ExitKind.SHUTDOWN) -> None:
        """Finish the current batch, then call `stopped`; cancel it after `stop_deadline_s`."""
        if self._stopping is not None or self.life.exit is not None:
            return
        self._stopping = kind
        # Armed before the batch ends: one deadline covers the rest of the batch and `stopped`.
        self._arm(self._overrun)
        self.actor.stop_requested()
        # An idle actor waits for a message and would not notice the stop.
        self.life.mailbox.wake()

    def kill(self, exit: Exit) -> None:
        """End it now: its callers are answered before this returns, and its task is cancelled."""
        if self.life.exit is not None:
            return
        # Callers are answered first: the task may take long to unwind, or swallow the cancellation.
        self.life.die(exit)
        self._scope.cancel()
        self._arm(self._abandon)

    async def run(self) -> None:
        """Run the incarnation from start to end. Raises nothing."""
        self.task = asyncio.current_task()
        assume(self._identity)
        try:
            with self._scope:
                self.life.die(await self._live())
        except asyncio.CancelledError:
            # `_live` turns the cancellation of a living incarnation into a crash, so a kill came
            # first.
            assert self.life.exit is not None
        finally:
            # The first exit is kept: this one counts only if KeyboardInterrupt or SystemExit
            # passes.
            self.life.die(Exit(ExitKind.KILLED))
            try:
                if type(self.actor).reap is not Actor.reap:
                    # No cancellation may end `reap` before the children have ended.
                    with anyio.CancelScope(shield=True):
                        await self.actor.reap()
            finally:
                self._finish()

    async def _live(self) -> Exit:
        kind = ExitKind.START_FAILED
        try:
            context: Context[Any] = Context(
                self.life,
                self._ground.random.getrandbits(64),
                self._ground.tree,
                lambda: self.request_stop(ExitKind.NORMAL),
            )
            await self.actor.started(context)
            kind = ExitKind.CRASHED
            self.has_started = True
            self.ready.set()
            await self._work()
            # A kill during a batch that never suspended ends the loop without a cancellation.
            if self.life.exit is None:
                await self.actor.stopped()
        except asyncio.CancelledError as error:
            if self.life.exit is not None:
                raise
            return self._crashed(kind, error)
        except Exception as error:  # noqa: BLE001 - whatever an actor raises is its end
            return self._crashed(kind, error)
        return Exit(self._stopping or ExitKind.KILLED)

    async def _work(self) -> None:
        mailbox, unbroken = self.life.mailbox, 0
        receive = self.actor.receive
        # A kill cancels the task where it suspends; `receive` may not suspend, so look at `exit`
        # too.
        while self._stopping is None and self.life.exit is None:
            # `receive` may never suspend, so a busy actor would starve all others on the loop.
            if unbroken >= BATCHES_UNBROKEN_MAX:
                unbroken = 0
                await asyncio.sleep(0)
                continue
            batch = mailbox.take()
            if not batch:
                unbroken = 0
                await mailbox.wait()
                continue
            unbroken += 1
            self.handled += len(batch)
            await receive(batch)

    def _crashed(self, kind: ExitKind, error: BaseException) -> Exit:
        exit = Exit(kind, error)
        if isinstance(error, PlannedRestart):
            log.warning("%s of term %d ends: %s", self.life.path, self.life.term, error)
        elif kind is ExitKind.CRASHED:
            log.error("%s of term %d %s", self.life.path, self.life.term, exit, exc_info=error)
        return exit

    def _finish(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._ground.running.pop(self, None)
        self._report()

    def _report(self) -> None:
        # An abandoned task has ended after all; its end was reported when it was abandoned.
        if self.life.over:
            return
        self.life.bury()
        # After a failed start, too: `launch` waits for it.
        self.ready.set()
        self.done.set()
        self._ended(self)

    def _arm(self, callback: Callable[[], None]) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        if self._stop_deadline_s is not None:
            self._alarm = self._ground.clock.call_later(self._stop_deadline_s, callback)

    def _overrun(self) -> None:
        # Alarms run in the context of the caller that requested the stop, not in the actor's.
        with assumed(self._identity):
            log.warning("%s did not stop in %s s", self.life.path, self._stop_deadline_s)
        self.kill(Exit(ExitKind.KILLED))

    def _abandon(self) -> None:
        with assumed(self._identity):
            log.warning("%s resists cancellation; continuing without it", self.life.path)
        self._report()
