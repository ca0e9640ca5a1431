"""Whether the channels of the cluster take appends: its streaming version, which only grows.

Owns that record. Version 0 is a cluster whose writers are elsewhere still: its channels are served
read-only. From 1 on they are served read-write; the newest one tells clients what they may use.
"""

from broker.coordinator.records import STREAMING_VERSION_KEY, decode_number, encode_number
from broker.core.cluster.assignment import STREAMING_VERSION
from broker.model.failure import Refused, StreamingCode
from broker.ports.compare_and_set import retry_conflicts
from broker.ports.meta import MetaEntry, MetaStore


async def streaming_version(store: MetaStore) -> int:
    """What holds now. A cluster of an older program has no record, and took appends. MetaError."""
    return _version(await store.get(STREAMING_VERSION_KEY))


async def raise_streaming_version(store: MetaStore, wanted: int) -> int:
    """The version from now on, durable when this returns: `wanted`, or the higher one there was.

    Raises Refused(INVALID_ARGUMENT) for one that this program does not know; MetaError.
    """
    if not 0 <= wanted <= STREAMING_VERSION:
        cause = f"streaming version {wanted} is not known here, only 0 to {STREAMING_VERSION}"
        raise Refused(StreamingCode.INVALID_ARGUMENT, cause)

    async def attempt() -> int:
        entry = await store.get(STREAMING_VERSION_KEY)
        before, revision = _version(entry), entry.revision if entry else 0
        if wanted <= before:
            return before
        record = {STREAMING_VERSION_KEY: encode_number(wanted)}
        await store.write(record, expect={STREAMING_VERSION_KEY: revision})
        return wanted

    return await retry_conflicts(STREAMING_VERSION_KEY, attempt)


def _version(entry: MetaEntry | None) -> int:
    if entry is None:
        return STREAMING_VERSION
    return decode_number(STREAMING_VERSION_KEY, entry.value)
