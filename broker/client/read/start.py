"""Turns the start and end of a read of messages into one reader for each vchannel.

Asks the server for offsets, opens no stream. "latest" and "now" become ids here, once: a stream
that breaks before its first message must not start at a later "latest".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from broker.client.cluster.offsets import Offsets
from broker.client.cluster.targets import Shards, split
from broker.client.errors import BadTarget, OutOfRange
from broker.client.message import Batch
from broker.client.net.network import Network
from broker.client.read.decoder import End, MessageFilter
from broker.client.read.deliveries import Source
from broker.client.read.resuming_reader import ResumingReader
from broker.client.read.subscription import Subscription
from broker.client.read.vchannel_progress import VChannelProgress
from broker.core.naming import pchannel_of
from broker.model.channel import ChannelOffsets
from broker.model.cut import Cut
from broker.model.ids import MessageId, TimeTick
from broker.model.position import FromAll, StartFrom

Start = Literal["all", "latest"] | int | tuple[Literal["tick"], int] | Cut
ENDS = (Mapping, Cut)
Until = Literal["now"] | Mapping[str, int] | Cut


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How to read: see `Client.read`."""

    start: Start | Mapping[str, Start] = "all"
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
    # The offsets are asked for only when a position depends on them. `str`: a Cut has no hash.
    bounded = options.until is not None or not {"all"}.issuperset(map(str, starts.values()))
    held = await offsets.describe(shards.vchannels) if bounded else {}
    subscriptions: list[Source[Batch]] = []
    for name in shards.vchannels:
        progress = await _progress(offsets, name, starts[name], held.get(name))
        end = _end(name, options.until, held.get(name))
        # Nothing lies between: no stream is needed.
        if end is not None and _begin(progress) >= end.id:
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


def _start_of(name: str, shards: Shards, start: Start | Mapping[str, Start]) -> Start:
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
    offsets: Offsets, name: str, start: Start, held: ChannelOffsets | None
) -> VChannelProgress:
    if start == "all":
        return VChannelProgress(FromAll())
    assert held is not None
    match start:
        case "latest":
            return VChannelProgress(StartFrom(held.next_id))
        case int():
            if not held.first_id <= start <= held.next_id:
                raise OutOfRange(name, start, held.first_id, held.next_id)
            return VChannelProgress(StartFrom(MessageId(start)))
        case ("tick", int(tick)):
            return await _from_tick(offsets, name, tick)
        case Cut(cut_tick, ends):
            _end_of_cut(name, ends)
            return await _from_tick(offsets, name, cut_tick + 1)
    raise BadTarget(
        f"{start!r} is no start; use 'all', 'latest', a message id, ('tick', n) or a cut"
    )


async def _from_tick(offsets: Offsets, name: str, tick: int) -> VChannelProgress:
    return VChannelProgress(StartFrom(await offsets.seek(name, tick)), TimeTick(tick))


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
