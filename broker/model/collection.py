"""A collection: a name for a set of vchannels, one per shard."""

from dataclasses import dataclass

from broker.model.ids import CollectionId, VChannelName


@dataclass(frozen=True, slots=True)
class RowSchema:
    """The columns of a collection's rows: `arrow` is an Arrow IPC schema message, opaque here.

    Columns are only added at the end: version v, from 1, has the first `widths[v - 1]` columns;
    `arrow` is the newest version.
    """

    arrow: bytes
    widths: tuple[int, ...]

    @property
    def version(self) -> int:
        return len(self.widths)


@dataclass(frozen=True, slots=True)
class Collection:
    """`vchannels[i]` is shard i; the tuple never changes after creation.

    Without a `schema` its messages are opaque bytes.
    """

    name: str
    id: CollectionId
    vchannels: tuple[VChannelName, ...]
    created_ms: int
    schema: RowSchema | None = None
