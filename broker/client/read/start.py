"""Turns the start and end of a read of messages into one reader for each vchannel.

Asks the server for offsets, opens no stream. "latest" and "now" become ids here, once: a stream
that breaks before its first message must not start at a later "latest".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from broker.client.cluster.cursor import Cursor
from broker.client.cluster.offsets import Offsets
from broker.client.cluster.targets import Shards, split
from broker.client.errors import BadTarget, OutOfRange
from broker.client.message import Batch
from broker.client.net.network import Network
from broker.client.read.decoder import End, MessageFilter
from broker.client.read.deliveries import Deliveries, Source
from broker.client.read.resuming_reader import ResumingReader
from broker.client.read.seek_behind import seek_behind
from broker.client.read.subscription import Subscription
from broker.client.read.vchannel_progress import VChannelProgress
from broker.client.start_time import (
    Time,
    no_start,
    refuse_removed,
    refuse_tick,
    tick_at,
    time_of,
)
from broker.core.naming import pchannel_of
from broker.model.channel import ChannelOffsets
from broker.model.cut import Cut
from broker.model.ids import MessageId, TimeTick
from broker.model.named_cursor import WHOLE_TICK, ChannelPosition
from broker.model.position import FromAll, StartFrom

Start = (
    str | int | tuple[Literal["tick"], int] | tuple[Literal["time"], Time] | datetime | Cut | Cursor
)
"""A `str` is "all", "latest", or the name of a cursor."""
ENDS = (Mapping, Cut)
Until = Literal["now"] | Mapping[str, int] | Cut


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How to read: see `Client.read`."""

    start: Start | Mapping[str, Start | ChannelPosition] = "all"
    until: Until | None = None
    types: frozenset[int] | None = None
    with_ticks: bool = False
    ignore_pause: bool = False


async def plan(
    network: Network, offsets: Offsets, shards: Shards, options: ReadOptions
) -> Sequence[Source[Batch]]:
    """One reader for each vchannel that has anything to read.

    Raises OutOfRange when an id asked for is not in the log, BadTarget when one id is given for
    several vchannels, DeadlineExceeded when nobody serves one of them: a reader waits without limit
    for a channel that moves, but a channel that never existed should fail at the start.
    """
    if not (options.until is None or options.until == "now" or isinstance(options.until, ENDS)):
        raise BadTarget(f"{options.until!r} is no end; use 'now', a mapping to ids, or a cut")
    for name in shards.vchannels:
        await network.assignments.locate(pchannel_of(name), deadline_s=network.open_s)
    starts = {name: _start_of(name, shards, options.start) for name in shards.vchannels}
    # The offsets are asked for only when a position depends on them.
    bounded = options.until is not None or any(
        not isinstance(it, str) or it != "all" for it in starts.values()
    )
    held = await offsets.describe(shards.vchannels) if bounded else {}
    subscriptions: list[Source[Batch]] = []
    for name in shards.vchannels:
        progress = await _progress(offsets, name, starts[name], held.get(name))
        end = _end(name, options.until, held.get(name))
        # Nothing lies between: no stream is needed.
        if end is not None and _begin(progress) >= end.id:
            # By an end that is a mapping of ids, nothing is known of its tick.
            if not isinstance(options.until, Mapping):
                subscriptions.append(NothingToRead(name, end))
            continue
        pchannel, vchannel = split(name)
        wanted = MessageFilter(
            pchannel,
            vchannel,
            shards.collection,
            options.types,
            options.with_ticks,
            end,
            options.ignore_pause,
        )
        reads = Subscription(wanted, progress)
        subscriptions.append(ResumingReader(network, offsets, reads))
    return subscriptions


class NothingToRead:
    """A vchannel whose read ends where it starts; that is the end of it for a cursor, too."""

    def __init__(self, name: str, end: End) -> None:
        self.channels = (name,)
        self._end = end

    async def run(self, deliveries: Deliveries[Batch]) -> None:
        """See Source."""
        deliveries.close_tick(self._end.tick)


def _start_of(
    name: str, shards: Shards, start: Start | Mapping[str, Start | ChannelPosition]
) -> Start | ChannelPosition:
    if isinstance(start, Mapping):
        if name not in start:
            raise BadTarget(f"the mapping has no start for {name}")
        return start[name]
    if isinstance(start, int) and len(shards.vchannels) > 1:
        raise BadTarget(
            f"{shards.collection} has {len(shards.vchannels)} vchannels, each with its own ids; "
            "read one of them, or pass a mapping with a start for each"
        )
    return start


async def _progress(
    offsets: Offsets, name: str, start: object, held: ChannelOffsets | None
) -> VChannelProgress:
    if isinstance(start, str) and start == "all":
        return VChannelProgress(FromAll())
    assert held is not None
    time = time_of(start)
    if time is not None:
        return await _from_tick(offsets, name, tick_at(time))
    match start:
        case "latest":
            return VChannelProgress(StartFrom(held.next_id))
        case int():
            if not held.first_id <= start <= held.next_id:
                raise OutOfRange(name, start, held.first_id, held.next_id)
            return VChannelProgress(StartFrom(MessageId(start)))
        case ("tick", int(tick)):
            refuse_tick(name, tick, held, (name,))
            if tick <= 1:
                return await _from_tick(offsets, name, tick)
            return await _behind_tick(offsets, name, tick - 1)
        case Cut(cut_tick, ends):
            _end_of_cut(name, ends)
            return await _behind_tick(offsets, name, cut_tick)
        case ChannelPosition():
            return await _from_position(offsets, name, start, held)
        case _:
            raise BadTarget(no_start(start))


async def _from_position(
    offsets: Offsets, name: str, at: ChannelPosition, held: ChannelOffsets
) -> VChannelProgress:
    refuse_removed(name, at.closed if at.tick else held.removed_tick, held, at.from_id)
    if not at.tick:
        return VChannelProgress(FromAll())
    floor = TimeTick(at.closed + 1)
    seen_id = MessageId(0) if at.id == WHOLE_TICK else at.id
    found = await seek_behind(offsets, name, at.closed)
    return VChannelProgress(StartFrom(found), floor, seen_id)


async def _from_tick(offsets: Offsets, name: str, tick: int) -> VChannelProgress:
    return VChannelProgress(StartFrom(await offsets.seek(name, tick)), TimeTick(tick))


async def _behind_tick(offsets: Offsets, name: str, after: int) -> VChannelProgress:
    found = await seek_behind(offsets, name, after)
    return VChannelProgress(StartFrom(found), TimeTick(after + 1))


def _begin(progress: VChannelProgress) -> int:
    policy, _ = progress.resume()
    return policy.id if isinstance(policy, StartFrom) else 0


def _end(name: str, until: Until | None, held: ChannelOffsets | None) -> End | None:
    if until is None:
        return None
    assert held is not None
    if isinstance(until, Cut):
        return End(_end_of_cut(name, until.ends), until.tick)
    end_id = held.next_id if until == "now" else until.get(name, held.next_id)
    if end_id > held.next_id:
        raise OutOfRange(name, end_id, held.first_id, held.next_id)
    return End(MessageId(end_id), held.closed_tick)


def _end_of_cut(name: str, ends: Mapping[str, MessageId]) -> MessageId:
    if name not in ends:
        raise BadTarget(f"the cut was not made for {name}")
    return ends[name]
