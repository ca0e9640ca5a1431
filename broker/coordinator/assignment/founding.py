"""The cluster record: made at the first start, checked at each later one.

The names of the pchannels may be added to; the host of the control channel never changes.
"""

import secrets

from broker.coordinator.counters import count_up
from broker.coordinator.records import (
    CLUSTER_KEY,
    INCARNATION_KEY,
    STREAMING_VERSION_KEY,
    Cluster,
    decode_cluster,
    encode_cluster,
    encode_number,
)
from broker.core.cluster.assignment import STREAMING_VERSION
from broker.core.naming import control_host
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import PChannelName
from broker.ports.compare_and_set import retry_conflicts
from broker.ports.meta import MetaStore


async def found_cluster(
    store: MetaStore,
    pchannels: tuple[PChannelName, ...],
    streaming_version: int = STREAMING_VERSION,
) -> Cluster:
    """The cluster of this store, founded or grown to `pchannels` as needed; idempotent.

    `streaming_version`: the one of a new cluster; an existing one keeps its own. Raises
    Refused(INVALID_ARGUMENT), with a text for the person who starts the broker, when the store
    belongs to a cluster of another name or with more pchannels; MetaError.
    """

    async def attempt() -> Cluster:
        entry = await store.get(CLUSTER_KEY)
        beside: dict[str, bytes] = {}
        if entry is None:
            cluster, revision = _new_cluster(pchannels), 0
            # In the same write: a cluster without this record counts as one of an older release.
            beside = {STREAMING_VERSION_KEY: encode_number(streaming_version)}
        else:
            before = decode_cluster(CLUSTER_KEY, entry.value)
            if before.pchannels == pchannels and before.identity:
                return before
            _check_growth(before.pchannels, pchannels)
            identity = before.identity or _new_identity()
            cluster = Cluster(pchannels, before.control_host, identity)
            revision = entry.revision
        await store.write(
            {CLUSTER_KEY: encode_cluster(cluster), **beside}, expect={CLUSTER_KEY: revision}
        )
        return cluster

    return await retry_conflicts(CLUSTER_KEY, attempt)


async def check_cluster(store: MetaStore, pchannels: tuple[PChannelName, ...]) -> None:
    """Raise what `found_cluster` would for these pchannels, without founding anything."""
    found = await known_cluster(store)
    if found is not None:
        _check_growth(found.pchannels, pchannels)


async def known_cluster(store: MetaStore) -> Cluster | None:
    """The cluster of this store; None before it is founded. MetaError."""
    entry = await store.get(CLUSTER_KEY)
    return None if entry is None else decode_cluster(CLUSTER_KEY, entry.value)


async def next_incarnation(store: MetaStore) -> int:
    """A number above that of every earlier coordinator, durable on return. MetaError."""
    return (await count_up(store, INCARNATION_KEY)).number


def _new_cluster(pchannels: tuple[PChannelName, ...]) -> Cluster:
    return Cluster(pchannels, control_host(pchannels), _new_identity())


def _new_identity() -> str:
    return secrets.token_hex(8)


def _check_growth(before: tuple[PChannelName, ...], after: tuple[PChannelName, ...]) -> None:
    if not set(before) & set(after):
        raise Refused(
            StreamingCode.INVALID_ARGUMENT,
            f"the metadata belongs to another cluster, with pchannels {before[0]} to {before[-1]}; "
            f"this start asks for {after[0]} to {after[-1]}",
        )
    if not set(before) <= set(after):
        raise Refused(
            StreamingCode.INVALID_ARGUMENT,
            f"the cluster has {len(before)} pchannels, and this start asks for {len(after)}: "
            f"their number can grow and never shrink; start with at least {len(before)}",
        )
