"""Offsets of a query. Each one is a cut: a tick that is closed on all vchannels that are read.

A range of two offsets holds every message with a tick above the first and up to the second. The
tick alone defines it; the position of the cut on each vchannel tells what retention has removed
since. Spark compares offsets as JSON text, so equal cuts must give equal text.
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
    """Return the cut as Spark stores it."""
    # Sorted: with names in another order Spark would see a new offset and run empty batches for
    # ever.
    return {ENDS: {name: int(end) for name, end in sorted(cut.ends.items())}, TICK: int(cut.tick)}


def to_cut(offset: Mapping[str, Any]) -> Cut:
    """Return the cut of an offset. Raises BadCheckpoint for anything else, such as one of an old
    release.
    """
    tick, ends = offset.get(TICK), offset.get(ENDS)
    # Not isinstance: a JSON `true` would pass as an int.
    if type(tick) is int and isinstance(ends, dict):
        return Cut(TimeTick(tick), {name: MessageId(end) for name, end in ends.items()})
    shown = f"{str(dict(offset))[:200]}"
    if offset and all(isinstance(shards, dict) for shards in offset.values()):
        raise BadCheckpoint(
            f"{shown} is an offset of an older release. Start the query with a new"
            " checkpointLocation, and with startingTick or startingTimestamp where it ended"
        )
    raise BadCheckpoint(f"{shown} is not an offset of this source; use a new checkpointLocation")


def check_subscription(cut: Cut, vchannels: Collection[str]) -> None:
    """Raise BadCheckpoint unless the cut has exactly these vchannels."""
    gone, new = sorted(cut.ends.keys() - set(vchannels)), sorted(set(vchannels) - cut.ends.keys())
    if gone or new:
        raise BadCheckpoint(
            f"the checkpoint and `subscribe` name different vchannels; only in the checkpoint:"
            f" {gone[:8]}, only subscribed: {new[:8]}. A query cannot change its vchannels, and a"
            " collection that was dropped and created again has new ones: use a new"
            " checkpointLocation"
        )


def losses(start: Cut, end: Cut, held: Mapping[str, ChannelOffsets]) -> list[str]:
    """Return one sentence per vchannel whose messages between two cuts are not all in the log."""
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
