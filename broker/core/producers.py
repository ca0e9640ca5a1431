"""Which numbered messages a log has stored already, so that a repeat gets its first answer.

It owns the window: how much of each producer is remembered, and for how long. It is fed with what
became durable, in the order of the log, and never decides what to do with a repeat.
Why runs and not single numbers: a producer counts up by one, so what one record stored is one line
here, and a batch of which a crash left only the beginning is told apart from a whole one.
Next: broker/core/sequencer.py
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from broker.model.ids import TICK_LOGICAL_BITS, TimeTick
from broker.model.message import Appended
from broker.model.producer import Produced


@dataclass(frozen=True, slots=True)
class ProducerLimits:
    """How much is remembered. Beyond `producers_max` the one longest silent is forgotten first."""

    producers_max: int = 1024
    runs_max: int = 16
    """Newest stored runs of each producer; a repeat of something older is refused."""
    silent_ms_max: int = 600_000


@dataclass(frozen=True, slots=True)
class Stored:
    """The first `len(outcomes)` of the messages are in the log, there; the others are new."""

    outcomes: tuple[Appended, ...]


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The number lies below `oldest`, the first that is remembered: nobody knows any more."""

    oldest: int


@dataclass(frozen=True, slots=True)
class Gap:
    """The producer has left out numbers: `expected` comes next."""

    expected: int


class Producers:
    """See the module. Learning the log again, from wherever, changes nothing.

    `tick`: everything up to it was learnt.
    """

    def __init__(
        self,
        limits: ProducerLimits | None = None,
        remembered: Iterable[Produced] = (),
        tick: TimeTick = TimeTick(0),
    ) -> None:
        """`remembered` and `tick`: what `runs` and `tick` gave before."""
        self.tick = TimeTick(0)
        self._limits = limits or ProducerLimits()
        self._runs: dict[str, deque[Produced]] = {}
        for run in remembered:
            self._add(run)
        self.tick = tick

    def __len__(self) -> int:
        return len(self._runs)

    def look_up(self, producer: str, sequence: int, count: int) -> Stored | Forgotten | Gap:
        """What is known of `count` messages numbered from `sequence` on.

        Of a producer that is not known any number is new.
        """
        runs = self._runs.get(producer)
        if runs is None:
            return Stored(())
        if sequence > runs[-1].next_sequence:
            return Gap(runs[-1].next_sequence)
        if sequence < runs[0].sequence:
            return Forgotten(runs[0].sequence)
        end = min(sequence + count, runs[-1].next_sequence)
        return Stored(tuple([self._landed(runs, number) for number in range(sequence, end)]))

    def learn(self, run: Produced) -> None:
        """It is durable. What was learnt before is passed over; a gap begins the producer anew."""
        if run.last_tick > self.tick:
            self._add(run)
            self._forget(run.last_tick)
            self.tick = run.last_tick

    def runs(self) -> tuple[Produced, ...]:
        """Everything that is remembered, the producer longest silent first."""
        return tuple([run for runs in self._runs.values() for run in runs])

    def _add(self, run: Produced) -> None:
        runs = self._runs.pop(run.producer, None)
        if runs is None or run.sequence > runs[-1].next_sequence:
            runs = deque(maxlen=self._limits.runs_max)
        if not runs or run.next_sequence > runs[-1].next_sequence:
            runs.append(run)
        self._runs[run.producer] = runs  # the one heard last comes last

    def _landed(self, runs: Iterable[Produced], number: int) -> Appended:
        found = next(run for run in runs if number < run.next_sequence)
        return found.landed(number)

    def _forget(self, tick: TimeTick) -> None:
        silent = tick - (self._limits.silent_ms_max << TICK_LOGICAL_BITS)
        while self._runs:
            oldest = next(iter(self._runs))
            fresh = self._runs[oldest][-1].last_tick >= silent
            if fresh and len(self._runs) <= self._limits.producers_max:
                return
            del self._runs[oldest]
