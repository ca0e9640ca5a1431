"""A collection: the name a person uses for a set of vchannels, one per shard."""

from dataclasses import dataclass

from broker.model.ids import CollectionId, VChannelName


@dataclass(frozen=True, slots=True)
class RowSchema:
    """The columns of a collection's rows: `arrow` is an Arrow IPC schema message, opaque in here.

    A schema only grows, at its end: version v of it, from 1 on, is its first `widths[v - 1]`
    columns, and `arrow` is the newest.
    """

    arrow: bytes
    widths: tuple[int, ...]

    @property
    def version(self) -> int:
        return len(self.widths)


@dataclass(frozen=True, slots=True)
class Collection:
    """`vchannels[i]` is shard i; the tuple never changes after creation.

    Without a `schema` its messages are bytes to the broker, and no rows.
    """

    name: str
    id: CollectionId
    vchannels: tuple[VChannelName, ...]
    created_ms: int
    schema: RowSchema | None = None
