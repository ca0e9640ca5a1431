"""A collection: the name a person uses for a set of vchannels, one per shard."""

from dataclasses import dataclass

from broker.model.ids import CollectionId, VChannelName


@dataclass(frozen=True, slots=True)
class Collection:
    """`vchannels[i]` is shard i; the tuple never changes after creation."""

    name: str
    id: CollectionId
    vchannels: tuple[VChannelName, ...]
    created_ms: int
