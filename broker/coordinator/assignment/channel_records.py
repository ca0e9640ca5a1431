"""The record of each pchannel in the metadata store, changed by compare-and-set.

Nothing is cached: a node that takes a term in another process writes the same record.
"""

from collections.abc import Callable
from dataclasses import dataclass

from broker.coordinator.records import decode_pchannel, encode_pchannel, pchannel_key
from broker.core.cluster.assignment import PChannelMeta
from broker.model.ids import PChannelName
from broker.ports.compare_and_set import retry_conflicts
from broker.ports.meta import MetaStore

ATTEMPTS_MAX = 32
"""More than elsewhere: the node that takes a term and the coordinator write this record at once."""


@dataclass(frozen=True, slots=True)
class RecordedChannel:
    """A pchannel's record and its revision; 0 when it has none."""

    meta: PChannelMeta
    revision: int


class ChannelRecords:
    """The pchannel records of one store. Every call may raise MetaError."""

    def __init__(self, store: MetaStore) -> None:
        self._store = store

    async def read(self, name: PChannelName) -> RecordedChannel:
        """The current record; a pchannel without one was never assigned."""
        key = pchannel_key(name)
        entry = await self._store.get(key)
        if entry is None:
            return RecordedChannel(PChannelMeta(name), 0)
        return RecordedChannel(decode_pchannel(key, entry.value), entry.revision)

    async def save(self, before: RecordedChannel, meta: PChannelMeta) -> RecordedChannel:
        """Replace exactly `before`; raises Conflict when the record has changed."""
        if meta is before.meta:
            return before
        key = pchannel_key(meta.name)
        revision = await self._store.write(
            {key: encode_pchannel(meta)}, expect={key: before.revision}
        )
        return RecordedChannel(meta, revision)

    async def change(
        self,
        name: PChannelName,
        transition: Callable[[PChannelMeta], PChannelMeta],
        known: RecordedChannel | None = None,
    ) -> RecordedChannel:
        """Apply a transition to the current record; when it raises, nothing is saved.

        `known`: what the caller read last, tried first to save a read.
        """
        believed = known

        async def attempt() -> RecordedChannel:
            nonlocal believed
            # `known` serves the first attempt only: a conflict shows that it is out of date.
            before, believed = believed or await self.read(name), None
            return await self.save(before, transition(before.meta))

        return await retry_conflicts(pchannel_key(name), attempt, attempts_max=ATTEMPTS_MAX)
