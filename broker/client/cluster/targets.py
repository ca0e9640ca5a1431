"""From the name a program uses to vchannels: a collection's shards, or the one channel it is.

It remembers collections, whose shards never change while they live; that another client dropped
one and made another of the same name is not noticed before the next `connect`. It never reads or
writes a log.
Next: broker/client/cluster/collections.py
"""

from collections.abc import Sequence

from broker.client.cluster.collections import Collections
from broker.client.errors import BadTarget
from broker.client.message import Key
from broker.core.naming import is_physical, pchannel_of
from broker.core.sharding import shard_of
from broker.model.ids import PChannelName, VChannelName


class Shards:
    """The vchannels of one collection and the rule that spreads rows over them."""

    def __init__(self, collection: str | None, vchannels: tuple[VChannelName, ...]) -> None:
        self.collection = collection
        self.vchannels = vchannels
        self._turn = 0

    def choose(self, key: Key | None) -> VChannelName:
        """By the key's hash; rows without a key take turns."""
        if key is not None:
            return self.vchannels[shard_of(key, len(self.vchannels))]
        self._turn = (self._turn + 1) % len(self.vchannels)
        return self.vchannels[self._turn]

    def choose_for_batch(self, target: str, *, keyed: bool) -> VChannelName:
        """Batches take turns; BadTarget for one with keys that there are several vchannels for."""
        if keyed and len(self.vchannels) > 1:
            raise BadTarget(f"a batch with keys is for one vchannel; {target} has more, name one")
        return self.choose(None)


def together(found: Sequence[Shards]) -> Shards:
    """All their vchannels, each once; several are of no collection in particular."""
    if len(found) == 1:
        return found[0]
    return Shards(None, tuple(dict.fromkeys(name for it in found for name in it.vchannels)))


class Targets:
    """Names a program may append to and read from."""

    def __init__(self, collections: Collections) -> None:
        self._collections = collections
        self._known: dict[str, Shards] = {}

    def known(self, name: str) -> Shards | None:
        """What `resolve` found before, without asking again."""
        return self._known.get(name)

    async def resolve(self, name: str) -> Shards:
        """The vchannels behind a name; a channel's name, which always has a '-', is its own.

        Raises NoSuchCollection.
        """
        found = self._known.get(name)
        if found is None:
            found = await self._look_up(name)
            self._known[name] = found
        return found

    def forget(self, name: str) -> None:
        """Ask again next time."""
        self._known.pop(name, None)

    async def _look_up(self, name: str) -> Shards:
        if "-" in name:
            return Shards(None, (VChannelName(name),))
        collection = await self._collections.get(name)
        return Shards(collection.name, collection.vchannels)


def split(channel: str) -> tuple[PChannelName, VChannelName]:
    """A channel as (pchannel, vchannel); a pchannel has the empty vchannel, which means all."""
    vchannel = VChannelName("" if is_physical(channel) else channel)
    return pchannel_of(channel), vchannel
