"""Offsets of a query: how far each vchannel was read.

Mostly that is one tick for all vchannels: a cut. Some vchannels may be ahead of it for a while,
when a query starts at another position on each, or when a collection joins a pattern. A range of
two offsets holds, for each vchannel, the messages with a tick above the first and up to the second.
The ticks alone define it; the ids tell what retention has removed since. Spark compares offsets as
JSON text, so equal positions must give equal text.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

from broker.client import Cut
from broker.model.channel import ChannelOffsets
from broker.model.ids import MessageId, TimeTick
from broker.spark.refusals import BadCheckpoint

Offset = dict[str, Any]
"""`{"ends": {vchannel: first id behind the position, ...}, "tick": tick}`, sorted. Vchannels that
were read further than `tick` have theirs in `"ahead": {vchannel: tick, ...}`; those that the offset
before did not have begin at `"began": {vchannel: [tick, id], ...}`."""

TICK: Final = "tick"
ENDS: Final = "ends"
AHEAD: Final = "ahead"
BEGAN: Final = "began"
BEHIND: Final = "behind"
"""Only in progress reports: what was not read yet."""


@dataclass(frozen=True, slots=True)
class Position:
    """Everything up to `tick` was read; on the vchannels of `ahead` up to the tick there.

    `ends`: the first id that was not read, of every vchannel. `began`: where those were when they
    joined that the offset before did not have; so a later look, or a replay, finds the same.
    """

    tick: TimeTick
    ends: Mapping[str, MessageId]
    ahead: Mapping[str, TimeTick] = field(default_factory=dict)
    began: Mapping[str, tuple[TimeTick, MessageId]] = field(default_factory=dict)

    def of(self, name: str) -> TimeTick:
        """Return how far a vchannel was read; 0 for one that was not read at all."""
        return self.ahead.get(name, self.tick if name in self.ends else TimeTick(0))

    @property
    def last(self) -> list[str]:
        """The vchannels that are not ahead."""
        return [name for name in self.ends if name not in self.ahead]

    def of_some(self, names: Sequence[str]) -> "Position":
        """Return the position on these vchannels only."""
        return position_of(
            {name: self.of(name) for name in names}, {name: self.ends[name] for name in names}
        )

    def not_behind(self, tick: int) -> "Position":
        """Return the position with no vchannel behind this tick; the ids stay."""
        return position_of(
            {name: min(self.of(name), TimeTick(tick)) for name in self.ends}, self.ends
        )

    def then(self, cut: Cut) -> "Position":
        """Return the position with the vchannels of the cut moved there, the others as they are."""
        ticks = {name: self.of(name) for name in self.ends} | dict.fromkeys(cut.ends, cut.tick)
        return position_of(ticks, {**self.ends, **cut.ends})

    def joined(self, other: "Position") -> "Position":
        """Return the position with the vchannels of another one there."""
        ticks = {name: self.of(name) for name in self.ends}
        ticks |= {name: other.of(name) for name in other.ends}
        return position_of(ticks, {**self.ends, **other.ends})

    def reached(self, newest: Cut) -> "Position":
        """Return the position with every vchannel at a cut that includes all of them.

        One that is further already stays there.
        """
        ends = {name: end for name, end in newest.ends.items() if self.of(name) < newest.tick}
        return self.then(Cut(newest.tick, ends))


def position_of(ticks: Mapping[str, TimeTick], ends: Mapping[str, MessageId]) -> Position:
    """Return the position with these ticks and ids."""
    lowest = min(ticks.values())
    ahead = {name: tick for name, tick in ticks.items() if tick > lowest}
    return Position(lowest, dict(ends), ahead)


def at_cut(cut: Cut) -> Position:
    """Return the position at a cut: one tick for all vchannels."""
    return Position(cut.tick, cut.ends)


def to_offset(position: Position) -> Offset:
    """Return the position as Spark stores it."""
    # Sorted: with names in another order Spark would see a new offset and run empty batches for
    # ever.
    offset: Offset = {
        ENDS: {name: int(end) for name, end in sorted(position.ends.items())},
        TICK: int(position.tick),
    }
    if position.began:
        began = {name: [int(tick), int(id)] for name, (tick, id) in sorted(position.began.items())}
        offset = {BEGAN: began, **offset}
    if position.ahead:
        ahead = {name: int(tick) for name, tick in sorted(position.ahead.items())}
        offset = {AHEAD: ahead, **offset}
    return offset


def to_position(offset: Mapping[str, Any]) -> Position:
    """Return the position of an offset. Raises BadCheckpoint for anything else, such as one of an
    old release.
    """
    tick, ends, ahead = offset.get(TICK), offset.get(ENDS), offset.get(AHEAD, {})
    began = offset.get(BEGAN, {})
    # Not isinstance: a JSON `true` would pass as an int.
    if type(tick) is int and _are_numbers(ends) and _are_numbers(ahead) and _are_pairs(began):
        return Position(
            TimeTick(tick),
            {name: MessageId(end) for name, end in ends.items()},
            {name: TimeTick(it) for name, it in ahead.items()},
            {name: (TimeTick(it), MessageId(id)) for name, (it, id) in began.items()},
        )
    shown = f"{str(dict(offset))[:200]}"
    if offset and all(isinstance(shards, dict) for shards in offset.values()):
        raise BadCheckpoint(
            f"{shown} is an offset of an older release. Start the query with a new"
            " checkpointLocation, and with startingTick or startingTimestamp where it ended"
        )
    raise BadCheckpoint(f"{shown} is not an offset of this source; use a new checkpointLocation")


def _are_numbers(found: object) -> TypeGuard[dict[str, int]]:
    return isinstance(found, dict) and all(type(it) is int for it in found.values())


def _are_pairs(found: object) -> TypeGuard[dict[str, tuple[int, int]]]:
    return isinstance(found, dict) and all(
        isinstance(pair, list | tuple) and len(pair) == 2 and all(type(it) is int for it in pair)
        for pair in found.values()
    )


def check_subscription(position: Position, vchannels: Collection[str]) -> None:
    """Raise BadCheckpoint unless the position has exactly these vchannels."""
    gone = sorted(position.ends.keys() - set(vchannels))
    new = sorted(set(vchannels) - position.ends.keys())
    if gone or new:
        raise BadCheckpoint(
            f"the checkpoint and `subscribe` name different vchannels; only in the checkpoint:"
            f" {gone[:8]}, only subscribed: {new[:8]}. A query cannot change its vchannels, and a"
            " collection that was dropped and created again has new ones: use a new"
            " checkpointLocation, or subscribePattern, with which collections may come"
        )


def losses(start: Position, end: Position, held: Mapping[str, ChannelOffsets]) -> list[str]:
    """Return one sentence per vchannel whose messages of a range are not all in the log."""
    found = []
    for name, begin in start.ends.items():
        first_id, next_id = held[name].first_id, held[name].next_id
        stop = end.ends.get(name, begin)
        if max(begin, stop) > next_id:
            found.append(f"{name} was read up to id {max(begin, stop)}, the log ends at {next_id}")
        # An empty range has lost nothing, however far retention has come.
        elif begin < first_id and stop > begin:
            lost = f"[{begin}, {min(stop, first_id)})"
            found.append(f"{name} lost ids {lost}, the log starts at {first_id}")
    return found
