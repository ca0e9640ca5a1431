"""A collection: a name for a set of vchannels, one per shard."""

from dataclasses import dataclass

from broker.model.ids import CollectionId, PartitionId, TimeTick, VChannelName
from broker.model.retention.compaction import Compaction
from broker.model.retention.policy import Retention


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

    Without a `schema` its messages are opaque bytes. `database` "" is the default one.
    `created_tick`: of its announcement on the control channel; 0 for one of an earlier release that
    was not announced yet, which has no `default_partition` either. `retention`: of each vchannel.
    `compaction`: None: what retention does not remove is kept.
    """

    name: str
    id: CollectionId
    vchannels: tuple[VChannelName, ...]
    created_ms: int
    schema: RowSchema | None = None
    database: str = ""
    default_partition: PartitionId = PartitionId(0)
    created_tick: TimeTick = TimeTick(0)
    retention: Retention = Retention()
    compaction: Compaction | None = None

    @property
    def announced(self) -> bool:
        """Whether its creation is on the control channel; of an earlier release it is not yet."""
        return self.created_tick > 0
