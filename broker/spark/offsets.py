"""Offsets of a query as plain values: where it starts, how far one micro-batch goes, what was lost.

An offset maps each subscribed name to its vchannels, each to the next message id to read. Ids count
all messages of a pchannel, so a range may hold fewer rows of one vchannel than its length. Spark
compares offsets as JSON text: names and vchannels are always in the same order.
Next: broker/spark/stream_reader.py
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from broker.spark.options import EARLIEST, LATEST, BadOption, Bound

Offset = dict[str, dict[str, int]]
Subscription = Mapping[str, Sequence[str]]
"""Each subscribed name with its vchannels in shard order."""


@dataclass(frozen=True, slots=True)
class Held:
    """What the broker holds of a vchannel's pchannel: ids in [first_id, next_id)."""

    first_id: int
    next_id: int


@dataclass(frozen=True, slots=True)
class Span:
    """Ids [start, end) of one vchannel, to be read by one task."""

    name: str
    vchannel: str
    start: int
    end: int


class DataLoss(RuntimeError):
    """Messages the query has not seen are gone from the log, or never were in it."""

    def __init__(self, losses: Sequence[str]) -> None:
        super().__init__(
            "[TIDEMARK_DATA_LOSS] "
            + "; ".join(losses)
            + ". Set failOnDataLoss to false to go on with what is there."
        )


def resolve(
    option: str, bound: Bound, subscription: Subscription, held: Mapping[str, Held]
) -> Offset:
    """The bound as ids. Shards that a JSON bound leaves out start at earliest."""
    if not isinstance(bound, int):
        _refuse_strangers(option, bound, subscription)
    return ordered(
        {
            name: {
                vchannel: _to_id(_asked(bound, name, shard, vchannel), held[vchannel])
                for shard, vchannel in enumerate(vchannels)
            }
            for name, vchannels in subscription.items()
        }
    )


def _asked(bound: Bound, name: str, shard: int, vchannel: str) -> int:
    if isinstance(bound, int):
        return bound
    shards = bound.get(name, {})
    return shards.get(vchannel, shards.get(str(shard), EARLIEST))


def _to_id(asked: int, held: Held) -> int:
    if asked == EARLIEST:
        return held.first_id
    return held.next_id if asked == LATEST else asked


def _refuse_strangers(
    option: str, bound: Mapping[str, Mapping[str, int]], subscription: Subscription
) -> None:
    for name, shards in bound.items():
        if name not in subscription:
            raise BadOption(option, dict(bound), f"{name!r} is not subscribed to")
        known = {*subscription[name], *map(str, range(len(subscription[name])))}
        for shard in shards.keys() - known:
            raise BadOption(option, dict(bound), f"{name!r} has no shard {shard!r}")


def ordered(offset: Mapping[str, Mapping[str, int]]) -> Offset:
    """The same offset in the one order that makes equal offsets equal text."""
    return {name: dict(sorted(offset[name].items())) for name in sorted(offset)}


def share(start: Offset, target: Offset, budget: int) -> Offset:
    """As far towards `target` as `budget` ids go, split by lag; each lagging shard moves on.

    So a shard with a small lag is not starved by one with a large lag, and a budget below the
    number of lagging shards still makes progress everywhere. For that, the budget may be exceeded
    by less than one id for each shard.
    """
    lags = {
        (name, vchannel): end - start[name][vchannel]
        for name, shards in target.items()
        for vchannel, end in shards.items()
        if end > start[name][vchannel]
    }
    total = sum(lags.values())
    if total <= budget:
        return advance_to(start, target)
    step = {key: max(1, lag * budget // total) for key, lag in lags.items()}
    return ordered(
        {
            name: {
                vchannel: position + step.get((name, vchannel), 0)
                for vchannel, position in shards.items()
            }
            for name, shards in start.items()
        }
    )


def advance_to(start: Offset, target: Offset) -> Offset:
    """`target`, but never behind `start`: a query does not go back."""
    return ordered(
        {
            name: {
                vchannel: max(position, target.get(name, {}).get(vchannel, position))
                for vchannel, position in shards.items()
            }
            for name, shards in start.items()
        }
    )


def spans(start: Offset, end: Offset) -> list[Span]:
    """What lies between two offsets. A vchannel that only `end` knows starts at its first id."""
    found = []
    for name, shards in end.items():
        for vchannel, stop in shards.items():
            begin = start.get(name, {}).get(vchannel, 1)
            if stop > begin:
                found.append(Span(name, vchannel, begin, stop))
    return found


def losses(start: Offset, end: Offset, held: Mapping[str, Held]) -> list[str]:
    """One sentence for each vchannel whose range cannot be read in full."""
    found = []
    for name, shards in start.items():
        for vchannel, begin in shards.items():
            stop = end.get(name, {}).get(vchannel, begin)
            loss = _loss(vchannel, begin, stop, held.get(vchannel))
            if loss:
                found.append(loss)
    return found


def _loss(vchannel: str, begin: int, stop: int, held: Held | None) -> str | None:
    if held is None:
        return f"{vchannel} does not exist any more"
    if stop < begin:
        return f"{vchannel} ends at {stop}, below the {begin} already read"
    if max(begin, stop) > held.next_id:
        return f"{vchannel} was read up to {max(begin, stop)}, the log ends at {held.next_id}"
    if begin < held.first_id and stop > begin:
        lost = f"[{begin}, {min(stop, held.first_id)})"
        return f"{vchannel} lost {lost}, the log starts at {held.first_id}"
    return None
