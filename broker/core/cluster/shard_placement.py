"""Places new shards on the least loaded pchannels."""

from collections.abc import Mapping

from broker.model.ids import PChannelName

SHARDS_MAX = 1024


def place_shards(loads: Mapping[PChannelName, int], shards: int) -> tuple[PChannelName, ...]:
    """A pchannel for each shard: the least loaded ones, ties by name.

    `loads` counts the vchannels of each pchannel and is not empty. Each pchannel is used once
    before any is used twice, whatever the loads: the throughput of a collection grows with the
    number of logs it is spread over.
    """
    assert loads, "no pchannels to place shards on"
    counts = dict(loads)
    placed: list[PChannelName] = []
    while len(placed) < shards:
        by_load = sorted(counts, key=lambda name: (counts[name], name))
        chosen = by_load[: shards - len(placed)]
        for name in chosen:
            counts[name] += 1
        placed.extend(chosen)
    return tuple(placed)
