"""Remembers which numbered batches a log has stored, so that a retry gets the first answer.

As with idempotent producers in Kafka, a producer numbers its messages. The log remembers the newest
batches of each producer for a limited time.

Why the first batch of an unknown producer must start at 0: a larger number means that there were
earlier batches which the log has forgotten, so it cannot tell a new batch from a retry.
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
    """How much is remembered. Beyond `producers_max` the longest silent producer is forgotten."""

    producers_max: int = 1024
    """Numbered producers that are remembered."""
    runs_max: int = 16
    """Newest batches of each producer; a retry of an older one is refused."""
    silent_ms_max: int = 600_000
    """A producer that is silent for longer is forgotten."""


class NumberedProducers:
    """The remembered batches of one log. Learning records again changes nothing.

    Discard it if a write of learnt records fails. `tick`: all records up to it were learnt.
    """

    def __init__(
        self,
        limits: ProducerLimits | None = None,
        remembered: Iterable[ProducedBatch] = (),
        tick: TimeTick = TimeTick(0),
    ) -> None:
        """`remembered` and `tick`: the saved values of `runs` and `tick`."""
        self.tick = TimeTick(0)
        self._limits = limits or ProducerLimits()
        self._runs: dict[str, deque[ProducedBatch]] = {}
        for run in remembered:
            self._add(run)
        self.tick = tick

    def __len__(self) -> int:
        return len(self._runs)

    def look_up(self, part: ProducerPart, count: int) -> Appended | Refusal | None:
        """Where `count` messages numbered from `part.sequence` were stored; None if they are new.

        OutOfSequence with 0 < `expected` <= sequence: numbers were skipped, so the batch was never
        stored. With any other `expected`: the log does not remember whether it was.
        """
        runs = self._runs.get(part.producer)
        if runs is None:
            return None if part.sequence == 0 else _unknown(part)
        return _next_or_known(part, count, runs[-1].next_sequence, runs)

    def learn(self, run: ProducedBatch) -> None:
        """The batch was stored. Earlier ones are skipped; after a gap the producer starts anew."""
        last_tick = run.last_tick
        if last_tick > self.tick:
            self._add(run)
            self._forget(last_tick)
            self.tick = last_tick

    def replay(self, record: Record) -> None:
        """Learn from a record of the log; one without a producer is skipped."""
        run = produced_by(record)
        if run is not None:
            self.learn(run)

    def runs(self) -> tuple[ProducedBatch, ...]:
        """All remembered batches, those of the longest silent producer first."""
        return tuple([run for runs in self._runs.values() for run in runs])

    def _add(self, run: ProducedBatch) -> None:
        runs = self._runs.pop(run.producer, None)
        expected = 0 if runs is None else runs[-1].next_sequence
        if runs is None or run.sequence > expected:
            runs = deque((run,), maxlen=self._limits.runs_max)
        elif run.next_sequence > expected:
            runs.append(run)
        self._runs[run.producer] = runs  # popped and inserted again: in order of last activity

    def _forget(self, tick: TimeTick) -> None:
        # By ticks and not by a clock: a replay forgets the same, whenever it runs.
        silent = tick - (self._limits.silent_ms_max << TICK_LOGICAL_BITS)
        while self._runs:
            oldest = next(iter(self._runs))
            fresh = self._runs[oldest][-1].last_tick >= silent
            if fresh and len(self._runs) <= self._limits.producers_max:
                return
            del self._runs[oldest]


class GroupSequences:
    """The numbered batches of one group of appends, on top of those in the log."""

    def __init__(self, producers: NumberedProducers) -> None:
        self._producers = producers
        # By producer and sequence, which hash faster than the value that holds them; to the index
        # in the group and the number of messages.
        self._first: dict[tuple[str, int], tuple[int, int]] = {}
        self._next: dict[str, int] = {}

    def look_up(self, part: ProducerPart, count: int) -> Appended | Refusal | int | None:
        """None: it is new. A number: it repeats that batch of the group. Changes nothing."""
        refusal = _ill_formed(part)
        if refusal is not None:
            return refusal
        same = self._first.get((part.producer, part.sequence))
        if same is not None:
            return same[0] if same[1] == count else _other_batch(part, same[1], count)
        expected = self._next.get(part.producer)
        # Not numbered after a batch of this group: only the log can know it.
        if expected is None or part.sequence < expected:
            return self._producers.look_up(part, count)
        return None if part.sequence == expected else _gap(part, expected)

    def take(self, index: int, part: ProducerPart, count: int) -> None:
        """Admit a new batch as number `index` of the group."""
        self._first[part.producer, part.sequence] = index, count
        self._next[part.producer] = part.sequence + count


def produced_by(record: Record) -> ProducedBatch | None:
    """The producer's batch that a record stores, if it has a producer."""
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
        f"producer {part.producer!r}: sequence {part.sequence} is too old to be remembered;"
        f" expected {expected}",
        expected,
    )


def _ill_formed(part: ProducerPart) -> Refusal | None:
    if part.sequence < 0:
        cause = f"producer {part.producer!r}: sequence {part.sequence} is below 0"
        return Refusal(StreamingCode.INVALID_ARGUMENT, cause)
    if len(part.producer) > PRODUCER_LENGTH_MAX:
        length = len(part.producer)
        cause = f"a producer's name has {length} characters; the limit is {PRODUCER_LENGTH_MAX}"
        return Refusal(StreamingCode.INVALID_ARGUMENT, cause)
    return None


def _gap(part: ProducerPart, expected: int) -> Refusal:
    return OutOfSequence(
        StreamingCode.INVALID_REQUEST_SEQ,
        f"producer {part.producer!r}: gap before sequence {part.sequence}, expected {expected};"
        " nothing was stored",
        expected,
    )


def _unknown(part: ProducerPart) -> Refusal:
    return OutOfSequence(
        StreamingCode.INVALID_REQUEST_SEQ,
        f"producer {part.producer!r} is unknown or was silent for too long: sequence"
        f" {part.sequence} may or may not be stored; start at 0, best with a new name",
        0,
    )


def _other_batch(part: ProducerPart, had: int, count: int) -> Refusal:
    return Refusal(
        StreamingCode.INVALID_ARGUMENT,
        f"producer {part.producer!r}: the batch at sequence {part.sequence} had {had} messages,"
        f" this one has {count}; a retry must be identical",
    )
