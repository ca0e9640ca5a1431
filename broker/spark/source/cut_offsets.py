"""Offsets of a query: each is a cut, one tick that is closed on all channels that are read.

What belongs to a range of two is every message with a tick above the first and up to the second.
The tick says all; where the cut lies on each channel is there to tell what retention has taken
since. Spark compares offsets as JSON text, so equal cuts must be equal text.
Next: broker/spark/source/stream_reader.py
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from broker.client import Cut
from broker.model.channel import ChannelOffsets
from broker.model.ids import MessageId, TimeTick
from broker.spark.refusals import BadCheckpoint

Offset = dict[str, Any]
"""`{"ends": {vchannel: first id behind the cut, ...}, "tick": tick}`, sorted."""

TICK: Final = "tick"
ENDS: Final = "ends"


def to_offset(cut: Cut) -> Offset:
    """The cut as Spark keeps it."""
    return {ENDS: {name: int(end) for name, end in sorted(cut.ends.items())}, TICK: int(cut.tick)}


def to_cut(offset: Mapping[str, Any]) -> Cut:
    """The cut of an offset. Raises BadCheckpoint for what is none, such as an older release's."""
    tick, ends = offset.get(TICK), offset.get(ENDS)
    if type(tick) is int and isinstance(ends, dict):
        return Cut(TimeTick(tick), {name: MessageId(end) for name, end in ends.items()})
    shown = f"{str(dict(offset))[:200]}"
    if offset and all(isinstance(shards, dict) for shards in offset.values()):
        raise BadCheckpoint(
            f"{shown} has ids of single channels, as the offsets of an older release; ticks are"
            " offsets now. Start the query with a new checkpointLocation, and with startingTick or"
            " startingTimestamp where the old one ended"
        )
    raise BadCheckpoint(f"{shown} is no offset of this source")


def check_subscription(cut: Cut, vchannels: Collection[str]) -> None:
    """Raises BadCheckpoint unless the cut is of exactly these vchannels."""
    gone, new = sorted(cut.ends.keys() - set(vchannels)), sorted(set(vchannels) - cut.ends.keys())
    if gone or new:
        raise BadCheckpoint(
            f"the checkpoint and `subscribe` are about different vchannels; only in the checkpoint:"
            f" {gone[:8]}, only subscribed to: {new[:8]}. A collection that was dropped and made"
            " again is another one, and a query cannot take one on later: use a new"
            " checkpointLocation"
        )


def losses(start: Cut, end: Cut, held: Mapping[str, ChannelOffsets]) -> list[str]:
    """One sentence for each vchannel whose messages between two cuts are not all in the log."""
    found = []
    for name, begin in start.ends.items():
        first_id, next_id = held[name].first_id, held[name].next_id
        stop = end.ends.get(name, begin)
        if max(begin, stop) > next_id:
            found.append(f"{name} was read up to id {max(begin, stop)}, the log ends at {next_id}")
        elif begin < first_id and stop > begin:
            lost = f"[{begin}, {min(stop, first_id)})"
            found.append(f"{name} lost ids {lost}, the log starts at {first_id}")
    return found
