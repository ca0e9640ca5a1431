"""What a user of the runtime subclasses, and what an actor sees of the world around it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from random import Random
from typing import Any, Generic, Protocol, TypeVar

from actors.clock import Clock
from actors.envelope import Envelope
from actors.incarnation import Incarnation
from actors.ref import Ref
from actors.timer import Timer

M = TypeVar("M")


class Actor(ABC, Generic[M]):
    """State with one thread of control: `receive` is never entered twice at once.

    What `started` or `receive` raise ends the incarnation; the supervisor decides what follows.
    """

    async def started(self, context: "Context[M]") -> None:
        """Before the first message, within `start_deadline_s`; build the state here."""

    @abstractmethod
    async def receive(self, batch: Sequence[Envelope[M]]) -> None:
        """Handle 1 to `batch_max` envelopes, in arrival order."""

    async def stopped(self) -> None:
        """At an orderly stop only, after the last batch; within `stop_deadline_s`."""

    def statistics(self) -> Mapping[str, int | float | str]:
        """Figures shown beside the runtime's own; called at any moment, changes nothing."""
        return {}

    def stop_requested(self) -> None:
        """Called once, at once, when a stop is asked for, even in the middle of `receive`."""

    async def reap(self) -> None:
        """After every end, however violent; for the runtime's own actors, must be bounded."""


class Tree(Protocol):
    """What an actor may do to the tree it lives in; a System."""

    def find(self, path: str) -> Ref[Any]:
        """See System."""
        ...

    def kill(self, path: str) -> None:
        """See System."""
        ...

    async def start_child(
        self, supervisor_path: str, spec: Any, *, deadline_s: float = 60.0
    ) -> Ref[Any]:
        """See System; `spec` is a ChildSpec or a SupervisorSpec."""
        ...

    async def start_children(
        self, supervisor_path: str, specs: Sequence[Any], *, deadline_s: float = 60.0
    ) -> Sequence[Ref[Any] | Exception]:
        """See System."""
        ...

    async def stop_child(self, path: str) -> None:
        """See System."""
        ...


class Context(Generic[M]):
    """An incarnation's own view: who it is, its clock and randomness, timers and watches."""

    def __init__(self, life: Incarnation, seed: int, tree: Tree, stop: Callable[[], None]) -> None:
        self.path = life.path
        self.term = life.term
        self.self: Ref[M] = Ref(life)
        self.clock: Clock = life.clock
        self._seed = seed
        self.tree = tree
        self.life = life
        self._stop = stop

    @cached_property
    def random(self) -> Random:
        """Its own, made when it is first asked for: most actors throw no dice."""
        return Random(self._seed)

    @property
    def shed(self) -> int:
        """Messages that found the mailbox full in this life, and were dropped."""
        return self.life.mailbox.shed

    @property
    def waiting(self) -> int:
        """Messages that wait behind the batch that is being handled."""
        return self.life.mailbox.depth

    def after(self, delay_s: float, message: M) -> Timer:
        """Have `message` arrive once, in `delay_s` seconds; it dies with the incarnation."""
        return Timer(self.life, delay_s, message, repeats=False)

    def every(self, period_s: float, message: M) -> Timer:
        """Have `message` arrive each `period_s` seconds; at most one of them waits undelivered."""
        return Timer(self.life, period_s, message, repeats=True)

    def watch(self, ref: Ref[Any]) -> None:
        """Have Terminated(path, term, reason) arrive, once, on the child-events lane.

        It comes when the watched incarnation has ended; at once when it already has.
        """
        self.life.watch(ref.life)

    def stop(self) -> None:
        """Stop in an orderly way after the current batch; counts as a normal end."""
        self._stop()
