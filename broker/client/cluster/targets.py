"""Resolves the name that a program uses to vchannels: a collection's shards, or one channel.

Collections are cached, because the shards of a collection never change while it exists. When
another client drops a collection and creates one of the same name, this client notices only after
the next `connect`.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence

from broker.client.errors import BadTarget
from broker.client.lifetime import ClientLifetime
from broker.client.message import Key
from broker.core.naming import is_physical, pchannel_of
from broker.core.sharding import shard_of
from broker.model.collection import Collection
from broker.model.ids import PChannelName, VChannelName

FindCollection = Callable[[str], Awaitable[Collection]]
"""Asks the server for a collection; raises NoSuchCollection."""


class Shards:
    """The vchannels of one collection, and the rule that spreads rows over them."""

    def __init__(self, collection: str | None, vchannels: tuple[VChannelName, ...]) -> None:
        self.collection = collection
        self.vchannels = vchannels
        self._turn = 0

    def choose(self, key: Key | None) -> VChannelName:
        """The vchannel of a row: by the hash of its key, in turns when it has none."""
        if key is not None:
            return self.vchannels[shard_of(key, len(self.vchannels))]
        self._turn = (self._turn + 1) % len(self.vchannels)
        return self.vchannels[self._turn]

    def choose_for_batch(self, target: str, *, keyed: bool) -> VChannelName:
        """The vchannel of a batch, in turns. BadTarget for keys when there are several vchannels.

        A batch lies on one vchannel, so its keys could not choose the shard of each row.
        """
        if keyed and len(self.vchannels) > 1:
            raise BadTarget(
                f"{target!r} has {len(self.vchannels)} vchannels, and a batch with keys needs one:"
                " name a vchannel, or use append_messages"
            )
        return self.choose(None)


def merged(found: Sequence[Shards]) -> Shards:
    """The vchannels of all of them, each once; the result belongs to no single collection."""
    if len(found) == 1:
        return found[0]
    return Shards(None, tuple(dict.fromkeys(name for it in found for name in it.vchannels)))


class Targets:
    """Resolves names to vchannels. Every method raises ClosedClient or ForkedClient."""

    def __init__(self, find: FindCollection, lifetime: ClientLifetime) -> None:
        self._find = find
        self._lifetime = lifetime
        self._known: dict[str, Shards] = {}

    def known(self, name: str) -> Shards | None:
        """What `resolve` would return without asking the server, if it is cached."""
        self._lifetime.check()
        return self._known.get(name)

    async def resolve(self, name: str) -> Shards:
        """The vchannels of a collection, or a channel by its own name. Raises NoSuchCollection."""
        found = self.known(name)
        if found is None:
            # Two tasks may look it up at once; their answers are the same.
            found = self._known[name] = await self._look_up(name)
        return found

    async def resolve_all(self, targets: str | Iterable[str]) -> Shards:
        """The vchannels of one or more targets, each once. Raises NoSuchCollection."""
        return merged([await self.resolve(name) for name in self.names(targets)])

    async def only_vchannel(self, target: str) -> VChannelName:
        """The one vchannel of the target; BadTarget when it has several."""
        shards = await self.resolve(target)
        if len(shards.vchannels) != 1:
            raise BadTarget(
                f"{target!r} has {len(shards.vchannels)} vchannels, and a transaction needs one:"
                " name a vchannel (`log.collections.get(name)` lists them)"
            )
        return shards.vchannels[0]

    def vchannel(self, name: str) -> Shards:
        """Exactly this vchannel, without a look-up."""
        self._lifetime.check()
        return Shards(None, (VChannelName(name),))

    def names(self, targets: str | Iterable[str]) -> list[str]:
        """The targets as a list."""
        self._lifetime.check()
        return [targets] if isinstance(targets, str) else list(targets)

    def forget(self, name: str) -> None:
        """Ask the server again next time."""
        self._known.pop(name, None)

    async def _look_up(self, name: str) -> Shards:
        # The name of a collection has no '-', the name of a channel always has one.
        if "-" in name:
            return Shards(None, (VChannelName(name),))
        collection = await self._find(name)
        return Shards(collection.name, collection.vchannels)


def split(channel: str) -> tuple[PChannelName, VChannelName]:
    """A channel as (pchannel, vchannel); the vchannel of a pchannel's own name is empty: all."""
    vchannel = VChannelName("" if is_physical(channel) else channel)
    return pchannel_of(channel), vchannel
