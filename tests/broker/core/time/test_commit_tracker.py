"""Commits against a naive model that remembers every message, over readers, crashes and resets."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.time import commit_tracker
from broker.core.time.commit_tracker import CommitTracker, Place, TooManyGaps
from broker.core.time.named_cursor import commit_refusal, committed
from broker.model.ids import MessageId, TimeTick
from broker.model.named_cursor import ChannelPosition, NamedCursor
from tests.cases import cases

CHANNELS = ("v0", "v1")
BEGIN = ChannelPosition(TimeTick(0))
Message = tuple[int, int]
"""Tick and id."""


def end_of(message: Message, *, more: bool) -> ChannelPosition:
    tick, id = message
    # In the middle of a transaction only a part of the tick is processed.
    return (
        ChannelPosition(TimeTick(tick), MessageId(id)) if more else ChannelPosition(TimeTick(tick))
    )


def is_behind(message: Message, at: ChannelPosition) -> bool:
    return message > (at.tick, at.id)


@dataclass
class GivenBatch:
    places: tuple[Place, ...]
    end: ChannelPosition
    messages: set[tuple[str, Message]]


@dataclass
class Reader:
    """A program with its reader: what it was given, what it knows as processed."""

    epoch: int
    tracker: CommitTracker
    rest: dict[str, list[Message]]
    batches: list[GivenBatch] = field(default_factory=list)
    taken: int = 0

    def give(self, channel: str, count: int) -> None:
        """The next messages as one batch, which may end inside of a transaction."""
        rest = self.rest[channel]
        messages, self.rest[channel] = rest[:count], rest[count:]
        if messages:
            more = bool(rest[count:]) and rest[count][0] == messages[-1][0]
            end = end_of(messages[-1], more=more)
            of = {(channel, it) for it in messages}
            self.batches.append(GivenBatch(self.tracker.give([channel]), end, of))

    def closed(self, channel: str, newest: int) -> ChannelPosition:
        """As a source closes ticks: once nothing is left to give out."""
        return BEGIN if self.rest[channel] else ChannelPosition(TimeTick(newest))


class World:
    """The log, the server's cursor, three readers, and what was processed since the last reset."""

    def __init__(self) -> None:
        self.log: dict[str, list[Message]] = {name: [] for name in CHANNELS}
        self.cursor = NamedCursor("c", dict.fromkeys(CHANNELS, BEGIN), 0)
        self.processed: set[tuple[str, Message]] = set()
        self.next_id, self.tick = 1, 0
        self.readers: list[Reader] = []
        for name in CHANNELS:
            for count in (1, 3, 1):
                self.append(name, count)
        self.readers = [self.reader() for _ in range(3)]

    def append(self, channel: str, count: int) -> None:
        """One message, or a transaction of several, which share a tick."""
        self.tick += 1
        new = [(self.tick, self.next_id + it) for it in range(count)]
        self.next_id += count
        self.log[channel] += new
        for reader in self.readers:
            reader.rest[channel] += new

    def give(self, which: int, channel: str, count: int) -> None:
        self.readers[which].give(channel, count)

    def commit(self, which: int, number: int) -> None:
        reader = self.readers[which]
        if number < len(reader.batches):
            self._processed(reader, reader.batches[number : number + 1])
            reader.tracker.commit(reader.batches[number].places, reader.batches[number].end)
            self._store(reader)

    def take(self, which: int) -> None:
        reader = self.readers[which]
        for batch in reader.batches[reader.taken : reader.taken + 1]:
            reader.taken += 1
            reader.tracker.take(batch.places, batch.end)

    def commit_taken(self, which: int) -> None:
        reader = self.readers[which]
        self._processed(reader, reader.batches[: reader.taken])
        reader.tracker.commit_taken()
        self._store(reader)

    def crash(self, which: int) -> None:
        """What it has not committed is forgotten; another one takes its place."""
        self.readers[which] = self.reader()

    def reset(self, at: int) -> None:
        to = ChannelPosition(TimeTick(min(at, self.tick)))
        self.cursor = NamedCursor("c", dict.fromkeys(CHANNELS, to), 1, self.cursor.epoch + 1)
        self.processed = {
            (name, it) for name in CHANNELS for it in self.log[name] if not is_behind(it, to)
        }

    def read_to_the_end(self) -> None:
        """By one more reader, which commits all in the opposite order."""
        last = self.reader()
        for name in CHANNELS:
            while last.rest[name]:
                last.give(name, 2)
        self._processed(last, last.batches)
        for batch in reversed(last.batches):
            last.tracker.commit(batch.places, batch.end)
        self._store(last)

    def reader(self) -> Reader:
        starts = dict(self.cursor.positions)
        rest = {
            name: [it for it in messages if is_behind(it, starts[name])]
            for name, messages in self.log.items()
        }
        return Reader(self.cursor.epoch, CommitTracker(starts), rest)

    def check(self) -> None:
        """No message that was not processed lies below the cursor."""
        for name in CHANNELS:
            for message in self.log[name]:
                below = not is_behind(message, self.cursor.positions[name])
                assert not below or (name, message) in self.processed, (name, message, self.cursor)

    def _processed(self, reader: Reader, batches: Sequence[GivenBatch]) -> None:
        # A reader from before the reset says nothing about what is to be done since.
        if reader.epoch == self.cursor.epoch:
            self.processed = self.processed.union(*[it.messages for it in batches])

    def _store(self, reader: Reader) -> None:
        positions = {
            name: reader.tracker.position(name, reader.closed(name, self.tick)) for name in CHANNELS
        }
        if commit_refusal(self.cursor, positions, reader.epoch) is None:
            self.cursor = committed(self.cursor, positions, self.cursor.moved_ms + 1)


