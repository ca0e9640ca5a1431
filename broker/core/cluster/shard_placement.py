"""Where new shards go: to the emptiest pchannels."""

from collections.abc import Mapping

from broker.model.ids import PChannelName

SHARDS_MAX = 1024


def place_shards(loads: Mapping[PChannelName, int], shards: int) -> tuple[PChannelName, ...]:
    """A pchannel for each shard: the least loaded ones, ties by name.

    `loads` counts the vchannels on each pchannel and is not empty. No pchannel is used twice
    before each has been used once, whatever the loads are: a collection's speed is the number of
    logs it is spread over.
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
