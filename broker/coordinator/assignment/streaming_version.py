"""The streaming version of the cluster: whether channels accept appends. It only grows.

At version 0 other writers own the data, and channels are served read-only; from 1 on read-write.
"""

from broker.coordinator.records import STREAMING_VERSION_KEY, decode_number, encode_number
from broker.core.cluster.assignment import STREAMING_VERSION
from broker.model.failure import Refused, StreamingCode
from broker.ports.compare_and_set import retry_conflicts
from broker.ports.meta import MetaEntry, MetaStore


async def streaming_version(store: MetaStore) -> int:
    """The current version; without a record (an older release) appends are accepted. MetaError."""
    return _version(await store.get(STREAMING_VERSION_KEY))


async def raise_streaming_version(store: MetaStore, wanted: int) -> int:
    """The version from now on, durable on return: `wanted`, or a higher one that was recorded.

    Raises Refused(INVALID_ARGUMENT) for a version this program does not know; MetaError.
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
