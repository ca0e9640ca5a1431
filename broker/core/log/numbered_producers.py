"""Which numbered batches a log has stored already, so that a repeat gets its first answer.

It owns the window: how much of each producer is remembered, and for how long. It is fed with what
was placed, in the order of the log, and never decides what a repeat is worth.
Why a batch of an unknown producer must begin at 0: a larger number says that there was something
before it which nobody here remembers, and then nobody can say whether this one is a repeat either.
Next: broker/core/log/sequencer.py
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import TICK_LOGICAL_BITS, TimeTick
from broker.model.message import Appended
from broker.model.producer_numbers import OutOfSequence, ProducedBatch, ProducerPart
from broker.model.record import Record

PRODUCER_LENGTH_MAX = 64


@dataclass(frozen=True, slots=True)
class ProducerLimits:
    """How much is remembered. Beyond `producers_max` the one longest silent is forgotten first."""

    producers_max: int = 1024
    runs_max: int = 16
    """Newest batches of each producer; a repeat of something older is refused."""
    silent_ms_max: int = 600_000


class NumberedProducers:
    """See the module. Learning the log again, from wherever, changes nothing.

    Not to be used any more once a write of what was learnt has failed. `tick`: everything up to it
    was learnt.
    """

    def __init__(
        self,
        limits: ProducerLimits | None = None,
        remembered: Iterable[ProducedBatch] = (),
        tick: TimeTick = TimeTick(0),
    ) -> None:
        """`remembered` and `tick`: what `runs` and `tick` gave before."""
        self.tick = TimeTick(0)
        self._limits = limits or ProducerLimits()
        self._runs: dict[str, deque[ProducedBatch]] = {}
        for run in remembered:
            self._add(run)
        self.tick = tick

    def __len__(self) -> int:
        return len(self._runs)

    def look_up(self, part: ProducerPart, count: int) -> Appended | Refusal | None:
        """Where `count` messages numbered from `part.sequence` on landed; None: they are new.

        OutOfSequence with `expected` above 0 and up to the sequence: numbers were left out, so it
        was never stored. With any other: it is too old to tell.
        """
        runs = self._runs.get(part.producer)
        if runs is None:
            return None if part.sequence == 0 else _unknown(part)
        return _next_or_known(part, count, runs[-1].next_sequence, runs)

    def learn(self, run: ProducedBatch) -> None:
        """It was stored. What was learnt before is passed over; a gap begins the producer anew."""
        if run.last_tick > self.tick:
            self._add(run)
            self._forget(run.last_tick)
            self.tick = run.last_tick

    def replay(self, record: Record) -> None:
        """Learn from a record of the log; from one without a producer there is nothing to learn."""
        run = produced_by(record)
        if run is not None:
            self.learn(run)

    def runs(self) -> tuple[ProducedBatch, ...]:
        """Everything that is remembered, the producer longest silent first."""
        return tuple([run for runs in self._runs.values() for run in runs])

    def _add(self, run: ProducedBatch) -> None:
        runs = self._runs.pop(run.producer, None)
        if runs is None or run.sequence > runs[-1].next_sequence:
            runs = deque(maxlen=self._limits.runs_max)
        if not runs or run.next_sequence > runs[-1].next_sequence:
            runs.append(run)
        self._runs[run.producer] = runs  # the one heard last comes last

    def _forget(self, tick: TimeTick) -> None:
        silent = tick - (self._limits.silent_ms_max << TICK_LOGICAL_BITS)
        while self._runs:
            oldest = next(iter(self._runs))
            fresh = self._runs[oldest][-1].last_tick >= silent
            if fresh and len(self._runs) <= self._limits.producers_max:
                return
            del self._runs[oldest]


class GroupSequences:
    """The numbers of one group of appends, on top of what the log has: placed they are later."""

    def __init__(self, producers: NumberedProducers) -> None:
        self._producers = producers
        self._first: dict[ProducerPart, tuple[int, int]] = {}  # index in the group, messages
        self._next: dict[str, int] = {}

    def look_up(self, part: ProducerPart, count: int) -> Appended | Refusal | int | None:
        """None: it is new. A number: it repeats that one of the group. Nothing is changed by it."""
        refusal = _ill_formed(part)
        if refusal is not None:
            return refusal
        same = self._first.get(part)
        if same is not None:
            return same[0] if same[1] == count else _other_batch(part, same[1], count)
        expected = self._next.get(part.producer)
        if expected is None or part.sequence < expected:
            return self._producers.look_up(part, count)
        return None if part.sequence == expected else _gap(part, expected)

    def take(self, index: int, part: ProducerPart, count: int) -> None:
        """What is new is let in, as number `index` of the group."""
        self._first[part] = index, count
        self._next[part.producer] = part.sequence + count


def produced_by(record: Record) -> ProducedBatch | None:
    """What a record says of its producer, if it has one."""
    part = None if record.batch is None else record.batch.producer
    if part is None:
        return None
    return ProducedBatch(
        part.producer,
        part.sequence,
        len(record.sizes),
        record.base_id,
        record.base_tick,
        record.last_confirmed_id,
    )


def _next_or_known(
    part: ProducerPart, count: int, expected: int, runs: Iterable[ProducedBatch]
) -> Appended | Refusal | None:
    if part.sequence == expected:
        return None
    if part.sequence > expected:
        return _gap(part, expected)
    for run in runs:
        if run.sequence == part.sequence and run.count == count:
            return run.landed(part.sequence)
        if run.sequence <= part.sequence < run.next_sequence:
            return _other_batch(part, run.count, count)
    return OutOfSequence(
        StreamingCode.INVALID_REQUEST_SEQ,
        f"producer {part.producer!r} goes back to sequence {part.sequence}, of which nothing is"
        f" remembered; the next is {expected}",
        expected,
    )


def _ill_formed(part: ProducerPart) -> Refusal | None:
    if part.sequence < 0:
        cause = f"producer {part.producer!r}: sequence {part.sequence} is below 0"
        return Refusal(StreamingCode.INVALID_ARGUMENT, cause)
    if len(part.producer) > PRODUCER_LENGTH_MAX:
        cause = f"a producer's name has {len(part.producer)} characters, {PRODUCER_LENGTH_MAX} may"
        return Refusal(StreamingCode.INVALID_ARGUMENT, cause)
    return None


def _gap(part: ProducerPart, expected: int) -> Refusal:
    return OutOfSequence(
        StreamingCode.INVALID_REQUEST_SEQ,
        f"producer {part.producer!r} jumps to sequence {part.sequence}, {expected} comes next;"
        " nothing was stored",
        expected,
    )


def _unknown(part: ProducerPart) -> Refusal:
    return OutOfSequence(
        StreamingCode.INVALID_REQUEST_SEQ,
        f"producer {part.producer!r} is not known, or was silent for too long: sequence"
        f" {part.sequence} may be stored or not; begin at 0, best under a new name",
        0,
    )


def _other_batch(part: ProducerPart, had: int, count: int) -> Refusal:
    return Refusal(
        StreamingCode.INVALID_ARGUMENT,
        f"producer {part.producer!r}: the batch with sequence {part.sequence} had {had} messages,"
        f" this one has {count}; a repeat must be the same",
    )