READER = st.integers(0, 2)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from(CHANNELS), st.integers(1, 4)),
        st.tuples(st.just("give"), READER, st.sampled_from(CHANNELS), st.integers(1, 3)),
        st.tuples(st.just("commit"), READER, st.integers(0, 20)),
        st.tuples(st.just("take"), READER),
        st.tuples(st.just("commit_taken"), READER),
        st.tuples(st.just("crash"), READER),
        st.tuples(st.just("reset"), st.integers(0, 10)),
    ),
    max_size=60,
)


@settings(max_examples=cases(400), deadline=None)
@given(ACTIONS)
def test_no_interleaving_of_commits_crashes_readers_and_resets_loses_a_message(
    actions: list[tuple[object, ...]],
) -> None:
    world = World()
    for name, *rest in actions:
        getattr(world, str(name))(*rest)
        world.check()
    world.read_to_the_end()
    world.check()
    assert world.cursor.tick == world.tick


def test_a_message_for_every_channel_is_committed_on_each() -> None:
    tracker = CommitTracker(dict.fromkeys(CHANNELS, BEGIN))
    first = tracker.give(["v0"])
    both = tracker.give(CHANNELS)
    tracker.commit(both, ChannelPosition(TimeTick(5)))
    assert tracker.position("v1", BEGIN).tick == 5
    assert tracker.position("v0", BEGIN).tick == 0, "the one before it is not committed"
    tracker.commit(first, ChannelPosition(TimeTick(3)))
    assert tracker.position("v0", BEGIN).tick == 5


def test_a_part_of_a_batch_counts_when_all_that_was_taken_is_committed() -> None:
    tracker = CommitTracker({"v0": BEGIN})
    first, second = tracker.give(["v0"]), tracker.give(["v0"])
    tracker.take_part(second, ChannelPosition(TimeTick(9)))
    tracker.commit_taken()
    assert tracker.position("v0", BEGIN).tick == 0, "the first batch comes before it"
    tracker.take(first, ChannelPosition(TimeTick(3)))
    tracker.take_part(second, ChannelPosition(TimeTick(4), MessageId(7)))
    tracker.commit_taken()
    closed = ChannelPosition(TimeTick(10))
    assert tracker.position("v0", closed) == ChannelPosition(TimeTick(4), MessageId(7))
    tracker.take(second, ChannelPosition(TimeTick(6)))
    tracker.commit_taken()
    assert tracker.position("v0", closed) == closed


def test_too_many_gaps_are_refused_and_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_tracker, "RUNS_MAX", 2)
    tracker = CommitTracker({"v0": BEGIN})
    given = [tracker.give(["v0"]) for _ in range(9)]
    ends = [ChannelPosition(TimeTick(it)) for it in range(1, 10)]
    for number in (2, 5):
        tracker.commit(given[number], ends[number])
    with pytest.raises(TooManyGaps) as caught:
        tracker.commit(given[8], ends[8])
    assert caught.value.place == ("v0", 1)
    for number in (3, 4, 2, 1):
        tracker.commit(given[number], ends[number])
    assert tracker.position("v0", BEGIN).tick == 0
    tracker.commit(given[0], ends[0])
    assert tracker.position("v0", BEGIN).tick == 6
    tracker.commit(given[8], ends[8])


def test_a_run_that_was_committed_out_of_order_joins_what_is_taken() -> None:
    tracker = CommitTracker({"v0": BEGIN})
    first, second, third = (tracker.give(["v0"]) for _ in range(3))
    ends = [ChannelPosition(TimeTick(tick)) for tick in (10, 20, 30)]
    tracker.commit(second, ends[1])
    tracker.commit(second, ends[1])  # again changes nothing
    tracker.take(third, ends[2])  # out of its turn: what lies before was not taken
    assert tracker.position("v0", BEGIN) == BEGIN
    tracker.take(first, ends[0])
    tracker.commit_taken()
    assert tracker.position("v0", BEGIN) == ends[1]
    tracker.commit(third, ends[2])
    assert tracker.position("v0", BEGIN) == ends[2]
    tracker.commit(first, ends[0])  # long since processed
    assert tracker.position("v0", BEGIN) == ends[2]
