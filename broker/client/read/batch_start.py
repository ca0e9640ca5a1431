"""Turns the start and end of a read of batches into one reader for each pchannel.

Asks the server for offsets, opens no stream. "latest" and "now" become positions here, once: a
stream that breaks before its first message must not start at a later "latest".
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal

from broker.client.batch import MessageBatch
from broker.client.cluster.cursor import Cursor
from broker.client.cluster.offsets import Offsets
from broker.client.cluster.targets import Shards
from broker.client.errors import BadTarget, OutOfRange
from broker.client.net.network import Network
from broker.client.read.batch_subscription import BatchRange, BatchSubscription, Begin, Only
from broker.client.read.deliveries import Source
from broker.client.read.resuming_reader import ResumingReader
from broker.client.read.seek_behind import seek_behind
from broker.client.start_time import (
    Time,
    no_start,
    refuse_removed,
    refuse_tick,
    tick_at,
    time_of,
)
from broker.core.naming import is_physical, pchannel_of
from broker.model.channel import ChannelOffsets
from broker.model.cut import Cut
from broker.model.ids import PChannelName, TimeTick, VChannelName
from broker.model.named_cursor import ChannelPosition
from schemas.batches import Position

BatchStart = (
    str | int | tuple[Literal["tick"], int] | tuple[Literal["time"], Time] | datetime | Cut | Cursor
)
"""A `str` is "all", "latest", or the name of a cursor."""
BatchUntil = Literal["now"] | int | Cut


async def plan_batches(
    network: Network,
    offsets: Offsets,
    shards: Shards,
    bounds: tuple[BatchStart | Mapping[str, ChannelPosition], BatchUntil | None],
    only: Only,
) -> Sequence[Source[MessageBatch]]:
    """A reader for each pchannel; a mapping has the positions of a cursor.

    Raises OutOfRange for an id that is not in the log, BadTarget for an invalid start or end.

    Also raises DeadlineExceeded when nobody serves one of the pchannels: a reader waits without
    limit for a channel that moves, but a channel that never existed should fail at the start.
    """
    by_pchannel: dict[PChannelName, list[VChannelName]] = {}
    for name in shards.vchannels:
        by_pchannel.setdefault(pchannel_of(name), []).append(name)
    start, until = bounds
    if isinstance(start, int) and len(by_pchannel) > 1:
        raise BadTarget("an id starts one pchannel only: each has its own ids; use a tick or a cut")
    for pchannel in by_pchannel:
        await network.assignments.locate(pchannel, deadline_s=network.open_s)
    held = await offsets.describe(by_pchannel)
    sources: list[Source[MessageBatch]] = []
    for pchannel, names in by_pchannel.items():
        wanted = BatchRange(
            pchannel=pchannel,
            vchannels=() if any(map(is_physical, names)) else tuple(names),
            start=await _begin(offsets, start, held[pchannel], names),
            collection=shards.collection,
            until_tick=_until(until, held[pchannel]),
            only=only,
            marked=isinstance(start, Mapping),
        )
        sources.append(ResumingReader(network, offsets, BatchSubscription(wanted)))
    return sources


async def _begin(
    offsets: Offsets,
    start: object,
    held: ChannelOffsets,
    names: Sequence[str],
) -> Begin:
    if isinstance(start, Mapping):
        return await _from_positions(offsets, {it: start[it] for it in names}, held)
    time = time_of(start)
    if time is not None:
        return Begin(tick=tick_at(time))
    match start:
        case "all":
            return Begin()
        case "latest":
            # An id: a stream that is opened again at "latest" would skip what came in between.
            return Begin(id=held.next_id)
        case int():
            if not held.first_id <= start <= held.next_id:
                raise OutOfRange(held.name, start, held.first_id, held.next_id)
            return Begin(id=start)
        case ("tick", int(tick)):
            refuse_tick(held.name, tick, held, names)
            return await _behind_tick(offsets, held.name, tick - 1)
        case Cut(tick, ends):
            # Vchannels of one pchannel share its ids and were cut at one tick: they end at one id.
            known = [ends[name] for name in names if name in ends]
            if not known:
                # The cut is of other channels and says nothing about the ids of this one.
                return await _behind_tick(offsets, held.name, tick)
            # 0: not known. The server looks for the transactions that were open at the cut.
            return Begin(after=Position(known[0], tick, 0, 0))
        case _:
            raise BadTarget(no_start(start))


async def _behind_tick(offsets: Offsets, name: str, after: int) -> Begin:
    if after <= 0:
        return Begin(tick=after + 1)
    next_id = await seek_behind(offsets, name, after)
    return Begin(tick=after + 1, after=Position(next_id, TimeTick(after), 0, 0))


async def _from_positions(
    offsets: Offsets, positions: Mapping[str, ChannelPosition], held: ChannelOffsets
) -> Begin:
    """Where the vchannel begins that is furthest behind; of the others, what is dropped."""
    for name, at in positions.items():
        refuse_removed(name, at.closed if at.tick else held.removed_tick, held, at.from_id)
    low = min(positions.values(), key=lambda it: (it.tick, it.id))
    places = {name: (at.tick, at.id) for name, at in positions.items()}
    ahead = {name: place for name, place in places.items() if place > (low.tick, low.id)}
    if not low.tick:
        return Begin(seen=ahead)
    next_id = await seek_behind(offsets, held.name, low.closed)
    after = Position(next_id, low.closed, 0, 0)
    return Begin(after=after, seen={**ahead, "": (low.tick, low.id)})


def _until(until: BatchUntil | None, held: ChannelOffsets) -> int:
    match until:
        case None:
            return 0
        case "now":
            return held.closed_tick
        case Cut():
            return until.tick
        case int():
            return until
    raise BadTarget(f"{until!r} is no end; use 'now', a time tick or a cut")
