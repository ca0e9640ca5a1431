"""The base class of actors, and the context through which an actor reaches its surroundings."""

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
    """State with a single thread of control: `receive` never runs concurrently with itself.

    An exception from `started` or `receive` ends the incarnation; the supervisor decides whether
    it is restarted.
    """

    async def started(self, context: "Context[M]") -> None:
        """Called before the first message; build the state here, within `start_deadline_s`."""

    @abstractmethod
    async def receive(self, batch: Sequence[Envelope[M]]) -> None:
        """Handle 1 to `batch_max` envelopes, in arrival order."""

    async def stopped(self) -> None:
        """Called at an orderly stop only, after the last batch; within `stop_deadline_s`."""

    def statistics(self) -> Mapping[str, int | float | str]:
        """Figures shown beside the runtime's own. May be called at any time; changes nothing."""
        return {}

    def stop_requested(self) -> None:
        """Called once, as soon as a stop is requested, even while `receive` is running."""

    async def reap(self) -> None:
        """After every end, a kill included; for the runtime's own actors; must be bounded."""


class Tree(Protocol):
    """What an actor may do to its tree; implemented by System."""

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
    """An incarnation's surroundings: its identity, clock, randomness, timers and watches."""

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
        """A generator of its own; created on first use, because most actors need none."""
        return Random(self._seed)

    @property
    def shed(self) -> int:
        """Messages that this incarnation dropped because the mailbox was full."""
        return self.life.mailbox.shed

    @property
    def waiting(self) -> int:
        """Messages that wait behind the batch that is being handled."""
        return self.life.mailbox.depth

    def after(self, delay_s: float, message: M) -> Timer:
        """Deliver `message` once after `delay_s` seconds, if the incarnation still lives."""
        return Timer(self.life, delay_s, message, repeats=False)

    def every(self, period_s: float, message: M) -> Timer:
        """Deliver `message` every `period_s` seconds; at most one waits in the mailbox."""
        return Timer(self.life, period_s, message, repeats=True)

    def on_beat(
        self, period_s: float, message: M, offset_s: float = 0.0, *, once: bool = False
    ) -> Timer:
        """As `every`, but at multiples of the period on the clock, plus `offset_s`.

        All such timers of a System that are due together wake the process once. The first message
        comes after at most 1.1 periods; `once`: only that one.
        """
        return Timer(self.life, period_s, message, repeats=not once, offset_s=offset_s)

    def watch(self, ref: Ref[Any]) -> None:
        """Deliver Terminated(path, term, reason) once, when the watched incarnation has ended.

        It arrives on the child events lane; at once if the incarnation has ended already.
        """
        self.life.watch(ref.life)

    def stop(self) -> None:
        """Stop in an orderly way after the current batch; counts as a normal end."""
        self._stop()
